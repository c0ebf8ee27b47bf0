"""A batch: when it is complete, who may say so, and that each answer is used once (5.D)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from helix import selectors, wire
from helix.agents import ToolContext, tool
from helix.models import PendingCall
from helix.statuses import StopKind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import (
    OWNER,
    World,
    call_named,
    current_run,
    events,
    pending,
    results,
    sweeping_since,
)

pytestmark = pytest.mark.django_db

PARTIAL = {"kind": "awaiting_batch"}
hasty = replace(locate, name="hasty", client_tool_timeout_ms=60_000)
patient = replace(locate, name="patient", client_tool_timeout_ms=None)


def batch_of(world: World, agent: AgentMaker, *names: str, **options: Any) -> tuple[UUID, ScriptedModel]:
    """A session that waits for one call per name; the ids are c0, c1 and so on."""
    model = ScriptedModel([call(name, f"c{n}") for n, name in enumerate(names)], ["done"])
    return world.started(agent(model, tools=[locate, hasty, patient], **options)), model


# -- complete or partial -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_every_submit_but_the_last_waits_for_its_batch(world: World, agent: AgentMaker, order: tuple[int, ...]) -> None:
    """R-100, R-105, R-108, C-002, C-009: in any order, without a run before the last answer."""
    session_id, model = batch_of(world, agent, "locate", "locate", "locate")
    for number in order[:-1]:
        assert world.submit(session_id, f"c{number}", result=number)["continuation"] == PARTIAL
        world.sweep()
        world.drain()
        assert model.asked == 1 and current_run(session_id).status == "suspended_client_tool"
    assert world.submit(session_id, f"c{order[-1]}", result=order[-1])["continuation"]["kind"] == "new_run"
    world.drain()
    assert list(model.results_seen().items()) == [("c0", "0"), ("c1", "1"), ("c2", "2")]


def test_answering_one_leaves_its_siblings_as_they_were(world: World, agent: AgentMaker) -> None:
    """C-003, C-008: the same ids, rows and texts; two calls of one tool are two calls."""
    session_id, _ = batch_of(world, agent, "locate", "locate", "patient")
    before = {row["tool_call_id"]: row for row in PendingCall.objects.values()}
    world.submit(session_id, "c1", result=1)
    after = {row["tool_call_id"]: row for row in PendingCall.objects.values()}
    assert [p.tool_call_id for p in pending(session_id)] == ["c0", "c2"]
    assert [before[key] == after[key] for key in ("c0", "c1", "c2")] == [True, False, True]


def test_no_timer_of_ours_ends_a_wait_and_only_a_lapsed_deadline_counts_as_an_answer(
    world: World, agent: AgentMaker
) -> None:
    """R-107, R-100, C-017: the lapse is a timeout result; the call without a deadline is waited for."""
    session_id, model = batch_of(world, agent, "hasty", "patient")
    sweeping_since(world.tick(seconds=59))
    world.sweep()
    assert len(pending(session_id)) == 2
    sweeping_since(world.tick(seconds=1))
    world.sweep()
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"] and model.asked == 1
    assert world.submit(session_id, "c1", result=1)["continuation"]["kind"] == "new_run"
    world.drain()
    assert results(session_id)["c0"]["errorCode"] == "client_tool_timeout" and model.asked == 2


def test_the_answer_that_completes_a_batch_stores_the_lapses_of_its_siblings(world: World, agent: AgentMaker) -> None:
    """R-106, R-107: judged at the answer's instant, without a sweep; a tick earlier it is partial."""
    for seconds, kind in ((59, "awaiting_batch"), (60, "new_run")):
        session_id, _ = batch_of(world, agent, "hasty", "patient")
        sweeping_since(world.tick(seconds=seconds))
        assert world.submit(session_id, "c1", result=1)["continuation"]["kind"] == kind


def test_two_readers_at_different_times_agree_on_readiness(world: World, agent: AgentMaker) -> None:
    """R-106: what the batch was at its last answer is what a repeat is told, whenever it asks; then the sweep acts."""
    session_id, _ = batch_of(world, agent, "hasty", "patient")
    world.submit(session_id, "c1", result=1)
    told = []
    for seconds in (1, 58, 2, 3600):
        sweeping_since(world.tick(seconds=seconds))
        told.append(world.submit(session_id, "c1", result=1)["continuation"])
    assert told == [PARTIAL] * 4
    world.sweep()
    assert world.submit(session_id, "c1", result=1)["continuation"]["kind"] == "new_run"


def test_a_mixed_batch_is_completed_by_any_mix_of_answers(world: World, agent: AgentMaker) -> None:
    """R-114, R-041, C-011: results, errors, verdicts and a lapse; each call has exactly one result."""
    bodies = Bodies()
    pay = bodies.tool("pay", require_approval=True)
    names = ("locate", "pay", "locate", "pay", "hasty")
    model = ScriptedModel([call(name, f"c{n}") for n, name in enumerate(names)], ["done"])
    session_id = world.started(agent(model, tools=[locate, hasty, pay]))
    first, second = (row for row in pending(session_id) if row.tool_name == "pay")
    sweeping_since(world.tick(seconds=60))
    assert world.submit(session_id, "c0", error="no GPS")["continuation"] == PARTIAL
    assert world.decide(second, approved=False)["continuation"] == PARTIAL
    assert world.decide(first)["continuation"] == PARTIAL
    assert world.submit(session_id, "c2", result=[1])["continuation"]["kind"] == "new_run"
    world.drain()
    assert list(model.results_seen()) == [f"c{n}" for n in range(5)] and model.asked == 2
    codes = [results(session_id)[f"c{n}"]["errorCode"] for n in range(5)]
    assert codes == [None, None, None, "approval_denied", "client_tool_timeout"]
    assert bodies.ran == [("pay", 0)]


def test_a_step_waits_for_its_children_too(world: World, agent: AgentMaker) -> None:
    """R-100: its own calls are answered, the child's is not; then the other way round."""
    for first, last in (("c1", "k1"), ("k1", "c1")):
        child_model = ScriptedModel([call("locate", "k1")], [call("__finish__")])
        child = child_agent(f"child-{first}", child_model, tools=[locate])
        model = ScriptedModel([call("locate", "c1"), call(child.tool_name, "d1", task="t")], ["done"])
        session_id = world.started(agent(model, tools=[locate], sub_agents=[child]))
        world.submit(session_id, first, result=1)
        world.sweep()
        world.drain()
        assert model.asked == 1
        world.submit(session_id, last, result=1)
        world.drain()
        assert model.asked == 2 and list(model.results_seen()) == ["c1", "d1"]


@pytest.mark.parametrize("giving_up", ["message", "errors", "stop"])
def test_a_batch_is_given_up_by_a_message_by_errors_or_by_a_stop(
    world: World, agent: AgentMaker, giving_up: str
) -> None:
    """R-109."""
    session_id, model = batch_of(world, agent, "locate", "patient")
    if giving_up == "message":
        world.send(session_id, "never mind", abandon_pending=True)
    elif giving_up == "errors":
        for number in ("c0", "c1"):
            world.submit(session_id, number, error="client_tool_abandoned")
    else:
        world.stop(session_id, StopKind.INTERRUPT)
    world.drain()
    assert not pending(session_id)
    code = "run_stopped" if giving_up == "stop" else "client_tool_abandoned"
    assert [part["errorCode"] for part in results(session_id).values()] == [code, code]
    assert model.asked == (1 if giving_up == "stop" else 2)


# -- once --------------------------------------------------------------------------------------------------------------


def test_every_reader_is_shown_every_open_call(world: World, agent: AgentMaker) -> None:
    """C-001, C-006: snapshot, status and the queue name all three, each by an id of its own."""
    session_id, _ = batch_of(world, agent, "locate", "locate", "patient")
    rows = selectors.snapshot_rows(OWNER, str(session_id))
    shown = [
        wire.snapshot(rows, world.now)["pendingTools"],
        wire.status(rows)["pendingCalls"],
        [{"toolCallId": row.tool_call_id} for row in pending(session_id)],
    ]
    assert [[one["toolCallId"] for one in calls] for calls in shown] == [["c0", "c1", "c2"]] * 3


@pytest.mark.django_db(transaction=True)
def test_twenty_answers_at_once_are_twenty_results(world: World, agent: AgentMaker) -> None:
    """C-016: no last writer wins; one of them completes the batch, and the model reads all."""
    session_id, model = batch_of(world, agent, *["locate"] * 20)

    def submit(number: int) -> Any:
        try:
            return world.submit(session_id, f"c{number}", result=number)["continuation"]["kind"]
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=20) as pool:
        kinds = list(pool.map(submit, range(20)))
    assert sorted(kinds) == ["awaiting_batch"] * 19 + ["new_run"]
    world.drain()
    assert model.results_seen() == {f"c{n}": str(n) for n in range(20)} and model.asked == 2


def test_what_ran_before_the_pause_does_not_run_again_after_it(world: World, agent: AgentMaker) -> None:
    """C-004, C-010: two waits in the step of a body; it ran once, whichever wait ended first."""
    ran: list[str] = []

    @tool
    def book(context: ToolContext) -> str:
        """Book it."""
        ran.append(context.tool_call_id)
        return "booked"

    model = ScriptedModel([call("book", "s1"), call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[book, locate]))
    for number in ("c2", "c1"):
        world.submit(session_id, number, result=1)
        world.drain()
    assert ran == ["s1"] and model.results_seen()["s1"] == "booked"


def test_an_answer_is_used_for_its_own_call_only(world: World, agent: AgentMaker) -> None:
    """C-005: the next call of the same tool asks again."""
    bodies = Bodies()
    asks = [[call("pay", "p1", number=1)], [call("pay", "p2", number=1)], ["done"]]
    session_id = world.started(agent(ScriptedModel(*asks), tools=[bodies.tool("pay", require_approval=True)]))
    world.decide(call_named(session_id, "pay"))
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["p2"] and bodies.ran == [("pay", 1)]
    assert [e["toolCallId"] for e in events(session_id, "tool_approval_request")] == ["p1", "p2"]
