"""The marks of the sweeps: when each last finished, and whether deadlines may be judged now (T-7, R-242)."""

from __future__ import annotations

from datetime import datetime, timedelta

from helix import conf
from helix.models import SweepMark

DEADLINES = "deadlines"


def last_finished(name: str) -> datetime | None:
    return SweepMark.objects.filter(pk=name).values_list("last_completed_at", flat=True).first()


def finish(name: str, now: datetime) -> None:
    """Set the mark; a slower twin of the sweep does not move it back."""
    _, first = SweepMark.objects.get_or_create(pk=name, defaults={"last_completed_at": now})
    if not first:
        SweepMark.objects.filter(pk=name, last_completed_at__lt=now).update(last_completed_at=now)


def gap_since_last(name: str, now: datetime) -> timedelta | None:
    """How long the sweep was away, when that is longer than its grace; None when it was not, or never ran."""
    last = last_finished(name)
    if last is None or now - last <= timedelta(seconds=conf.get("HELIX_SWEEP_GRACE_SECONDS")):
        return None
    return now - last


def expiry_is_fair(now: datetime) -> bool:
    """Whether calls may lapse now: after an outage nobody expires anything until the sweep has shifted deadlines."""
    last = last_finished(DEADLINES)
    return last is not None and now - last <= timedelta(seconds=conf.get("HELIX_SWEEP_GRACE_SECONDS"))
