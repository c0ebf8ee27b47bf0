"""Begin, move and replace runs under the lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from helix import conf
from helix.models import PendingCall, Run, RunLease, Session
from helix.rows.holdings import HOLDINGS
from helix.rows.tree import Tree
from helix.statuses import (
    CALL_OPEN,
    RUN_FINAL,
    RUN_MOVES,
    EventType,
    RunCause,
    RunStatus,
    StopKind,
)


class LostFence(Exception):
    """The run is not this worker's any more: leave quietly and write nothing (Q-18)."""


class StopSeen(Exception):
    """A stop is recorded on the run; the writer ends the run by it instead of writing on."""


@dataclass(frozen=True)
class Entered:
    """What an entry did: the run that carries it, and where its events begin (R-520)."""

    session_id: str
    run_id: str
    start_sequence: int


def entered(tree: Tree, run: Run) -> Entered:
    return Entered(str(tree.root.id), str(run.id), run.start_sequence)


def fence(tree: Tree, run_id: Any, epoch: int, *, ignore_stop: bool = False) -> Run:
    """The run, when it is running under this epoch and, unless told otherwise, no stop is recorded (Q-18).

    Raises: `LostFence`, `StopSeen`.
    """
    run = tree.run(run_id)
    if run.status != RunStatus.RUNNING or run.epoch != epoch:
        raise LostFence(str(run_id))
    if run.stop_is_open and not ignore_stop:
        raise StopSeen(run.stop_kind)
    _keep_lease(run, tree.now)
    return run


def start_run(
    tree: Tree,
    session: Session,
    *,
    cause: RunCause,
    started_by: str,
    continues: Run | None = None,
    same_turn: bool = False,
    fresh_budget: bool = False,
    status: RunStatus = RunStatus.QUEUED,
    entry_message: list[dict[str, Any]] | None = None,
    client_message_id: str | None = None,
    message: list[dict[str, Any]] | None = None,
) -> Run:
    """Insert an entry's run and make it the session's current run: the run-start commit.

    same_turn: the step count goes on from ``continues`` (R-013), unless the budget is fresh (R-014). status: a rewind
    to a partial batch begins suspended (RT-21). message: parts that the log got with this entry;
    they travel in the event so that other readers see them at once.
    """
    session.run_count += 1
    before = continues or tree.current_run(session)
    turn = 1 if before is None else before.turn + (0 if same_turn else 1)
    run = Run(
        session_id=session.id,
        number=session.run_count,
        turn=turn,
        step_count=continues.step_count if continues and same_turn and not fresh_budget else 0,
        status=status,
        cause=cause,
        started_by=started_by,
        continues_id=continues.id if continues else None,
        entry_message=entry_message,
        client_message_id=client_message_id,
        next_attempt_at=tree.now,
        next_hint_at=tree.now,
        queued_at=tree.now,
        trace_context=continues.trace_context if continues and same_turn else {},
    )
    shown = message or entry_message
    run.start_sequence = tree.emit(
        EventType.RUN_QUEUED, session, run, cause=cause, **({"message": shown} if shown else {})
    )
    run.save(force_insert=True)
    tree.know(run)
    session.current_run_id = run.id
    tree.changed(session)
    tree.wake(run)
    return run


def move_run(tree: Tree, run: Run, status: RunStatus, **columns: Any) -> Run:
    """Move a run along its table. The epoch and the old status stand in the statement itself (Q-18).

    Raises: ValueError for a move that the table does not have; `LostFence` when the row is not as it was read.
    """
    if status not in RUN_MOVES[RunStatus(run.status)]:
        raise ValueError(f"a run does not move from {run.status} to {status}")
    if status in RUN_FINAL:
        columns["ended_at"] = tree.now
    columns["status"] = status
    moved = Run.objects.filter(pk=run.pk, status=run.status, epoch=run.epoch).update(**columns)
    if not moved:
        raise LostFence(str(run.pk))
    if run.status == RunStatus.RUNNING:
        RunLease.objects.filter(run_id=run.pk).delete()
    for name, value in columns.items():
        setattr(run, name, value)
    tree.changed(tree.session(run.session_id))
    return run


def update_run(run: Run, **columns: Any) -> None:
    """Write columns of a run whose status stays."""
    Run.objects.filter(pk=run.pk).update(**columns)
    for name, value in columns.items():
        setattr(run, name, value)


def take_over_calls(tree: Tree, old: Run, new: Run) -> int:
    """A run-start commit moves the session's open calls to the new run (RT-09, P-10); returns how many."""
    moved = PendingCall.objects.filter(session_id=old.session_id, run_id=old.id, state__in=CALL_OPEN).update(
        run_id=new.id
    )
    update_run(old, superseded_by_id=new.id)
    tree.emit(EventType.RUN_SUPERSEDED, tree.session(old.session_id), old, supersededBy=str(new.id))
    return moved


def record_stop(tree: Tree, run: Run, kind: StopKind, *, reason: str, by: str) -> None:
    """Write the durable stop on a run; an abort outranks an interrupt, never the other way (R-410, R-427)."""
    if run.stop_is_open and (run.stop_kind == StopKind.ABORT or kind == StopKind.INTERRUPT):
        return
    update_run(
        run,
        stop_kind=kind,
        stop_reason=reason,
        stop_requested_at=tree.now,
        stop_requested_by=by,
        stop_resolved_at=None,
    )
    HOLDINGS.cut_after_commit(run.id, "stop")
    session = tree.session(run.session_id)
    tree.emit(EventType.STOP_REQUESTED, session, run, stop=kind, reason=reason)
    tree.changed(session)


def fail_run(
    tree: Tree, run: Run, code: str, message: str, *, retryable: bool = False, cause: str | None = None, **columns: Any
) -> Run:
    """End a run as failed with its typed detail (RT-03, RT-14) and say so in the stream."""
    detail = {"code": code, "message": message, "retryable": retryable, **({"cause": cause} if cause else {})}
    move_run(tree, run, RunStatus.FAILED, error_code=code, error_detail=detail, **columns)
    session = tree.session(run.session_id)
    tree.emit(EventType.RUN_FAILED, session, run, error=detail)
    return run


def is_held_here(run: Run) -> bool:
    """Whether this very process works on the run under its present epoch: then nobody here judges its lease (L-6)."""
    holding = HOLDINGS.get(run.id)
    return holding is not None and holding.epoch == run.epoch


def grant_lease(run: Run, now: datetime) -> None:
    """This process holds the run from now on (L-2)."""
    RunLease.objects.update_or_create(
        run_id=run.id, defaults={"holder": HOLDINGS.holder, "epoch": run.epoch, **_lease_from(now)}
    )


def _keep_lease(run: Run, now: datetime) -> None:
    """Renew in a commit that happens anyway: before a body, at a model's chunk, with each record (L-4).

    The process's pulse may starve while its turns go on; nothing is written while the lease is young.
    """
    holding = HOLDINGS.get(run.id)
    if holding is None or holding.epoch != run.epoch or not holding.renewal_is_due(now):
        return
    RunLease.objects.filter(run_id=run.id, epoch=run.epoch).update(**_lease_from(now))
    holding.renewed_at = now


def _lease_from(now: datetime) -> dict[str, datetime]:
    return {"renewed_at": now, "expires_at": now + timedelta(seconds=conf.get("HELIX_LEASE_SECONDS"))}
