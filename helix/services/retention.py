"""Remove what is past its age, in batches, quiet sessions included (R-265, B-12)."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from helix.models import CallTombstone

BATCH = 1000


def sweep_tombstones(*, now: datetime) -> int:
    """Delete one batch of expired tombstones. Repeats are judged by age anyway: this only frees room (R-262a)."""
    with transaction.atomic(durable=True):
        expired = list(
            CallTombstone.objects.filter(expires_at__lte=now)
            .order_by("expires_at")
            .values_list("pk", flat=True)[:BATCH]
        )
        return CallTombstone.objects.filter(pk__in=expired, expires_at__lte=now).delete()[0] if expired else 0
