"""Readers beside a writer: what they see between any two of its steps, and what the database refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection

from helix import conf, nudges, selectors
from helix.models import CallOwnership, CallTombstone, Message, PendingCall, Run, RunLease, StreamEvent
from helix.services.advance import advance_run
from helix.services.retention import sweep_tombstones
from helix.statuses import CALL_EXTERNAL, CALL_OPEN, RUN_CLAIMABLE, SESSION_AT_REST
from helix.waypoints import Waypoint
from tests.fixtures import AgentMaker
from tests.kit.interleave import BOTH_ORDERS, actors, meet
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import OWNER, World, current_run, pending, session_of

pytestmark = pytest.mark.django_db(transaction=True)


def after_first_query(pause: Callable[[], None]) -> Callable[..., Any]:
    """An execute wrapper that calls ``pause`` once, after the first row of the snapshot was read."""
    paused = False

    def wrap(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal paused
        answer = execute(sql, *rest)
        if sql.startswith("SELECT") and not paused:
            paused = True
            pause()
        return answer

    return wrap


@pytest.mark.postgres
@pytest.mark.parametrize("append_is_late", [True, False])
def test_a_snapshot_and_an_append_leave_neither_gap_nor_duplicate(
    world: World, agent: AgentMaker, append_is_late: bool
) -> None:
    """X-19, R-518, R-519: whatever committed inside the read is after its cursor, and nothing before it is missing."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))

    def append() -> None:
        with actors(lambda: world.submit(session_id, "c1", result=1)) as [writer]:
            assert writer.finish()["status"] == "accepted"

    if append_is_late:
        with connection.execute_wrapper(after_first_query(append)):
            seen = selectors.snapshot_rows(OWNER, str(session_id))
    else:
        append()
        seen = selectors.snapshot_rows(OWNER, str(session_id))
    assert [one.tool_call_id for one in seen.pending] == (["c1"] if append_is_late else [])
    assert seen.root.status == ("awaiting_client_tool" if append_is_late else "queued")
    after = selectors.events_after(session_id, seen.root.stream_sequence)
    assert [event.sequence for event in after] == list(
        range(seen.root.stream_sequence + 1, session_of(session_id).stream_sequence + 1)
    )
    assert ("call_answered" in {event.type for event in after}) == append_is_late


def test_a_reader_never_sees_half_of_a_commit(world: World, agent: AgentMaker) -> None:
    """B-07, R-042, Q-05, Q-06: at every point of a whole turn the run, the calls and the status agree."""
    bodies = Bodies()
    model = ScriptedModel([call("count", "s1", number=1), call("locate", "c1"), call("pay", "p1", number=2)], ["done"])
    tools = [locate, bodies.tool("count"), bodies.tool("pay", require_approval=True)]
    session_id = world.start(agent(model, tools=tools))
    seen: set[str] = set()

    def whole_turn() -> None:
        world.drain()
        world.submit(session_id, "c1", result=1)
        world.decide(PendingCall.objects.get(tool_call_id="p1"), principal=OWNER)
        world.drain()

    with actors(whole_turn) as [actor]:
        for _ in actor.steps():
            seen.add(agreed_status(session_id))
    assert seen == {"queued", "running", "awaiting_client_tool", "idle"} and model.asked == 2


def agreed_status(session_id: UUID) -> str:
    """The session's status, when the rows that one reader sees bear it out."""
    session, run = session_of(session_id), current_run(session_id)
    waits = PendingCall.objects.filter(root_id=session_id, state="awaiting").exists()
    assert waits == (session.status == "awaiting_client_tool"), session.status
    assert waits <= (run.status == "suspended_client_tool"), run.status
    leased = RunLease.objects.filter(run=run).exists()
    assert leased == (run.status == "running")
    assert session.status in SESSION_AT_REST or leased or waits or run.status in RUN_CLAIMABLE
    numbers = StreamEvent.objects.filter(root_id=session_id).order_by("sequence").values_list("sequence", flat=True)
    assert list(numbers) == list(range(1, session.stream_sequence + 1))
    external = PendingCall.objects.filter(root_id=session_id, kind__in=CALL_EXTERNAL, state__in=CALL_OPEN)
    assert CallOwnership.objects.filter(root_id=session_id).count() == external.count()
    return session.status


def test_a_submit_from_the_first_reader_of_a_call_finds_it(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-06, R-032, R-042: a call is registered before anybody can have heard of it."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    answers: list[dict[str, Any]] = []

    def read_on(root_id: UUID, sequence: int) -> None:
        starts = StreamEvent.objects.filter(root_id=root_id, type="tool_start")
        if starts.exists() and not answers:
            answers.append({})
            answers[0] = world.submit(root_id, starts[0].payload["toolCallId"], result="at once")

    monkeypatch.setattr(nudges, "send_to_readers", read_on)
    session_id = world.start(agent(model, tools=[locate]))
    world.drain()
    assert answers[0]["status"] == "accepted" and answers[0]["continuation"]["kind"] == "new_run"
    assert model.results_seen() == {"c1": "at once"} and session_of(session_id).status == "idle"


@BOTH_ORDERS
def test_answers_at_the_limit_do_not_block_each_other(world: World, agent: AgentMaker, swapped: bool) -> None:
    """B-13, R-290: two of the largest answers of one batch, at once."""
    largest = "x" * (conf.get("HELIX_MAX_RESULT_BYTES") - 2)
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answers = meet(
        lambda: world.submit(session_id, "c1", result=largest),
        lambda: world.submit(session_id, "c2", result=largest),
        swapped=swapped,
    )
    assert [answer["status"] for answer in answers] == ["accepted", "accepted"]
    world.drain()
    assert model.results_seen() == {"c1": largest, "c2": largest} and model.asked == 2


def test_an_answer_does_not_wait_for_a_worker(world: World, agent: AgentMaker) -> None:
    """B-23, R-121, R-141: the only worker is held by another conversation's model."""
    gate = ModelGate()
    busy = world.start(agent(ScriptedModel(["slow", gate.hold()])))
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.start(agent(model, tools=[locate]))
    held = world.hints.pop(0)
    assert current_run(busy).id == held
    world.drain()
    with actors(lambda: advance_run(held, clock=world.clock)) as [worker]:
        worker.aim(None)
        gate.entered.wait()
        answer = world.submit(session_id, "c1", result=1)
        assert answer["continuation"]["kind"] == "new_run" and current_run(session_id).status == "queued"
        assert current_run(busy).status == "running"
        gate.release()
    world.drain()
    assert (session_of(busy).status, session_of(session_id).status) == ("idle", "idle")


@pytest.mark.parametrize("clear_is_held", [pytest.param(True, marks=pytest.mark.postgres), False])
def test_a_sweep_beside_a_clear_loses_no_live_tombstone(world: World, agent: AgentMaker, clear_is_held: bool) -> None:
    """X-13, R-260, R-265: the old one goes, the one that is being written stays."""
    model = ScriptedModel([call("locate", "old")], ["done"], [call("locate", "new")], ["done"])
    session_id = world.started(agent(model, tools=[locate], completed_tombstone_retention_ms=1000))
    world.submit(session_id, "old", result=1)
    world.drain()
    world.send(session_id, "again")
    world.drain()
    world.submit(session_id, "new", result=2)
    run_id = current_run(session_id).id
    now = world.tick(seconds=1)
    with actors(lambda: advance_run(run_id, clock=world.clock)) as [worker]:
        if clear_is_held:
            worker.until(Waypoint.BEFORE_WRITE, 2)
        assert sweep_tombstones(now=now) == 1
    assert [stone.tool_call_id for stone in CallTombstone.objects.all()] == ["new"]
    assert world.submit(session_id, "new", result=3)["status"] == "already_completed"
    assert not pending(session_id)


def test_a_second_result_row_is_impossible(world: World, agent: AgentMaker) -> None:
    """B-11, R-142, R-269: the database refuses a second result and a second continuation; other rows it takes."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    last = Message.objects.filter(session_id=session_id).order_by("-position")[0].position

    def insert(tool_call_id: str) -> None:
        Message.objects.create(
            session_id=session_id, position=last + 1, role="tool", tool_call_id=tool_call_id, parts=[]
        )

    with pytest.raises(IntegrityError, match=r"one_result|UNIQUE"):
        insert("c1")
    insert("another")
    continuation = Run.objects.get(cause="continuation")
    continuation.pk, continuation.number = None, 9
    with pytest.raises(IntegrityError, match=r"one_continuation|UNIQUE"):
        continuation.save(force_insert=True)
