"""Is the batch complete, and what follows: decided under the root's lock, so there is one answer (R-067, Q-26)."""

from __future__ import annotations

from helix.models import PendingCall, Run, Session
from helix.rows import runs
from helix.rows.calls import expose, store_timeout
from helix.rows.sweeps import expiry_is_fair
from helix.rows.tree import Tree, has_open_subagents
from helix.statuses import (
    CALL_EXTERNAL,
    CALL_UNANSWERED,
    RUN_CLAIMABLE,
    RUN_PAUSED,
    CallState,
    ContinuationKind,
    RunCause,
    RunStatus,
)
from helix.waypoints import Waypoint, reach


def continue_if_complete(tree: Tree, session: Session) -> Run | None:
    """Queue the continuation when nothing of the step is open any more (R-100, R-141, R-209).

    Lapsed calls of the batch are stored as timeouts on the way, as of this instant (R-106, R-107). None: the session
    is not suspended, something is still open, a stop is recorded, or the agent leaves it to the caller (R-143); a
    stand-in is continued by its peer.
    """
    if session.is_remote:
        return None
    run = tree.current_run(session)
    if run is None or run.status not in RUN_PAUSED or run.superseded_by_id or run.stop_is_open:
        return None
    complete = lapse_the_rest(tree, session) and not has_open_subagents(session)
    reach(Waypoint.COUNTED_SIBLINGS)
    if not complete:
        return None
    if not session.continue_on_submit:
        tree.changed(session)
        return None
    return continue_run(tree, session, run)


def continue_run(tree: Tree, session: Session, run: Run) -> Run:
    """Queue the one continuation of a suspended run and hand its calls over (RT-09)."""
    new = runs.start_run(
        tree,
        session,
        cause=RunCause.CONTINUATION,
        started_by=run.started_by,
        continues=run,
        same_turn=True,
    )
    runs.take_over_calls(tree, run, new)
    return new


def unanswered_calls(session: Session) -> list[PendingCall]:
    """External calls of the session that have no answer yet, in recorded order."""
    return list(
        PendingCall.objects.filter(session_id=session.id, kind__in=CALL_EXTERNAL, state__in=CALL_UNANSWERED).order_by(
            "seq"
        )
    )


def batch_is_partial(tree: Tree, session: Session) -> bool:
    """Whether a call of the batch has neither an answer nor a lapsed deadline, as of the tree's instant."""
    if not expiry_is_fair(tree.now):
        return _unanswered(session).exists()
    return _still_open(tree, session).exists()


def _unanswered(session: Session):  # type: ignore[no-untyped-def]
    return PendingCall.objects.filter(session_id=session.id, kind__in=CALL_EXTERNAL, state__in=CALL_UNANSWERED)


def _still_open(tree: Tree, session: Session):  # type: ignore[no-untyped-def]
    # Held calls never lapse: their wait has not begun (P-03).
    return _unanswered(session).exclude(state=CallState.AWAITING, deadline_at__lte=tree.now)


def lapse_the_rest(tree: Tree, session: Session) -> bool:
    """True when every call of the batch is answered; lapsed ones are stored as timeouts first (R-240)."""
    if batch_is_partial(tree, session):
        return False
    for call in _unanswered(session).order_by("seq"):
        store_timeout(tree, call)
    return True


def continuation_of(tree: Tree, call: PendingCall) -> dict[str, object]:
    """What the stored answer of this call caused (R-120). The first line that matches.

    Read from what is stored, never from this reader's clock: a deadline that passed since the batch's last answer
    is a fact once a writer stored its timeout (R-106).
    """
    if call.state == CallState.CONSUMED:
        return {"kind": ContinuationKind.CONSUMED}
    session = tree.session(call.session_id)
    if _unanswered(session).exists():
        return {"kind": ContinuationKind.AWAITING_BATCH}
    run = tree.run(call.run_id)
    if run.status in RUN_PAUSED and run.superseded_by_id is None:
        return _not_taken_over(session)
    if run.status in (RunStatus.QUEUED, RunStatus.SUSPENDED_STEP_PARTIAL):
        return {"kind": ContinuationKind.NEW_RUN, "runId": str(run.id), "startSequence": run.start_sequence}
    if run.status == RunStatus.RUNNING:
        return {"kind": ContinuationKind.DEFERRED, "blockingRunId": str(run.id)}
    return {"kind": ContinuationKind.CONSUMED}


def _not_taken_over(session: Session) -> dict[str, object]:
    if session.is_remote:
        # A relayed answer: the run that awaits the peer takes it along.
        waiting = PendingCall.objects.values_list("run_id", flat=True).get(child=session)
        return {"kind": ContinuationKind.DEFERRED, "blockingRunId": str(waiting)}
    if has_open_subagents(session):
        computing = (
            Run.objects.filter(session__root_id=session.root_id, status__in=(RunStatus.RUNNING, *RUN_CLAIMABLE))
            .order_by("queued_at")
            .first()
        )
        if computing is None:
            return {"kind": ContinuationKind.AWAITING_BATCH}
        return {"kind": ContinuationKind.DEFERRED, "blockingRunId": str(computing.id)}
    return {"kind": ContinuationKind.CALLER_RESUMES}


def after_an_answer(tree: Tree, session: Session) -> Run | None:
    """What every closing of an external call is followed by: the next exposure, then perhaps the continuation."""
    expose(tree)
    return continue_if_complete(tree, session)
