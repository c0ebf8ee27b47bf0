"""Renew this process's leases, and notice what was stopped or lost meanwhile (L-3, Q-21)."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F

from helix import conf
from helix.models import Run, RunLease
from helix.rows.holdings import HOLDINGS
from helix.statuses import RunStatus


def renew_leases(*, now: datetime) -> int:
    """One plain statement for every lease of this holder, fenced on its epoch (L-3, Q-39); how many.

    Only runs that are still worked on: a turn that broke off left its lease behind, and somebody has to take it over.
    """
    held = HOLDINGS.all()
    if not held:
        return 0
    mine = RunLease.objects.filter(
        holder=HOLDINGS.holder, epoch=F("run__epoch"), run_id__in=[holding.run_id for holding in held]
    )
    renewed = mine.update(renewed_at=now, expires_at=now + timedelta(seconds=conf.get("HELIX_LEASE_SECONDS")))
    for holding in held:
        holding.renewed_at = now
    return renewed


def cut_stopped_work() -> int:
    """Fire the token of every run held here whose row says stop, or whose epoch is not ours any more; how many.

    The row is read, never a local copy (Q-41). A nudge may call this at once; a process calls it regularly.
    """
    held = {holding.run_id: holding for holding in HOLDINGS.all()}
    if not held:
        return 0
    runs = Run.objects.in_bulk(list(held))
    cut = 0
    for run_id, holding in held.items():
        run = runs.get(run_id)
        if run is None or run.epoch != holding.epoch or run.status != RunStatus.RUNNING:
            cut += holding.token.cancel("superseded")
        elif run.stop_is_open:
            cut += holding.token.cancel("stop")
    return cut
