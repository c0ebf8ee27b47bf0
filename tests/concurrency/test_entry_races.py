"""Races of entries and stops, both orders each: stop and continuation, two resumes, retry and message."""

from __future__ import annotations

from uuid import UUID

import pytest

from helix.errors import AlreadyRunning, HelixError, NotResumable
from helix.loop import ModelError
from helix.models import Message, Run
from helix.services.advance import advance_run
from helix.services.retry import retry_run
from helix.statuses import StopKind
from helix.waypoints import Waypoint
from tests.fixtures import AgentMaker
from tests.kit.interleave import BOTH_ORDERS, Side, actors, meet
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import OWNER, World, current_run, events, session_of

pytestmark = [pytest.mark.django_db(transaction=True), BOTH_ORDERS]


def test_a_stop_that_meets_the_start_of_a_continuation_is_not_lost(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-09, R-410, R-426: the run is stopped where it stands, or at its first checkpoint; no model call."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result="here")
    run_id = current_run(session_id).id
    stopped, worked = meet(
        lambda: world.stop(session_id), lambda: advance_run(run_id, clock=world.clock), swapped=swapped
    )
    assert (stopped.outcome, worked) == (("recorded", True) if swapped else ("resolved", False))
    assert current_run(session_id).status == "interrupted" and model.asked == 1
    world.drop_hints()
    world.sweep()
    assert world.drain() == 0 and session_of(session_id).status == "interrupted"


def test_two_resumes_adopt_one_continuation(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-10, R-123, R-143."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], continue_on_submit=False))
    assert world.submit(session_id, "c1", result=1)["continuation"]["kind"] == "caller_resumes"
    first, second = meet(lambda: world.resume(session_id), lambda: world.resume(session_id), swapped=swapped)
    assert first == second
    world.drain()
    assert Run.objects.filter(session_id=session_id).count() == 2 and model.asked == 2


def test_of_two_resumes_of_an_interrupted_turn_the_second_is_busy(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-10, B-39, R-450, R-453."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.stop(session_id)
    outcomes = meet(lambda: world.resume(session_id), lambda: world.resume(session_id), swapped=swapped)
    loser, winner = outcomes if swapped else outcomes[::-1]
    assert isinstance(loser, AlreadyRunning) and loser.fields["runId"] == winner.run_id
    world.drain()
    assert Run.objects.filter(session_id=session_id).count() == 2 and model.asked == 2


def failed_turn(world: World, agent: AgentMaker) -> tuple[ScriptedModel, UUID]:
    model = ScriptedModel(ModelError("refused", code="provider_error", retryable=False), ["done"])
    session_id = world.started(agent(model))
    assert session_of(session_id).status == "failed"
    return model, session_id


def test_of_a_retry_and_a_message_one_wins(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-11, B-39, R-453, R-497: the loser writes nothing."""
    model, session_id = failed_turn(world, agent)
    outcomes = meet(
        lambda: retry_run(principal=OWNER, session_id=str(session_id), now=world.now),
        lambda: world.send(session_id, "again"),
        swapped=swapped,
    )
    loser, winner = outcomes if swapped else outcomes[::-1]
    assert isinstance(loser, AlreadyRunning) and not isinstance(winner, HelixError)
    world.drain()
    said = Message.objects.filter(session_id=session_id, role="user").count()
    assert (Run.objects.filter(session_id=session_id).count(), model.asked, said) == (2, 2, 2 if swapped else 1)


def test_a_stale_retry_never_touches_a_finished_turn(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-11, R-497: the turn that another entry began is over when the retry gets the lock."""
    model, session_id = failed_turn(world, agent)
    world.send(session_id, "again")
    run_id = current_run(session_id).id
    gate = ModelGate()
    model.steps = (model.steps[0], ["finished", gate.hold()])
    retried, worked = meet(
        lambda: retry_run(principal=OWNER, session_id=str(session_id), now=world.now),
        Side(lambda: advance_run(run_id, clock=world.clock), gate=gate),
        swapped=swapped,
    )
    assert worked and isinstance(retried, NotResumable if swapped else AlreadyRunning)
    assert session_of(session_id).status == "idle" and current_run(session_id).id == run_id
    texts = Message.objects.filter(session_id=session_id, rolled_back_by=None).order_by("position")
    assert [m.parts[0]["text"] for m in texts] == ["hello", "again", "finished"]


def test_an_abort_outranks_an_interrupt_in_either_order(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-18, R-427, R-411, R-412."""
    gate = ModelGate()
    model = ScriptedModel(["part", gate.hold()])
    session_id = world.start(agent(model))
    run_id = current_run(session_id).id
    world.drop_hints()

    with actors(lambda: advance_run(run_id, clock=world.clock)) as [worker]:
        worker.aim(None)
        gate.entered.wait()
        # The first stop cuts the model call; the worker may not honour it before the second is recorded.
        worker.aim(Waypoint.BEFORE_LOCK)
        softly, hardly = meet(
            lambda: world.stop(session_id, StopKind.INTERRUPT),
            lambda: world.stop(session_id, StopKind.ABORT, reason="enough"),
            swapped=swapped,
        )
        assert worker.finish()
    # The abort that finds the session stopping resolves it itself; the interrupt that finds it so only waits.
    assert (softly.outcome, hardly.outcome) == ("recorded", "recorded" if swapped else "resolved")
    run = current_run(session_id)
    assert (run.status, run.stop_kind, run.error_code) == ("failed", "abort", "framework_cancelled")
    assert session_of(session_id).status == "failed" and len(events(session_id, "run_failed")) == 1
    assert gate.cancellations == 1


def test_a_refused_entry_leaves_every_row_as_it_was(world: World, agent: AgentMaker, swapped: bool) -> None:
    """R-112, R-450, R-466: two messages meet on a session at rest, and the loser is not even in the log."""
    model = ScriptedModel(["first"], ["second"])
    session_id = world.started(agent(model))
    outcomes = meet(lambda: world.send(session_id, "left"), lambda: world.send(session_id, "right"), swapped=swapped)
    loser, winner = outcomes if swapped else outcomes[::-1]
    assert isinstance(loser, AlreadyRunning) and loser.fields["runId"] == winner.run_id
    world.drain()
    said = Message.objects.filter(session_id=session_id, role="user").order_by("position")
    assert [m.parts[0]["text"] for m in said] == ["hello", "right" if swapped else "left"] and model.asked == 2
