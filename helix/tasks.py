"""Celery's side of the work: a task parses ids and calls a service. A message is a hint (F-1).

``helix.advance_run`` is sent when a run is queued, ``helix.relay`` when something is due at a peer; ``helix.sweep`` is
what beat sends. Losing any of them costs time only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from celery import shared_task, signals
from django.db import OperationalError

from helix import conf, handover, nudges, pulse, selectors
from helix.clock import utc_now
from helix.principals import SYSTEM
from helix.rows import sweeps
from helix.services import deadlines, hints, leases, reap, relay, retention, stops
from helix.services.advance import advance_run as advance
from helix.statuses import StopKind

log = logging.getLogger("helix.sweep")

Clock = Callable[[], datetime]


@shared_task(name=nudges.ADVANCE_TASK, ignore_result=True)
def advance_run(run_id: str) -> None:
    """Work on one run. A second delivery loses the claim."""
    pulse.ensure()
    advance(UUID(run_id))


@shared_task(name=nudges.RELAY_TASK, ignore_result=True)
def relay_to_peers() -> None:
    """Do what is due at other servers. A second delivery finds less to do."""
    relay.relay_due()


@signals.worker_shutting_down.connect
def hand_back(**_: object) -> None:
    """A worker was asked to end. The signal interrupts its main thread, which may hold any lock: another one waits."""
    threading.Thread(target=handover.hand_back, name="helix-handover").start()


@shared_task(name="helix.sweep", ignore_result=True)
def sweep() -> None:
    """One pass over everything that may be due."""
    run_sweeps()


def run_sweeps(clock: Clock = utc_now) -> dict[str, int | None]:
    """Every sweep once: how much each touched, by its name.

    One that fails does not keep the others from running; it is logged, counts as None, and comes again.
    """
    touched: dict[str, int | None] = {}
    sweeps_in_order = (
        sweep_deadlines,
        sweep_runs,
        sweep_peers,
        sweep_tombstones,
        sweep_stops,
        sweep_events,
        sweep_usage,
        reap_expired,
    )
    for one in sweeps_in_order:
        try:
            touched[one.__name__] = one(clock())
        except Exception:
            touched[one.__name__] = None
            log.exception("sweep.failed", extra={"sweep": one.__name__})
    return touched


def sweep_deadlines(now: datetime) -> int:
    """Lapse what is due; after an outage shift the open deadlines instead (T-7). Returns how many calls it touched."""
    since = sweeps.last_finished(sweeps.DEADLINES)
    gap = sweeps.gap_since_last(sweeps.DEADLINES, now)
    touched = 0
    if gap is not None and since is not None:
        log.warning("sweep.gap_shifted", extra={"gapSeconds": gap.total_seconds()})
        for root_id in selectors.roots_with_deadlines():
            touched += deadlines.shift_deadlines(root_id=root_id, gap=gap, since=since, now=now)
    elif since is not None:
        while roots := dict.fromkeys(root for _, root in selectors.lapsed_calls(now)):
            lapsed = sum(_lapse(root_id, now) for root_id in roots)
            touched += lapsed
            if not lapsed:
                break
    deadlines.finish_sweep(now=now)
    return touched


def _lapse(root_id: UUID, now: datetime) -> int:
    """One tree; its failure keeps no other tree from lapsing, and leaves nobody waiting for it (R-234, Q-11)."""
    try:
        return deadlines.lapse_calls(root_id=root_id, now=now)
    except OperationalError:
        raise  # the database is away: everything stays due
    except Exception as failure:
        log.exception(
            "sweep.due_work_unscheduled",
            extra={"sessionId": str(root_id), "errorCode": "framework_due_work_unscheduled"},
        )
        deadlines.fail_unscheduled(root_id=root_id, cause=type(failure).__name__, now=now)
        return 0


def sweep_runs(now: datetime) -> int:
    """Nudge workers for runs that nobody picked up, and for runs whose worker was lost. Returns how many."""
    waiting = [*selectors.claimable_runs(now), *selectors.stale_leases(now)]
    if waiting:
        hints.note_hints(run_ids=waiting, now=now)
    for run_id in waiting:
        nudges.nudge_worker(run_id)
    return len(waiting)


def sweep_peers(now: datetime) -> int:
    """Hint at what is due at peers: asking them may take long, and a sweep may not. Returns whether it hinted."""
    if not relay.is_due(now):
        return 0
    nudges.nudge_relay()
    return 1


def sweep_tombstones(now: datetime) -> int:
    """Delete expired tombstones, batch by batch."""
    total = 0
    while deleted := retention.sweep_tombstones(now=now):
        total += deleted
    return total


def sweep_stops(now: datetime) -> int:
    """In the process that runs it: fire the tokens of runs that were stopped elsewhere."""
    return leases.cut_stopped_work()


def sweep_events(now: datetime) -> int:
    """Forget events that are older than the configured days; nothing is looked for without a setting."""
    days = conf.get("HELIX_EVENT_RETENTION_DAYS")
    if days is None:
        return 0
    before = now - timedelta(days=days)
    return sum(
        retention.forget_events(root_id=root_id, before=before, now=now)
        for root_id in retention.roots_with_old_events(before=before)
    )


def sweep_usage(now: datetime) -> int:
    """Forget usage rows that are older than the configured days, batch by batch; none without a setting."""
    days = conf.get("HELIX_USAGE_RETENTION_DAYS")
    if days is None:
        return 0
    total = 0
    while deleted := retention.forget_usage(before=now - timedelta(days=days)):
        total += deleted
    return total


def reap_expired(now: datetime) -> int:
    """Stop and remove a few conversations whose life is over (R-048); returns how many."""
    roots = reap.expired_roots(now=now)
    for root_id, delegation_id in roots:
        for _ in range(2):
            # The second abort ends a run whose worker has not honoured the first.
            stops.stop_session(
                principal=SYSTEM,
                session_id=str(root_id),
                kind=StopKind.ABORT,
                reason="expired",
                delegation_id=delegation_id,
                now=now,
            )
        while reap.reap_batch(root_id=root_id, now=now):
            pass
    return len(roots)
