"""Take a run: a queued one, or one whose worker was lost. One conditional move under the root's lock (L-2, L-8)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from helix.models import Run, RunLease
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.endings import fail, settle_stop
from helix.rows.holdings import Turn
from helix.rows.takeover import budget_is_spent, close_lost_bodies
from helix.rows.tree import Tree, locked
from helix.statuses import RUN_CLAIMABLE, EventType, RunCause, RunStatus
from helix.waypoints import Waypoint, reach

log = logging.getLogger("helix.advance")


@dataclass(frozen=True)
class Claim:
    """What a worker holds while it works on a run. ``epoch`` is the fence of every write."""

    run_id: UUID
    epoch: int
    session_id: UUID
    root_id: UUID
    agent_type: str
    owner: str


@tried_again
def claim_run(run_id: UUID, *, now: datetime, turn: Turn | None = None) -> Claim | None:
    """The claim, or None: the run is gone, not due, over, stopped on the way, or somebody's, ourselves included.

    turn: marked in the same block (L-10); without one nobody in this process works on what is claimed.
    """
    root_id = Run.objects.filter(pk=run_id).values_list("session__root_id", flat=True).first()
    if root_id is None:
        return None
    with locked(root_id, now) as tree:
        run = tree.run(run_id)
        session = tree.session(run.session_id)
        if run.is_over or session.current_run_id != run.id:
            return None
        if run.status in RUN_CLAIMABLE:
            taken = _take_queued(tree, run)
        elif run.status == RunStatus.RUNNING:
            taken = _take_lost(tree, run)
        else:
            taken = False
        if not taken:
            return None
        if turn is not None:
            turn.mark(run.id, run.epoch, now)
        reach(Waypoint.CLAIMED)
        return Claim(run.id, run.epoch, session.id, root_id, session.agent_type, session.owner)


def _take_queued(tree: Tree, run: Run) -> bool:
    if run.stop_is_open:
        settle_stop(tree, run)
        return False
    if run.next_attempt_at > tree.now:
        return False
    epoch = run.epoch + 1
    first = run.started_at is None
    runs.move_run(tree, run, RunStatus.RUNNING, epoch=epoch, started_at=run.started_at or tree.now)
    runs.grant_lease(run, tree.now)
    session = tree.session(run.session_id)
    tree.emit(EventType.RUN_STARTED, session, run, epoch=epoch)
    if first and run.cause not in (RunCause.EXECUTE, RunCause.CHILD):
        tree.emit(EventType.RUN_RESUMED, session, run, continues=str(run.continues_id) if run.continues_id else None)
    return True


def _take_lost(tree: Tree, run: Run) -> bool:
    """RT-17. Never about oneself: a process that holds the run does not read the lease (L-6)."""
    if runs.is_held_here(run):
        return False
    lease = RunLease.objects.filter(run_id=run.id).first()
    if lease is not None and lease.expires_at > tree.now:
        return False
    log.warning(
        "run.takeover",
        extra={"sessionId": str(tree.root.id), "runId": str(run.id), "holder": lease.holder if lease else None},
    )
    if run.stop_is_open:
        settle_stop(tree, run)
        return False
    if budget_is_spent(run):
        fail(
            tree,
            run,
            "framework_auto_resume_exhausted",
            "The run was lost by its workers too often.",
            cause="worker_lost",
        )
        return False
    # Hints begin anew: a second loss is found as quickly as the first.
    runs.update_run(run, epoch=run.epoch + 1, crash_count=run.crash_count + 1, next_hint_at=tree.now)
    runs.grant_lease(run, tree.now)
    close_lost_bodies(tree, run)
    tree.emit(EventType.STEP_DISCARDED, tree.session(run.session_id), run, reason="worker_lost")
    tree.changed(tree.session(run.session_id))
    return True
