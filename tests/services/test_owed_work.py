"""Between a decision and its effect nothing is owed to memory: rows bring it about, and a stop ends it at any depth."""

from __future__ import annotations

from uuid import UUID

import pytest

from helix.errors import AlreadyRunning, UnknownToolCall
from helix.models import CallOwnership, PendingCall, Run
from helix.rows import runs
from helix.services import entries
from helix.services.advance import bodies as body_service
from helix.services.advance import finish
from helix.services.advance.claim import claim_run
from helix.services.force import fail_body
from helix.statuses import CALL_OPEN, StopKind
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OPERATOR, OWNER, World, call_named, current_run, pending, results, said, session_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


def paying(world: World, agent: AgentMaker, bodies: Bodies) -> UUID:
    model = ScriptedModel([call("pay", "p1", number=5)], ["done"])
    return world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))


# -- decided, not yet carried out --------------------------------------------------------------------------------------


def test_the_decision_itself_wakes_a_worker(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """C-034, R-134: the hint leaves with the commit; no time has to pass and no sweep to run before the body does."""
    session_id = paying(world, agent, bodies)
    decided_at = world.now
    world.decide(call_named(session_id, "pay"))
    world.commit()
    assert world.hints == [current_run(session_id).id]
    world.drain()
    assert bodies.ran == [("pay", 5)] and world.now == decided_at


def test_a_decision_whose_hint_was_lost_is_carried_out_by_the_sweep(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """C-031, C-070, F-1: decided, not resumed, re-driven."""
    session_id = paying(world, agent, bodies)
    world.decide(call_named(session_id, "pay"))
    world.drop_hints()
    world.wait(seconds=5)
    world.drain()
    assert bodies.ran == [("pay", 5)] and session_of(session_id).status == "idle"


def test_a_repeat_after_a_lost_response_gets_the_stored_outcome_and_wakes_the_worker(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """C-029, R-065, R-261: the same continuation as the first time, and the turn does not sleep."""
    session_id = paying(world, agent, bodies)
    asked = call_named(session_id, "pay")
    first = world.decide(asked)
    world.drop_hints()
    second = world.decide(asked)
    assert second == {"status": "already_completed", "continuation": first["continuation"]}
    world.drain()
    assert bodies.ran == [("pay", 5)]


def test_a_beginning_that_is_repeated_is_one_run(world: World, agent: AgentMaker) -> None:
    """C-032, R-359: while the first is at work, not only when it is over."""
    model = ScriptedModel(["good day"])
    declared = agent(model)

    def begin() -> runs.Entered:
        return entries.start(
            principal=OWNER, agent_type=declared.name, message=said("hello"), session_id="mine", now=world.now
        )

    first = begin()
    assert begin() == first
    world.drain()
    assert model.asked == 1 and Run.objects.count() == 1


# -- fenced ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_was_replaced_writes_nothing(world: World, agent: AgentMaker) -> None:
    """C-036, L-2, Q-18: its epoch is over; the worker that took over ends the turn."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    run = current_run(session_id)
    lost = claim_run(run.id, now=world.now)
    assert lost is not None
    world.wait(seconds=31)
    world.drain()
    assert session_of(session_id).status == "idle" and current_run(session_id).epoch == lost.epoch + 1
    with pytest.raises(runs.LostFence):
        finish.complete_run(lost, world.now)


@pytest.mark.parametrize(("silence", "override"), [(0, True), (31, False)])
def test_a_running_body_is_given_up_only_when_its_worker_is_lost_or_by_an_explicit_word(
    world: World, agent: AgentMaker, bodies: Bodies, silence: int, override: bool
) -> None:
    """C-044, R-677: with a fresh lease it is refused; what the lost worker brings later is not recorded."""
    session_id = paying(world, agent, bodies)
    world.decide(call_named(session_id, "pay"))
    with worker_dies_in(body_service, "_record_body"):
        world.drain()

    def give_up(*, override: bool = False) -> None:
        fail_body(
            principal=OPERATOR,
            session_id=str(session_id),
            tool_call_id="p1",
            error="given up",
            now=world.now,
            door="test",
            override=override,
        )

    with pytest.raises(AlreadyRunning):
        give_up()
    world.tick(seconds=silence)
    give_up(override=override)
    world.drain()
    assert results(session_id)["p1"]["error"] == "given up" and bodies.ran == [("pay", 5)]
    assert session_of(session_id).status == "idle"


# -- an end is an end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(StopKind))
def test_the_end_of_a_run_closes_all_its_calls(world: World, agent: AgentMaker, bodies: Bodies, kind: StopKind) -> None:
    """C-035, C-042, R-417: nothing of it is pending, owned or open any more."""
    model = ScriptedModel([call("locate", "c1"), call("pay", "p1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate, bodies.tool("pay", require_approval=True)]))
    world.submit(session_id, "c1", result=1)
    assert world.stop(session_id, kind).outcome == "resolved"
    assert pending(session_id) == [] and not CallOwnership.objects.exists()
    assert not PendingCall.objects.filter(root_id=session_id, state__in=CALL_OPEN).exists()
    assert {part["errorCode"] for part in results(session_id).values()} == {"run_stopped"}


def test_after_a_stop_the_conversation_accepts_a_message_at_once(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """C-043, R-418: no orphan blocks it; the model reads a well-formed history."""
    session_id = paying(world, agent, bodies)
    world.stop(session_id)
    world.send(session_id, "something else")
    world.drain()
    assert session_of(session_id).status == "idle" and bodies.ran == []


def test_a_stop_reaches_every_depth(world: World, agent: AgentMaker) -> None:
    """C-045, Q-21, R-212, R-422: a grandchild that waits and one that thinks; nothing below goes on."""
    waiting = ScriptedModel([call("locate", "c1")], ["never"])
    middle = ScriptedModel([call("subagent__deepest", task="x")], ["never"])
    deepest = child_agent("deepest", waiting, tools=[locate])
    child = child_agent("between", middle, sub_agents=[deepest])
    session_id = world.started(
        agent(ScriptedModel([call("subagent__between", task="x")], ["never"]), sub_agents=[child])
    )
    assert [row.tool_call_id for row in pending(session_id)] == ["c1"]
    assert world.stop(session_id).outcome == "resolved"
    world.drain()
    assert pending(session_id) == [] and waiting.asked == middle.asked == 1
    assert set(Run.objects.values_list("status", flat=True)) == {"interrupted"}
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c1", result=1)
    assert refused.value.fields["reason"] == "run_stopped"


def test_a_gate_that_nobody_opens_is_left_by_a_stop(world: World, agent: AgentMaker) -> None:
    """C-045, Q-13: the model call itself is cut, between two pieces of its reply."""
    gate = ModelGate()

    def reply(request: object) -> list[object]:
        world.stop(session_id)
        return ["half", gate.hold(), "never"]

    session_id = world.start(agent(ScriptedModel(reply)))
    world.drain()
    assert session_of(session_id).status == "interrupted"
    assert current_run(session_id).status == "interrupted"
