"""The barrier of a run tells the truth: working, waiting for somebody outside, or finished (liveness 2 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from helix import nudges
from helix.agents import FINISH_TOOL_NAME, tool
from helix.loop import ModelError
from helix.loop.registry import REGISTRY
from helix.models import Message, PendingCall, Run, Session
from helix.rows.holdings import HOLDINGS
from helix.services.advance import advance_run, driver
from helix.services.barrier import Settled, settled_for
from helix.statuses import CALL_OPEN, RUN_FINAL
from helix.waypoints import Waypoint, listening
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, working
from tests.kit.interleave import actors
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import World, current_run, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)


def barrier(session_id: UUID) -> Settled:
    """Of the conversation's first run, through whatever took it over."""
    return settled_for(Run.objects.get(session_id=session_id, number=1).id)


def test_an_outstanding_model_request_keeps_it_open(world: World, agent: AgentMaker) -> None:
    """Q-04, Q-24: and only its own; the neighbour with real finished work is settled."""
    gate = ModelGate()
    done = world.started(agent(ScriptedModel(["done"])))
    held = world.start(agent(ScriptedModel(["begun", gate.hold()])))
    world.drop_hints()
    with working(world, current_run(held).id, gate):
        assert (barrier(held), barrier(done)) == (Settled.WORKING, Settled.FINISHED)
        assert Message.objects.filter(session_id=done, role="assistant").exists()
    assert barrier(held) is Settled.FINISHED


def test_a_held_body_keeps_it_open(world: World, agent: AgentMaker) -> None:
    """Q-24, Q-53, Q-30: until its result is committed."""
    gate = BodyGate()
    session_id = world.start(agent(ScriptedModel([call("hold", "s1")], ["done"]), tools=[gate.tool()]))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate):
        assert barrier(session_id) is Settled.WORKING
    assert barrier(session_id) is Settled.FINISHED and results(session_id)["s1"]["text"] == "held"


@pytest.mark.parametrize("requires_approval", [False, True])
def test_waiting_is_not_finished_and_not_working(world: World, agent: AgentMaker, requires_approval: bool) -> None:
    """Q-33, T-3: an open client call or approval is somebody else's move."""
    bodies = Bodies()
    asked = bodies.tool("pay", require_approval=True) if requires_approval else locate
    session_id = world.started(agent(ScriptedModel([call(asked.name, "c1")], ["done"]), tools=[asked]))
    assert barrier(session_id) is Settled.WAITING
    if requires_approval:
        world.decide(PendingCall.objects.get())
    else:
        world.submit(session_id, "c1", result=1)
    assert barrier(session_id) is Settled.WORKING
    world.drain()
    assert barrier(session_id) is Settled.FINISHED


def test_a_batch_that_is_left_to_its_caller_waits(world: World, agent: AgentMaker) -> None:
    """Q-33: complete, and nobody of ours owes anything."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], continue_on_submit=False))
    world.submit(session_id, "c1", result=1)
    assert barrier(session_id) is Settled.WAITING
    world.resume(session_id)
    assert barrier(session_id) is Settled.WORKING


@contextmanager
def at_every_commit(look: Callable[[], None]) -> Iterator[list[int]]:
    """Look at the rows after each commit of this process; the list says how often."""
    looked: list[int] = []

    def tell(point: Waypoint) -> None:
        if point == Waypoint.AFTER_COMMIT:
            looked.append(1)
            look()

    with listening(tell):
        yield looked


def test_it_never_holds_too_early_and_what_it_shows_is_final(world: World, agent: AgentMaker) -> None:
    """Q-05, Q-06, Q-08, Q-33: looked at after every commit of a turn with a body, a child and its continuations."""
    bodies = Bodies()
    child = child_agent(
        "scout",
        ScriptedModel([call("count", "s9", number=9)], [call(FINISH_TOOL_NAME, n=1)]),
        tools=[bodies.tool("count")],
    )
    model = ScriptedModel(
        [call("count", "s1", number=1), call("subagent__scout", "d1", task="go")], ["more"], ["never asked"]
    )
    session_id = world.start(agent(model, tools=[bodies.tool("count")], sub_agents=[child]))
    seen: list[Settled] = []

    def look() -> None:
        seen.append(barrier(session_id))
        runs = Run.objects.filter(session__root_id=session_id, superseded_by=None)
        is_over = all(run.status in RUN_FINAL for run in runs)
        assert (seen[-1] is Settled.FINISHED) == is_over
        if seen[-1] is Settled.FINISHED:
            # One commit: the last message, the terminal status and the closed calls.
            assert session_of(session_id).status == "idle"
            assert Message.objects.filter(session_id=session_id).order_by("-position")[0].parts[0]["text"] == "more"
            assert not PendingCall.objects.filter(root_id=session_id, state__in=CALL_OPEN).exists()

    with at_every_commit(look) as looked:
        world.drain()
    assert len(looked) > 10 and seen[-1] is Settled.FINISHED and set(seen[:-1]) == {Settled.WORKING}


def explode(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of paper")


@tool
def break_down() -> str:
    """Break down."""
    raise RuntimeError("out of paper")


@pytest.mark.parametrize("kind", ["body", "child", "model"])
def test_failing_work_leaves_nothing_behind(world: World, agent: AgentMaker, kind: str) -> None:
    """Q-07: the registry is as empty as after success, and the barrier does not raise."""
    refuse = ModelError("refused", code="provider_error", retryable=False)
    child = child_agent("scout", ScriptedModel(refuse))
    replies: dict[str, list[Any]] = {
        "body": [[call("break_down", "s1")], ["done"]],
        "child": [[call("subagent__scout", "d1", task="go")], ["done"]],
        "model": [refuse],
    }
    session_id = world.started(agent(ScriptedModel(*replies[kind]), tools=[break_down], sub_agents=[child]))
    assert REGISTRY.executing() == () and HOLDINGS.all() == ()
    assert barrier(session_id) is Settled.FINISHED
    assert session_of(session_id).status == ("failed" if kind == "model" else "idle")


def test_an_error_is_committed_before_the_barrier_holds(world: World, agent: AgentMaker) -> None:
    """Q-10: a held model call is released with an error."""
    gate = ModelGate()

    def reply(_: Any) -> Iterator[Any]:
        yield gate.hold()
        raise ModelError("refused", code="provider_error", retryable=False)

    session_id = world.start(agent(ScriptedModel(reply)))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        assert barrier(session_id) is Settled.WORKING
        gate.release()
        worker.end()
        assert barrier(session_id) is Settled.FINISHED
        assert current_run(session_id).error_code == "provider_error" and session_of(session_id).status == "failed"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (driver.notices, "take_in"),
        (driver, "complete_reply"),
        (driver, "prepare_calls"),
        (driver.finish, "commit_reply"),
        (driver.bodies, "execute_call"),
        (driver.bodies, "_record_body"),
        (driver.drain, "drain"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_an_unexpected_failure_of_the_driver_ends_the_run(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    """Q-11: at each write boundary. A run is never left running with nothing owed; its calls are closed."""
    bodies = Bodies()
    model = ScriptedModel([call("count", "s1", number=1), call("locate", "c1")], ["done"])
    session_id = world.start(agent(model, tools=[bodies.tool("count"), locate]))
    if name == "drain":
        world.drain()
        world.submit(session_id, "c1", result=1)
    monkeypatch.setattr(place, name, explode)
    world.drain()
    for _ in range(5):
        # A continuation that had asked for nothing starts again, within its budget.
        world.tick(seconds=30)
        world.sweep()
        world.drain()
    run = current_run(session_id)
    assert (run.status, session_of(session_id).status) == ("failed", "failed")
    assert run.error_code in ("framework_internal", "framework_auto_resume_exhausted")
    assert not PendingCall.objects.filter(state__in=("held", "awaiting", "executing")).exists()
    assert barrier(session_id) is Settled.FINISHED and HOLDINGS.all() == ()


def test_work_is_a_row_before_it_is_a_message(world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-12, Q-25: the hint raises and is lost; the barrier is open, and a later sweep completes the run."""
    with monkeypatch.context() as patch:
        patch.setattr(nudges, "send_to_worker", explode)
        patch.setattr(nudges, "_worker_breaker", nudges.Breaker())
        session_id = world.start(agent(ScriptedModel(["done"])))
    assert not world.hints and barrier(session_id) is Settled.WORKING
    world.tick(seconds=1)
    world.sweep()
    world.drain()
    assert barrier(session_id) is Settled.FINISHED


def test_no_bound_lies_on_how_much_a_run_may_do(world: World, agent: AgentMaker) -> None:
    """Q-09, Q-27: a thousand generations of continuations are followed to the last one."""
    session_id = world.started(agent(ScriptedModel(["done"])))
    first = current_run(session_id)
    more = [
        Run(session_id=session_id, number=number, turn=1, cause="continuation", status="suspended_client_tool")
        for number in range(2, 1002)
    ]
    Run.objects.bulk_create(more)
    for older, newer in zip([first, *more], more, strict=False):
        Run.objects.filter(pk=older.pk).update(superseded_by=newer, status="suspended_client_tool", ended_at=None)
    assert barrier(session_id) is Settled.WAITING
    Run.objects.filter(pk=more[-1].pk).update(status="queued")
    assert barrier(session_id) is Settled.WORKING


def test_a_drain_that_reaches_its_bound_raises(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-09, D-3, D-12: it never reports success with work left; the control is the same work within the bound."""
    echoing = agent(ScriptedModel(["done"]))
    for _ in range(50):
        world.start(echoing)
    with monkeypatch.context() as patch:
        patch.setattr(World, "MOST_DELIVERIES", 50)
        with pytest.raises(AssertionError, match="no rest after 50"):
            for _ in range(2):
                world.start(echoing)
            world.drain()
    assert world.drain() == 2


@pytest.mark.postgres
def test_a_write_that_has_begun_keeps_it_open(world: World, agent: AgentMaker) -> None:
    """Q-26: the child's last write has closed its call and is not committed. On SQLite the reader waits for it."""
    child = child_agent("scout", ScriptedModel([call(FINISH_TOOL_NAME, n=1)]))
    session_id = world.start(
        agent(ScriptedModel([call("subagent__scout", "d1", task="go")], ["done"]), sub_agents=[child])
    )
    advance_run(current_run(session_id).id, clock=world.clock)
    world.drop_hints()
    run_id = current_run(Session.objects.get(parent_id=session_id).id).id
    with actors(lambda: advance_run(run_id, clock=world.clock)) as [worker]:
        worker.until(Waypoint.CLOSED_MINE)
        assert barrier(session_id) is Settled.WORKING
        worker.finish()
    assert barrier(session_id) is Settled.WORKING and current_run(session_id).cause == "continuation"
    world.drain()
    assert barrier(session_id) is Settled.FINISHED


def test_every_row_of_work_names_its_run() -> None:
    """Q-23: the column cannot be empty, so an insert that forgot it fails."""
    assert not PendingCall._meta.get_field("run").null and not PendingCall._meta.get_field("emitted_by").null
    assert not Run._meta.get_field("session").null and not Message._meta.get_field("session").null


def test_an_operator_reads_how_a_turn_stands(world: World, agent: AgentMaker) -> None:
    """R-667, Q-33: of the whole turn, its sub-agents included."""
    child = child_agent(
        "scout", ScriptedModel([call("locate", "below")], [call(FINISH_TOOL_NAME, n=1)]), tools=[locate]
    )
    model = ScriptedModel([call("subagent__scout", "d1", task="go")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child]))
    for answer in ("waiting", "finished"):
        said = StringIO()
        call_command("helix_explain", str(session_id), stdout=said)
        assert f"its present turn, sub-agents included: {answer}" in said.getvalue()
        world.submit(session_id, "below", result=1)
        world.drain()
