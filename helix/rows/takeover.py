"""What becomes of a run whose worker was lost: closed for a new message, or continued by another worker (L-8, L-9)."""

from __future__ import annotations

from helix import conf
from helix.models import PendingCall, Run
from helix.rows import runs
from helix.rows.calls import Outcome, consume, open_calls, readable
from helix.rows.tree import Tree
from helix.statuses import AnswerKind, CallState, EventType, RunStatus

# a body that may run again runs at most this often.
MOST_BODIES = 3


def interrupt_stale(tree: Tree, run: Run) -> None:
    """RT-20: end the lost run and pair its unfinished calls; stored answers stay for the run that follows."""
    session = tree.session(run.session_id)
    lost = [call for call in open_calls(session, run) if call.state != CallState.ANSWERED]
    _close_interrupted(tree, run, lost)
    runs.move_run(tree, run, RunStatus.INTERRUPTED)
    tree.emit(EventType.RUN_INTERRUPTED, session, run, status=RunStatus.INTERRUPTED, reason="worker_lost")


def close_lost_bodies(tree: Tree, run: Run) -> None:
    """RT-17: executing bodies that may not run again are closed `interrupted`; external calls are left alone."""
    session = tree.session(run.session_id)
    executing = [call for call in open_calls(session, run) if call.state == CallState.EXECUTING]
    _close_interrupted(tree, run, [call for call in executing if not may_run_again(call)])


def may_run_again(call: PendingCall) -> bool:
    return call.replay_safe and call.body_attempts < MOST_BODIES


def budget_is_spent(run: Run) -> bool:
    return run.crash_count >= conf.get("HELIX_CRASH_BUDGET")


def _close_interrupted(tree: Tree, run: Run, calls: list[PendingCall]) -> None:
    session = tree.session(run.session_id)
    outcomes = [
        Outcome(
            call,
            AnswerKind.ERROR,
            {"error": readable(session, "interrupted", call.kind)},
            error_code="interrupted",
        )
        for call in calls
    ]
    if outcomes:
        consume(tree, session, run, outcomes)
