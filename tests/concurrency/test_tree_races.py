"""Races within one tree of sessions: siblings that register, finish or are answered at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from uuid import UUID

import pytest
from django.db import connection

from helix.agents import FINISH_TOOL_NAME, SubAgent
from helix.models import CallOwnership, PendingCall, Run, Session
from helix.services.advance import advance_run
from helix.waypoints import Waypoint
from tests.fixtures import AgentMaker
from tests.kit.interleave import BOTH_ORDERS, Side, actors, meet
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import child_agent, locate
from tests.kit.world import World, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)

SIBLINGS = 50


def finish(value: int) -> object:
    return call(FINISH_TOOL_NAME, n=value)


def held_child(name: str, *pieces: object) -> tuple[SubAgent, ModelGate]:
    """A sub-agent whose first reply is held at its very end; its second, if it comes to that, finishes with 1."""
    gate = ModelGate()
    return child_agent(name, ScriptedModel([*pieces, gate.hold()], [finish(1)]), tools=[locate]), gate


def delegating(world: World, agent: AgentMaker, model: ScriptedModel, children: Iterable[SubAgent], **options) -> UUID:  # type: ignore[no-untyped-def]
    """A root whose first step was committed: its children are queued and nobody works on them yet."""
    session_id = world.start(agent(model, sub_agents=list(children), **options))
    advance_run(current_run(session_id).id, clock=world.clock)
    world.drop_hints()
    return session_id


def run_of_child(root_id: UUID, call_id: str) -> UUID:
    run_id = Session.objects.get(root_id=root_id, parent_call__tool_call_id=call_id).current_run_id
    assert run_id is not None
    return run_id


def work_on(world: World, run_id: UUID, gate: ModelGate, *, transaction: int = 1) -> Side:
    return Side(lambda: advance_run(run_id, clock=world.clock), gate=gate, transaction=transaction)


@BOTH_ORDERS
def test_siblings_that_register_at_once_are_both_present(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-12, R-193, R-196: each has its own place in the queue, in the order in which the rows were written."""
    (left, at_left), (right, at_right) = (held_child(name, call("locate", name[0])) for name in ("left", "right"))
    model = ScriptedModel(
        [call("subagent__left", "to-left", task="go"), call("subagent__right", "to-right", task="go")], ["done"]
    )
    session_id = delegating(world, agent, model, [left, right])
    meet(
        work_on(world, run_of_child(session_id, "to-left"), at_left),
        work_on(world, run_of_child(session_id, "to-right"), at_right),
        swapped=swapped,
    )
    queue = pending(session_id)
    assert [one.tool_call_id for one in queue] == (["r", "l"] if swapped else ["l", "r"])
    assert len({one.seq for one in queue}) == 2 and CallOwnership.objects.count() == 2
    assert session_of(session_id).status == "awaiting_client_tool"


def test_fifty_siblings_register_at_once_and_are_all_present(world: World, agent: AgentMaker) -> None:
    """B-03, R-196: a registration waits for its turn; it has no attempts that could be used up."""
    gates = [ModelGate() for _ in range(SIBLINGS)]
    children = [
        child_agent(f"s{number}", ScriptedModel([call("locate", f"c{number}"), gate.hold()]), tools=[locate])
        for number, gate in enumerate(gates)
    ]
    step = [call(f"subagent__s{number}", f"to-{number}", task="go") for number in range(SIBLINGS)]
    session_id = delegating(world, agent, ScriptedModel(step), children)
    ended: list[bool] = []

    def work(run_id: UUID) -> None:
        try:
            ended.append(advance_run(run_id, clock=world.clock))
        finally:
            connection.close()

    runs = [run_of_child(session_id, f"to-{number}") for number in range(SIBLINGS)]
    threads = [threading.Thread(target=work, args=[run_id], daemon=True) for run_id in runs]
    for thread in threads:
        thread.start()
    for gate in gates:
        gate.release()
    for thread in threads:
        thread.join()
    assert ended == [True] * SIBLINGS
    queue = pending(session_id)
    assert {one.tool_call_id for one in queue} == {f"c{number}" for number in range(SIBLINGS)}
    assert len({one.seq for one in queue}) == SIBLINGS == CallOwnership.objects.count()
    assert not Run.objects.filter(status__in=["failed", "running"]).exists()


@BOTH_ORDERS
def test_two_children_that_finish_at_once_cause_one_continuation(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """Q-26, R-209, R-142: the second to finish cannot count before the first has closed its own call."""
    (left, at_left), (right, at_right) = (held_child(name, finish(n)) for n, name in enumerate(("left", "right")))
    model = ScriptedModel(
        [call("subagent__left", "to-left", task="go"), call("subagent__right", "to-right", task="go")], ["done"]
    )
    session_id = delegating(world, agent, model, [left, right])
    # From the held reply on: its record, the start of the finishing body, and its end, which ends the child.
    sides = [
        work_on(world, run_of_child(session_id, "to-left"), at_left, transaction=3),
        work_on(world, run_of_child(session_id, "to-right"), at_right, transaction=3),
    ]
    with actors(*(side.act for side in sides)) as made:
        for side, actor in zip(sides, made, strict=True):
            side.approach(actor)
        first, second = reversed(made) if swapped else made
        first.until(Waypoint.CLOSED_MINE)
        second.aim(Waypoint.CLOSED_MINE)
        second.waits_for_lock()
        first.until(Waypoint.COUNTED_SIBLINGS)
        assert not Run.objects.filter(cause="continuation").exists()
        first.until(Waypoint.AFTER_COMMIT)
        second.arrives(Waypoint.CLOSED_MINE)
        assert not Run.objects.filter(cause="continuation").exists()
        second.until(Waypoint.AFTER_COMMIT)
    assert Run.objects.filter(cause="continuation").count() == 1
    world.drain()
    assert model.asked == 2 and model.results_seen() == {"to-left": '{"n":0}', "to-right": '{"n":1}'}
    assert len(events(session_id, "subagent_end")) == 2 and session_of(session_id).status == "idle"


@BOTH_ORDERS
def test_an_answer_at_the_root_and_a_registration_below_it_do_not_disturb_each_other(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-20, R-120, R-194, R-195: neither fails the turn; the barrier goes on waiting for the child's call."""
    child, gate = held_child("scout", call("locate", "below"))
    model = ScriptedModel([call("locate", "above"), call("subagent__scout", "to-scout", task="go")], ["done"])
    session_id = delegating(world, agent, model, [child], tools=[locate])
    run_id = run_of_child(session_id, "to-scout")
    answer, worked = meet(
        lambda: world.submit(session_id, "above", result="here"), work_on(world, run_id, gate), swapped=swapped
    )
    # While the child computes the answer names its run; once it waits too, the batch waits for that call.
    expected = {"kind": "awaiting_batch"} if swapped else {"kind": "deferred", "blockingRunId": str(run_id)}
    assert worked and answer == {"status": "accepted", "continuation": expected}
    assert [one.tool_call_id for one in pending(session_id)] == ["below"] and model.asked == 1
    world.submit(session_id, "below", result="there")
    world.drain()
    assert model.results_seen() == {"above": "here", "to-scout": '{"n":1}'} and model.asked == 2


@BOTH_ORDERS
def test_the_last_answer_and_the_end_of_a_child_cause_one_continuation(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-20, R-100, R-139, R-209: whoever closes the step queues what follows."""
    child, gate = held_child("scout", finish(7))
    model = ScriptedModel([call("locate", "above"), call("subagent__scout", "to-scout", task="go")], ["done"])
    session_id = delegating(world, agent, model, [child], tools=[locate])
    run_id = run_of_child(session_id, "to-scout")
    answer, _ = meet(
        lambda: world.submit(session_id, "above", result="here"),
        work_on(world, run_id, gate, transaction=3),
        swapped=swapped,
    )
    assert answer["continuation"]["kind"] == ("new_run" if swapped else "deferred")
    assert Run.objects.filter(cause="continuation", session_id=session_id).count() == 1
    world.drain()
    assert model.asked == 2 and model.results_seen() == {"above": "here", "to-scout": '{"n":7}'}
    assert set(results(session_id)) == {"above", "to-scout"}
    assert not PendingCall.objects.exclude(state="consumed").exists()
