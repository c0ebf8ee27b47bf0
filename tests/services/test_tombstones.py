"""Tombstones: a consumed call is recognised for as long as was promised, and no longer (5.I)."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from helix.errors import UnknownToolCall
from helix.models import CallOwnership, CallTombstone, Message
from helix.rows import calls
from helix.services import retention
from helix.services.advance import drain
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, client_tool, locate
from tests.kit.world import OPERATOR, OWNER, STRANGER, World, call_named, pending, session_of

pytestmark = pytest.mark.django_db

DAY = 24 * 3600


def answered(world: World, agent: AgentMaker, **options: object) -> UUID:
    """A conversation whose one client call was answered and consumed at this instant."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate], **options))
    world.submit(session_id, "c1", result=1)
    world.drain()
    return session_id


def reason(world: World, session_id: UUID) -> object:
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c1", result=1)
    return refused.value.fields["reason"]


# -- the age -----------------------------------------------------------------------------------------------------------


def test_a_repeat_is_recognised_for_a_day_and_then_it_is_unknown(world: World, agent: AgentMaker) -> None:
    """R-261, R-262, P-06, P-11: to the second, whether the row has been swept or not (R-262a)."""
    session_id = answered(world, agent)
    world.tick(seconds=DAY - 1)
    assert world.submit(session_id, "c1", result=1) == {
        "status": "already_completed",
        "continuation": {"kind": "consumed"},
    }
    world.tick(seconds=1)
    assert CallTombstone.objects.exists() and reason(world, session_id) == "expired"
    world.sweep()
    assert not CallTombstone.objects.exists() and reason(world, session_id) == "expired"


def test_a_sweep_takes_nothing_before_its_time(world: World, agent: AgentMaker) -> None:
    """R-262a, R-265."""
    session_id = answered(world, agent)
    world.wait(seconds=DAY - 1)
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"


def test_retention_of_nothing_means_no_tombstone(world: World, agent: AgentMaker) -> None:
    """R-007, R-262: the call is expired as soon as it is consumed; before that a repeat is recognised."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], completed_tombstone_retention_ms=0))
    world.submit(session_id, "c1", result=1)
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"
    world.drain()
    assert not CallTombstone.objects.exists() and reason(world, session_id) == "expired"


def test_clearing_a_call_never_looks_up_its_agent(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-264: the retention is a column of the call; the drain finds it although the agent's own has changed."""
    declared = agent(
        ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate], completed_tombstone_retention_ms=5000
    )
    session_id = world.started(declared)
    object.__setattr__(declared, "completed_tombstone_retention_ms", 9000)
    world.submit(session_id, "c1", result=1)
    world.drain()
    (stone,) = CallTombstone.objects.all()
    assert (stone.expires_at - stone.completed_at).total_seconds() == 5


# -- the row -----------------------------------------------------------------------------------------------------------


def test_a_tombstone_comes_with_the_end_of_its_ownership(world: World, agent: AgentMaker) -> None:
    """R-260, R-193: a worker that dies between the two leaves the ownership and no tombstone; the next writes both."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    world.submit(session_id, "c1", result=1)
    with worker_dies_in(calls, "_forget_ownership"):
        world.drain()
    assert (CallOwnership.objects.count(), CallTombstone.objects.count()) == (1, 0)
    world.wait(seconds=31)
    world.drain()
    assert (CallOwnership.objects.count(), CallTombstone.objects.count()) == (0, 1)


def test_a_tombstone_holds_no_answer(world: World, agent: AgentMaker) -> None:
    """R-266: ids, how it was settled, two instants."""
    session_id = answered(world, agent)
    names = {field.name for field in CallTombstone._meta.get_fields()}
    assert names == {"id", "root", "tool_call_id", "settled_as", "completed_at", "expires_at"}
    (stone,) = CallTombstone.objects.all()
    assert (stone.root_id, stone.tool_call_id, stone.settled_as) == (session_id, "c1", "result")


def test_every_way_to_end_an_external_call_leaves_its_word(world: World, agent: AgentMaker) -> None:
    """R-260, R-266: and server calls leave none."""
    bodies = Bodies()
    patient = client_tool("choose", client_tool_timeout_ms=None)
    tools = [locate, patient, bodies.tool("pay", require_approval=True), bodies.tool("add")]
    emitted = [call("locate", "lapsed"), call("choose", "failed"), call("add", "local")]
    emitted += [call("pay", one) for one in ("approved", "edited", "denied")]
    session_id = world.started(agent(ScriptedModel(emitted, [call("choose", "left")], ["done"]), tools=tools))
    world.wait(seconds=300)
    world.submit(session_id, "failed", error="no")
    by_id = {row.tool_call_id: row for row in pending(session_id)}
    world.decide(by_id["approved"])
    world.decide(by_id["edited"], editedArguments={"number": 1})
    world.decide(by_id["denied"], approved=False)
    world.drain()
    world.send(session_id, "go on", abandon_pending=True)
    world.drain()
    assert dict(CallTombstone.objects.values_list("tool_call_id", "settled_as")) == {
        "lapsed": "timeout",
        "failed": "error",
        "approved": "approved",
        "edited": "approved_edited",
        "denied": "denied",
        "left": "abandoned",
    }


def test_tombstones_of_child_calls_live_on_the_root(world: World, agent: AgentMaker) -> None:
    """R-198, R-261: a repeat at the root is recognised although the child has ended."""
    asking = ScriptedModel([call("locate", "c1")], [call("__finish__", city="Bern")])
    child = child_agent("finder", asking, tools=[locate])
    session_id = world.started(
        agent(ScriptedModel([call("subagent__finder", task="find")], ["done"]), sub_agents=[child])
    )
    world.submit(session_id, "c1", result=1)
    world.drain()
    assert session_of(session_id).status == "idle"
    assert CallTombstone.objects.get().root_id == session_id
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"


# -- the sweep ---------------------------------------------------------------------------------------------------------


def test_quiet_sessions_are_swept_too(world: World, agent: AgentMaker) -> None:
    """B-12, R-265: no traffic, one sweep, the row is gone."""
    answered(world, agent)
    world.wait(seconds=DAY)
    assert not CallTombstone.objects.exists()


def test_the_sweep_goes_in_batches_until_nothing_is_left(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-265: and leaves what is not due."""
    monkeypatch.setattr(retention, "BATCH", 2)
    for _ in range(5):
        answered(world, agent)
    world.tick(seconds=DAY)
    kept = answered(world, agent)
    assert retention.sweep_tombstones(now=world.now) == 2
    world.sweep()
    assert [stone.root_id for stone in CallTombstone.objects.all()] == [kept]


# -- answers to consumed calls -----------------------------------------------------------------------------------------


def test_a_submit_to_a_consumed_call_never_waits_for_its_run(world: World, agent: AgentMaker) -> None:
    """R-267, R-121, R-131, R-133: asked while the model is at work, it is answered at once, from the rows."""
    during: list[dict[str, object]] = []
    model = ScriptedModel(
        [call("locate", "c1")], lambda request: [during.append(world.submit(session_id, "c1", result=2)) or "done"]
    )
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    assert during == [{"status": "already_completed", "continuation": {"kind": "consumed"}}]
    assert model.results_seen() == {"c1": "1"}


def test_a_drain_never_appends_a_second_result(
    world: World, agent: AgentMaker, caplog: pytest.LogCaptureFixture
) -> None:
    """R-269, R-599: a call that has its result already keeps it; the skip is logged and the turn goes on."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    part = {"type": "tool_result", "toolCallId": "c1", "toolName": "locate", "text": "imported", "private": False}
    position = session_of(session_id).message_position + 1000
    Message.objects.create(
        session_id=session_id, position=position, role="tool", parts=[part], tool_call_id="c1", created_at=world.now
    )
    world.submit(session_id, "c1", result="second")
    with caplog.at_level(logging.WARNING, logger="helix.calls"):
        world.drain()
    assert model.results_seen() == {"c1": "imported"}
    assert Message.objects.filter(session_id=session_id, role="tool").count() == 1
    (record,) = [one for one in caplog.records if one.getMessage() == "client_tool.orphan_resolved"]
    assert (record.toolCallId, record.skippedAppend) == ("c1", True)  # type: ignore[attr-defined]
    assert call_named(session_id, "locate").state == "consumed"


def test_draining_again_writes_nothing(world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-269, F-7: a drain of what is drained finds no answered call."""
    once = drain.drain

    def twice(*arguments: object) -> None:
        once(*arguments)  # type: ignore[arg-type]
        once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(drain, "drain", twice)
    session_id = answered(world, agent)
    assert Message.objects.filter(session_id=session_id, role="tool").count() == 1
    assert CallTombstone.objects.count() == 1


def test_every_404_says_why_to_those_with_rights_and_nothing_to_others(world: World, agent: AgentMaker) -> None:
    """B-26, R-075, R-338, R-339: expired, run_stopped, never_existed; the other reasons have tests of their own."""
    expired = answered(world, agent, completed_tombstone_retention_ms=0)
    stopped = world.started(agent(ScriptedModel([call("locate", "c1")]), tools=[locate]))
    world.stop(stopped)
    never = world.started(agent(ScriptedModel(["hello"])))
    for session_id, expected in ((expired, "expired"), (stopped, "run_stopped"), (never, "never_existed")):
        for principal in (OWNER, OPERATOR):
            with pytest.raises(UnknownToolCall) as refused:
                world.submit(session_id, "c1", principal=principal, result=1)
            assert refused.value.as_body()["reason"] == expected
        with pytest.raises(UnknownToolCall) as refused:
            world.submit(session_id, "c1", principal=STRANGER, result=1)
        assert set(refused.value.as_body()) == {"status", "error", "code", "retryable"}
