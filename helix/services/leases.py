"""Renew this process's leases, and notice what was stopped or lost meanwhile (L-3, Q-21)."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F

from helix import conf
from helix.models import Run, RunLease
from helix.rows.holdings import HOLDINGS


def renew_leases(*, now: datetime) -> int:
    """One plain statement for every lease of this holder, fenced on its epoch (L-3, Q-39); how many."""
    if not HOLDINGS.all():
        return 0
    return RunLease.objects.filter(holder=HOLDINGS.holder, epoch=F("run__epoch")).update(
        renewed_at=now, expires_at=now + timedelta(seconds=conf.get("HELIX_LEASE_SECONDS"))
    )


def cut_stopped_work() -> int:
    """Fire the token of every run held here whose row says stop, or whose epoch is not ours any more; how many.

    The row is read, never a local copy (Q-41). A nudge may call this at once; a process calls it regularly.
    """
    held = {holding.run_id: holding for holding in HOLDINGS.all()}
    if not held:
        return 0
    cut = 0
    rows = Run.objects.filter(pk__in=list(held)).values_list(
        "id", "epoch", "status", "stop_requested_at", "stop_resolved_at"
    )
    for run_id, epoch, status, requested, resolved in rows:
        holding = held[run_id]
        if epoch != holding.epoch or status != "running":
            cut += holding.token.cancel("superseded")
        elif requested is not None and resolved is None:
            cut += holding.token.cancel("stop")
    return cut
