"""How many statements the hot verbs take, and that the number of open calls does not matter (B-01, B-02).

Numbers are upper bounds, measured and pinned: a change that needs more says so here. Statements that open and close
transactions and savepoints are not counted, since a test's own transaction changes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix.models import PendingCall, Session
from helix.services.advance import advance_run
from helix.services.advance.claim import claim_run
from helix.statuses import CallKind, CallState
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import T0, World, current_run, pending, session_of

pytestmark = pytest.mark.django_db

# Twenty calls are one page of rows on both databases: SQLite bounds the parameters of a statement.
# One of them finds the session, as every other verb does: a submit reaches no other names than they.
SUBMIT = 13
LAST_SUBMIT = 17
CLAIM = 10
RECORD = 37
DRAIN = 45
BODY = 16

NOT_COUNTED = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT", "BEGIN", "COMMIT")


class Statements(list[str]):
    """What was sent to the database, without the brackets of transactions."""

    @property
    def writes(self) -> list[str]:
        return [sql for sql in self if not sql.startswith("SELECT")]


@contextmanager
def statements() -> Iterator[Statements]:
    sent = Statements()
    with CaptureQueriesContext(connection) as captured:
        yield sent
    sent += [query["sql"] for query in captured if not query["sql"].startswith(NOT_COUNTED)]


def crowd(session_id: UUID, size: int) -> None:
    """More open calls of the same root: of another session of its tree, as rows only."""
    root = session_of(session_id)
    run = current_run(session_id)
    child = Session.objects.create(
        root_id=root.id,
        parent_id=root.id,
        parent_call=PendingCall.objects.filter(session=root).order_by("seq").first(),
        owner="owner",
        agent_type="crowd",
        status="awaiting_client_tool",
        waiting_since=T0,
    )
    Session.objects.filter(pk=root.id).update(child_count=1, call_sequence=root.call_sequence + size)
    PendingCall.objects.bulk_create(
        [
            PendingCall(
                root_id=root.id,
                session_id=child.id,
                run_id=run.id,
                emitted_by_id=run.id,
                tool_call_id=f"crowd-{number}",
                tool_name="locate",
                kind=CallKind.CLIENT,
                step_id="crowd",
                seq=root.call_sequence + number + 1,
                arguments_json="{}",
                arguments={},
                arguments_digest="",
                state=CallState.AWAITING,
                exposed_at=T0,
            )
            for number in range(size)
        ],
        batch_size=500,
    )


# -- each verb has its bound -------------------------------------------------------------------------------------------


def test_a_submit_that_is_not_the_last_takes_few_statements(world: World, agent: AgentMaker) -> None:
    """B-02: it writes its own call, audit row, event and the root, and no other call."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1"), call("locate", "c2")]), tools=[locate]))
    with statements() as sent:
        world.submit(session_id, "c1", result=1)
    assert len(sent) <= SUBMIT, sent
    assert sum('UPDATE "helix_pendingcall"' in sql for sql in sent) == 1


def test_the_last_submit_of_a_batch_also_queues_its_run(world: World, agent: AgentMaker) -> None:
    """B-02: the continuation is part of the same few statements, however many calls it takes over."""
    counts = []
    for size in (1, 20):
        calls = [call("locate", f"c{n}") for n in range(size)]
        session_id = world.started(agent(ScriptedModel(calls, ["done"]), tools=[locate]))
        for n in range(size - 1):
            world.submit(session_id, f"c{n}", result=n)
        with statements() as sent:
            world.submit(session_id, f"c{size - 1}", result=1)
        counts.append(len(sent))
    assert counts[0] == counts[1] <= LAST_SUBMIT, counts


def test_a_claim_takes_few_statements(world: World, agent: AgentMaker) -> None:
    """The move under a new epoch, the lease and the event."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    with statements() as sent:
        assert claim_run(current_run(session_id).id, now=world.now) is not None
    assert len(sent) <= CLAIM, sent


def test_recording_a_reply_takes_the_same_for_one_call_and_for_twenty(world: World, agent: AgentMaker) -> None:
    """B-01: claim, model, reply commit and suspension of a whole first run."""
    counts = []
    for size in (1, 20):
        calls = [call("locate", f"c{n}") for n in range(size)]
        session_id = world.start(agent(ScriptedModel(calls), tools=[locate]))
        with statements() as sent:
            advance_run(current_run(session_id).id, clock=world.clock)
        assert len(pending(session_id)) == size
        counts.append(len(sent))
    assert counts[0] == counts[1] <= RECORD, counts


def test_a_drain_takes_the_same_for_one_result_and_for_twenty(world: World, agent: AgentMaker) -> None:
    """B-02: claim, drain, model and final commit of a whole continuation."""
    counts = []
    for size in (1, 20):
        calls = [call("locate", f"c{n}") for n in range(size)]
        session_id = world.started(agent(ScriptedModel(calls, ["done"]), tools=[locate]))
        for n in range(size):
            world.submit(session_id, f"c{n}", result=n)
        with statements() as sent:
            advance_run(current_run(session_id).id, clock=world.clock)
        assert session_of(session_id).status == "idle"
        counts.append(len(sent))
    assert counts[0] == counts[1] <= DRAIN, counts


def test_a_body_takes_few_statements_from_start_to_result(world: World, agent: AgentMaker) -> None:
    """Each further body of a step costs the same."""
    counts = []
    for size in (1, 2, 3):
        bodies = Bodies()
        model = ScriptedModel([call("add", number=n) for n in range(size)], ["done"])
        session_id = world.start(agent(model, tools=[bodies.tool("add")]))
        with statements() as sent:
            advance_run(current_run(session_id).id, clock=world.clock)
        counts.append(len(sent))
    assert counts[2] - counts[1] == counts[1] - counts[0] <= BODY, counts


# -- the number of open calls does not matter --------------------------------------------------------------------------


def test_answering_and_registering_cost_the_same_among_ten_and_ten_thousand_open_calls(
    world: World, agent: AgentMaker
) -> None:
    """B-01, B-02: as many statements and as many written; no other call row changes."""
    shapes = []
    for size in (10, 10_000):
        model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], [call("locate", "n1")])
        session_id = world.started(agent(model, tools=[locate]))
        crowd(session_id, size)
        with statements() as answering:
            world.submit(session_id, "c1", result="here")
        with statements() as completing:
            world.submit(session_id, "c2", result="here")
        with statements() as registering:
            advance_run(current_run(session_id).id, clock=world.clock)
        assert PendingCall.objects.get(root_id=session_id, tool_call_id="n1").state == "awaiting"
        assert PendingCall.objects.filter(root_id=session_id, state="awaiting").count() == size + 1
        shapes.append([(len(sent), len(sent.writes)) for sent in (answering, completing, registering)])
    assert shapes[0] == shapes[1]
