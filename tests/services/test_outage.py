"""Nobody loses an answer because Helix was away, and no sweep does harm by running early, late, twice or at once."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from helix import selectors, tasks
from helix.models import PendingCall, SweepMark
from helix.rows import sweeps
from helix.services import deadlines, stops
from helix.statuses import CallState, StopKind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, client_tool, locate
from tests.kit.world import OWNER, T0, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(world: World, agent: AgentMaker) -> UUID:
    """A conversation with one client call that waits 300 seconds."""
    return world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))


def is_pending(session_id: UUID) -> bool:
    return [row.tool_call_id for row in pending(session_id)] == ["c1"]


def seconds_left(session_id: UUID, world: World) -> float:
    row = call_named(session_id, "locate")
    assert row.deadline_at is not None
    return (row.deadline_at - world.now).total_seconds()


# -- fairness ----------------------------------------------------------------------------------------------------------


def test_the_first_sweep_after_an_outage_expires_nothing(
    world: World, waiting: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    """T-7, R-242, R-618: no sweep for a day; the wait that was left is left again, then it lapses as usual."""
    world.tick(days=1)
    with caplog.at_level(logging.WARNING, logger="helix.sweep"):
        world.sweep()
    assert is_pending(waiting) and seconds_left(waiting, world) == 300
    assert [event["deadlineAt"] for event in events(waiting, "deadline_changed")] == ["2026-03-02T12:05:00Z"]
    assert "sweep.gap_shifted" in caplog.text
    world.wait(seconds=299)
    assert is_pending(waiting)
    world.wait(seconds=1)
    assert not is_pending(waiting)


def test_a_gap_within_the_grace_shifts_nothing(world: World, waiting: UUID) -> None:
    """T-7: sixty seconds between two sweeps are ordinary; sixty-one are an outage."""
    world.tick(seconds=60)
    world.sweep()
    assert seconds_left(waiting, world) == 240
    world.tick(seconds=61)
    world.sweep()
    assert seconds_left(waiting, world) == 240


def test_a_call_that_was_shown_during_the_outage_is_moved_from_its_exposure(world: World, agent: AgentMaker) -> None:
    """T-7: only the time that it really lost."""
    world.tick(hours=1)
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")]), tools=[locate]))
    world.tick(hours=1)
    world.sweep()
    assert seconds_left(session_id, world) == 300


def test_until_the_sweep_has_been_here_nobody_expires_anything(world: World, agent: AgentMaker) -> None:
    """T-7, R-242: neither a sibling's submit nor a resume nor a lapse by itself closes the overdue call."""
    model = ScriptedModel([call("locate", "c1"), call("choose", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate, client_tool("choose", client_tool_timeout_ms=None)]))
    world.tick(days=1)
    assert deadlines.lapse_calls(root_id=session_id, now=world.now) == 0
    assert world.submit(session_id, "c2", result=1)["continuation"] == {"kind": "awaiting_batch"}
    assert is_pending(session_id)
    world.sweep()
    world.wait(seconds=300)
    world.drain()
    assert results(session_id)["c1"]["errorCode"] == "client_tool_timeout" and model.asked == 2


def test_with_the_sweep_at_work_a_siblings_submit_closes_what_has_lapsed(world: World, agent: AgentMaker) -> None:
    """R-107, P-03, R-240: the control of the test above."""
    model = ScriptedModel([call("locate", "c1"), call("choose", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate, client_tool("choose", client_tool_timeout_ms=None)]))
    sweeps.finish(sweeps.DEADLINES, world.tick(seconds=300))
    assert world.submit(session_id, "c2", result=1)["continuation"]["kind"] == "new_run"
    world.drain()
    assert results(session_id)["c1"]["errorCode"] == "client_tool_timeout"


def test_a_first_start_only_sets_the_mark(world: World, waiting: UUID) -> None:
    """T-7: nothing is judged by a clock that nobody kept."""
    SweepMark.objects.all().delete()
    world.tick(days=1)
    world.sweep()
    assert is_pending(waiting) and not events(waiting, "deadline_changed")
    assert sweeps.last_finished(sweeps.DEADLINES) == world.now


def test_an_approval_is_treated_as_fairly_as_a_client_call(world: World, agent: AgentMaker) -> None:
    """T-7: whoever owes the answer."""
    model = ScriptedModel([call("pay", "p1")], ["done"])
    session_id = world.started(agent(model, tools=[Bodies().tool("pay", require_approval=True)]))
    world.tick(days=8)
    world.sweep()
    assert call_named(session_id, "pay").deadline_at == world.now + timedelta(days=7)


# -- early, late, twice, at once ---------------------------------------------------------------------------------------


def test_two_hosts_that_sweep_first_shift_once(world: World, waiting: UUID) -> None:
    """R-234, T-10: both saw the same mark; so does a sweep that is repeated because it was cut."""
    since = sweeps.last_finished(sweeps.DEADLINES)
    assert since is not None
    gap = world.tick(days=1) - since
    assert deadlines.shift_deadlines(root_id=waiting, gap=gap, since=since, now=world.now) == 1
    assert deadlines.shift_deadlines(root_id=waiting, gap=gap, since=since, now=world.now) == 0
    assert seconds_left(waiting, world) == 300 and len(events(waiting, "deadline_changed")) == 1


def test_a_second_outage_is_made_good_as_well(world: World, waiting: UUID) -> None:
    """T-7: once each."""
    for _ in range(2):
        world.tick(days=1)
        world.sweep()
        assert seconds_left(waiting, world) == 300
    assert len(events(waiting, "deadline_changed")) == 2


def test_a_slower_sweep_does_not_move_the_mark_back(world: World, waiting: UUID) -> None:
    """R-234: two hosts finish in the other order."""
    deadlines.finish_sweep(now=world.tick(seconds=20))
    deadlines.finish_sweep(now=T0)
    assert sweeps.last_finished(sweeps.DEADLINES) == world.now


def test_a_lapse_that_is_swept_twice_happens_once(world: World, waiting: UUID) -> None:
    """R-234, F-7: early it does nothing, late it does its work, again it does nothing."""
    world.wait(seconds=299)
    assert is_pending(waiting)
    world.wait(seconds=31)
    assert deadlines.lapse_calls(root_id=waiting, now=world.now) == 0
    world.sweep()
    world.drain()
    assert len(events(waiting, "call_answered")) == len(events(waiting, "tool_end")) == 1


def test_a_tree_that_cannot_lapse_holds_up_no_other(
    world: World, agent: AgentMaker, waiting: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-234: its run ends as due work that could not be scheduled; the other tree lapses as usual."""
    other = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    lapse = deadlines.lapse_calls

    def broken(*, root_id: UUID, now: Any) -> int:
        if root_id == waiting:
            raise RuntimeError("cannot be written")
        return lapse(root_id=root_id, now=now)

    monkeypatch.setattr(deadlines, "lapse_calls", broken)
    world.wait(seconds=300)
    world.drain()
    run = current_run(waiting)
    assert (run.status, run.error_code) == ("failed", "framework_due_work_unscheduled")
    assert run.error_detail == {
        "code": "framework_due_work_unscheduled",
        "message": "A lapsed call could not be closed.",
        "retryable": False,
        "cause": "RuntimeError",
    }
    assert session_of(waiting).status == "failed" and session_of(other).status == "idle"
    assert sweeps.last_finished(sweeps.DEADLINES) == world.now


def test_one_failing_sweep_keeps_no_other_from_running(
    world: World, waiting: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-238: it is logged, and comes again."""

    def broken(now: Any) -> int:
        raise RuntimeError("away")

    world.submit(waiting, "c1", result=1)
    world.drop_hints()
    monkeypatch.setattr(tasks, "sweep_deadlines", broken)
    touched = tasks.run_sweeps(world.clock)
    world.drain()
    assert touched["broken"] is None and session_of(waiting).status == "idle"


# -- answerable until closed -------------------------------------------------------------------------------------------


def test_a_submit_after_the_deadline_is_the_answer_while_nothing_has_closed_the_call(
    world: World, agent: AgentMaker
) -> None:
    """R-236, R-270, T-9: only a committed closing makes it late."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.tick(days=1)
    assert world.submit(session_id, "c1", result="here")["status"] == "accepted"
    world.sweep()
    world.drain()
    assert model.results_seen() == {"c1": "here"}


def test_patience_of_readers_changes_nothing(world: World, waiting: UUID) -> None:
    """T-8, C-040: a page that is read, a poll that ends, a hint that nobody hears; no row moves."""
    before = PendingCall.objects.filter(root_id=waiting).values().get()
    for _ in range(3):
        selectors.snapshot_rows(OWNER, str(waiting))
        world.tick(seconds=30)
        world.drop_hints()
    assert PendingCall.objects.filter(root_id=waiting).values().get() == before


def test_a_wait_has_no_clock_but_the_rows_own(world: World, agent: AgentMaker) -> None:
    """T-3, T-4, R-043: a paused session holds nothing that could run out, for as long as its call may wait."""
    patient = client_tool("choose", client_tool_timeout_ms=None)
    session_id = world.started(agent(ScriptedModel([call("choose", "c1")], ["done"]), tools=[patient]))
    world.wait(days=3650)
    assert world.drain() == 0 and is_pending(session_id)
    assert not hasattr(current_run(session_id), "lease")


def test_a_stopped_call_is_not_lapsed_as_well(world: World, waiting: UUID) -> None:
    """R-275, R-234: the stop closed it; the sweep finds nothing, and loops over nothing."""
    stops.stop_session(principal=OWNER, session_id=str(waiting), kind=StopKind.INTERRUPT, now=world.now)
    world.wait(seconds=300)
    assert deadlines.lapse_calls(root_id=waiting, now=world.now) == 0
    assert call_named(waiting, "locate").state == CallState.DISCARDED
