"""A worker dies at every named point of a whole turn; what it committed stands, and another one goes on (X-14, X-15).

The death is an exception that nothing may catch, so that every point can be tried in turn without starting a process;
`test_killed_workers` kills real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from helix import conf, nudges
from helix.agents import FINISH_TOOL_NAME, Agent
from helix.loop import ModelRequest
from helix.models import CallTombstone, Message, PendingCall, Run, RunLease
from helix.services.advance import advance_run
from helix.waypoints import Waypoint, listening
from tests.fixtures import AgentMaker
from tests.kit.crash import WorkerDied
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OWNER, World, current_run, events, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)

PAST_THE_LEASE = timedelta(seconds=31)


class DeathAt:
    """Kills the worker when it passes its ``number``-th point; ``passed`` counts all that it passes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.passed = 0

    def __call__(self, point: Waypoint) -> None:
        self.passed += 1
        if self.passed == self.number:
            raise WorkerDied(point)


def work_until_death(world: World, death: DeathAt) -> bool:
    """Deliver hints until none is left, or until the death. True: the worker died."""
    try:
        with listening(death):
            world.drain()
    except WorkerDied:
        return True
    return False


def recover(world: World) -> None:
    """What a fleet does without any message: the lease runs out, the sweep finds the run, another worker takes it."""
    world.hints.clear()
    world.now += PAST_THE_LEASE
    world.sweep()
    world.drain()


def answering(request: ModelRequest) -> list[Any]:
    """The reply that the conversation calls for, however often a lost worker asked for it before."""
    if request.messages[-1].role == "tool":
        return ["done"]
    return [call("count", "s1", number=1), call("locate", "c1"), call("pay", "p1", number=2)]


def whole_turn_agent(agent: AgentMaker, bodies: Bodies, replay: str) -> Agent:
    tools = [
        locate,
        bodies.tool("count", replay=replay),
        bodies.tool("pay", replay=replay, require_approval=True),
    ]
    return agent(ScriptedModel(answering), tools=tools, client_tool_timeout_ms=None, approval_timeout_ms=None)


@pytest.mark.parametrize("replay", ["never", "safe"])
def test_a_worker_may_die_at_any_point_of_a_turn(world: World, agent: AgentMaker, replay: str) -> None:
    """B-09, R-016, R-137, R-269, R-468, R-469, L-8: no lost answer, no second body unless it may, no second result."""
    number, died = 0, True
    while died:
        number += 1
        died = False
        bodies = Bodies()
        session_id = world.start(whole_turn_agent(agent, bodies, replay))
        died |= work_until_death(world, DeathAt(number))
        recover(world)
        assert session_of(session_id).status == "awaiting_client_tool", number
        assert world.submit(session_id, "c1", result="here")["status"] == "accepted"
        assert world.decide(PendingCall.objects.get(root_id=session_id, tool_call_id="p1"))["status"] == "accepted"
        died |= work_until_death(world, DeathAt(number))
        recover(world)
        assert_told_everything(session_id, bodies, replay)
    # Two claims, the reply, a body, the suspension, the approved body, the drain, the last reply.
    assert number > 25


def assert_told_everything(session_id: UUID, bodies: Bodies, replay: str) -> None:
    assert session_of(session_id).status == "idle"
    seen = results(session_id)
    assert set(seen) == {"s1", "c1", "p1"} and seen["c1"]["text"] == "here"
    for key, name, value in (("s1", "count", 1), ("p1", "pay", 2)):
        ran = bodies.ran.count((name, value))
        if replay == "safe":
            assert 1 <= ran <= 2 and seen[key]["errorCode"] is None
        else:
            assert ran <= 1 and seen[key]["errorCode"] == (None if "text" in seen[key] else "interrupted")
    log = list(Message.objects.filter(session_id=session_id).order_by("position").values_list("role", flat=True))
    assert log == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert Run.objects.filter(session_id=session_id, cause="continuation").count() == 1
    assert len(events(session_id, "tool_end")) == 3
    assert not RunLease.objects.exists()


def test_a_death_inside_the_drain_leaves_no_half_of_it(world: World, agent: AgentMaker) -> None:
    """X-14, R-137, R-260, R-267: the results were written and not committed; the next drain writes them once."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.submit(session_id, "c2", result=2)

    def dies_after_the_results(point: Waypoint) -> None:
        if point == Waypoint.BEFORE_WRITE and Message.objects.filter(session_id=session_id, role="tool").exists():
            raise WorkerDied(point)

    with pytest.raises(WorkerDied), listening(dies_after_the_results):
        world.drain()
    assert not Message.objects.filter(role="tool").exists() and not CallTombstone.objects.exists()
    assert world.submit(session_id, "c1", result=9)["continuation"]["kind"] == "deferred"
    recover(world)
    assert model.results_seen() == {"c1": "1", "c2": "2"} and model.asked == 2
    assert Message.objects.filter(role="tool").count() == CallTombstone.objects.count() == 2


def test_an_answer_whose_hint_was_never_sent_is_continued_by_the_sweep(world: World, agent: AgentMaker) -> None:
    """X-15, Q-12, Q-25, R-134: the process died between the commit and the hint; no request is needed."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))

    def dies(point: Waypoint) -> None:
        if point == Waypoint.BEFORE_NUDGE:
            raise WorkerDied(point)

    with pytest.raises(WorkerDied), listening(dies):
        world.submit(session_id, "c1", result="here")
    assert not world.hints and current_run(session_id).status == "queued"
    world.tick(seconds=1)
    world.sweep()
    world.drain()
    assert model.results_seen() == {"c1": "here"} and session_of(session_id).status == "idle"


@pytest.mark.parametrize("hint", ["send_to_worker", "send_to_readers"])
def test_what_is_stored_is_accepted_whatever_happens_to_the_hint(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    """B-24, R-080: a broker that fails after the commit fails no request, and costs a sweep."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))

    def fails(*_: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(nudges, "_worker_breaker", nudges.Breaker())
    monkeypatch.setattr(nudges, "_reader_breaker", nudges.Breaker())
    monkeypatch.setattr(nudges, hint, fails)
    assert world.submit(session_id, "c1", result="here")["continuation"]["kind"] == "new_run"
    monkeypatch.setattr(nudges, "send_to_worker", world.hints.append)
    monkeypatch.setattr(nudges, "_worker_breaker", nudges.Breaker())
    world.tick(seconds=1)
    world.sweep()
    world.drain()
    assert model.results_seen() == {"c1": "here"}


def test_every_turn_ends_with_every_hint_dropped(world: World, agent: AgentMaker) -> None:
    """B-08, F-1: sweeps only, through server tools, an answer, an approval and a child."""
    bodies = Bodies()
    child = child_agent(
        "scout", ScriptedModel([call("locate", "below")], [call(FINISH_TOOL_NAME, n=1)]), tools=[locate]
    )
    model = ScriptedModel(
        [call("locate", "c1"), call("pay", "p1", number=2), call("subagent__scout", "d1", task="go")], ["done"]
    )
    tools = [locate, bodies.tool("pay", require_approval=True)]
    session_id = world.start(agent(model, tools=tools, sub_agents=[child]))

    def sweeps_only(is_over: Callable[[], bool]) -> None:
        for _ in range(20):
            if is_over():
                return
            world.drop_hints()
            world.tick(seconds=5)
            world.sweep()
            for run_id in list(world.hints):
                world.hints.remove(run_id)
                advance_run(run_id, clock=world.clock)
        raise AssertionError("the sweep did not find the work")

    sweeps_only(lambda: PendingCall.objects.filter(state="awaiting").count() == 3)
    for key in ("below", "c1"):
        world.submit(session_id, key, result=key)
    world.decide(PendingCall.objects.get(tool_call_id="p1"), principal=OWNER)
    sweeps_only(lambda: session_of(session_id).status == "idle")
    assert model.results_seen() == {"c1": "c1", "p1": "pay 2", "d1": '{"n":1}'} and bodies.ran == [("pay", 2)]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_run_is_taken_over_when_its_lease_has_run_out_and_not_before(
    world: World, agent: AgentMaker, is_late: bool
) -> None:
    """L-7, L-8, L-11, Q-42: the lost worker's epoch is over, and its late reply writes nothing."""
    model = ScriptedModel(["lost"], ["found"])
    session_id = world.start(agent(model))
    assert work_until_death(world, DeathAt(5))
    lost = current_run(session_id)
    world.hints.clear()
    life = timedelta(seconds=conf.get("HELIX_LEASE_SECONDS"))
    world.now += life if is_late else life - timedelta(milliseconds=1)
    world.sweep()
    assert (world.drain(), current_run(session_id).epoch - lost.epoch) == ((1, 1) if is_late else (0, 0))
    assert session_of(session_id).status == ("idle" if is_late else "running")
