"""State and its versions: one commit, and no writer overwrites another unseen (5.R)."""

from __future__ import annotations

import pytest

from helix import nudges, selectors
from helix.agents import ToolContext, tool
from helix.errors import StaleStateError
from helix.models import Session
from helix.rows.tree import locked
from helix.services.advance import bodies as body_service
from helix.statuses import EventType, SessionStatus
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, call_named, events, results, session_of

pytestmark = pytest.mark.django_db


@tool
def note(where: ToolContext, text: str) -> str:
    """Write a note."""
    where.set_state("note", text)
    return text


def test_a_body_s_state_and_its_result_are_one_commit(world: World, agent: AgentMaker) -> None:
    """R-561, R-420: a worker that dies before the commit leaves neither; with it there are both, and the event."""
    model = ScriptedModel([call("note", "n1", text="one")], [call("note", "n2", text="two")], ["done"])
    session_id = world.start(agent(model, tools=[note]))
    with worker_dies_in(body_service, "consume"):
        world.drain()
    assert session_of(session_id).state == {} and results(session_id) == {}
    world.wait(seconds=31)
    world.drain()
    assert results(session_id)["n1"]["errorCode"] == "interrupted" and results(session_id)["n2"]["text"] == "two"
    assert session_of(session_id).state == {"note": "two"}
    assert [told["patch"] for told in events(session_id, "state_patch")] == [
        [{"op": "add", "path": "/note", "value": "two"}]
    ]


def test_a_change_of_status_answers_with_the_version_that_it_made(world: World, agent: AgentMaker) -> None:
    """R-560: one more for each change of status or state."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    before = session_of(session_id)
    world.drain()
    after = session_of(session_id)
    assert (before.status, after.status) == ("queued", "idle") and after.version > before.version
    with locked(session_id, world.now) as tree:
        tree.root.status = SessionStatus.COMPLETED
    assert tree.root.version == after.version + 1 == session_of(session_id).version


def test_a_writer_that_takes_no_lock_is_noticed_and_never_overwritten(world: World, agent: AgentMaker) -> None:
    """R-563, R-560: the refusal says what the row is now; nothing of the transaction is kept."""
    session_id = world.started(agent(ScriptedModel(["done"])))
    version, sequence = session_of(session_id).version, session_of(session_id).stream_sequence

    def meanwhile() -> None:
        Session.objects.filter(pk=session_id).update(state={"by": "another"}, version=version + 1)

    with pytest.raises(StaleStateError) as refused, locked(session_id, world.now) as tree:
        tree.emit(EventType.CUSTOM, tree.root)
        tree.root.state = {"by": "me"}
        meanwhile()
    assert refused.value.as_body()["code"] == "state_concurrency_conflict" and refused.value.retryable
    assert (refused.value.fields["status"], refused.value.fields["version"]) == ("idle", version + 1)
    assert session_of(session_id).stream_sequence == sequence and not events(session_id, "custom")


def test_answers_and_ownership_move_no_version(world: World, agent: AgentMaker) -> None:
    """R-564: only what changes the session's status or state does: the last answer of the batch."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    version = session_of(session_id).version
    world.submit(session_id, "c1", result=1)
    assert session_of(session_id).version == version and call_named(session_id, "locate").state == "awaiting"
    world.submit(session_id, "c2", result=2)
    assert session_of(session_id).status == "queued" and session_of(session_id).version == version + 1


def test_a_stream_needs_no_second_store(world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-570: whoever would tell readers is away all the time; the rows are the stream, without a gap."""

    def away(*_: object) -> None:
        raise ConnectionError("no such server")

    monkeypatch.setattr(nudges, "send_to_readers", away)
    session_id = world.started(agent(ScriptedModel([call("note", text="one")], ["done"]), tools=[note]))
    head = session_of(session_id).stream_sequence
    assert [one.sequence for one in selectors.events_after(session_id, 0)] == list(range(1, head + 1))
    assert session_of(session_id).status == "idle"
