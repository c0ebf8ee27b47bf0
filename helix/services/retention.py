"""Remove what is past its age, in batches, quiet sessions included (R-265, B-12)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from helix.models import CallTombstone, StreamEvent, UsageRecord
from helix.rows.attempts import tried_again
from helix.rows.tree import locked

BATCH = 1000


@tried_again
def sweep_tombstones(*, now: datetime) -> int:
    """Delete one batch of expired tombstones. Repeats are judged by age anyway: this only frees room (R-262a)."""
    with transaction.atomic(durable=True):
        expired = list(
            CallTombstone.objects.filter(expires_at__lte=now)
            .order_by("expires_at")
            .values_list("pk", flat=True)[:BATCH]
        )
        return CallTombstone.objects.filter(pk__in=expired, expires_at__lte=now).delete()[0] if expired else 0


@tried_again
def forget_usage(*, before: datetime) -> int:
    """Delete one batch of usage rows from before that instant, the oldest first; how many.

    A repeat is then no longer known by its row (R-638): days are far longer than any call is drained twice.
    """
    with transaction.atomic(durable=True):
        old = UsageRecord.objects.filter(timestamp__lt=int(before.timestamp() * 1000)).order_by("timestamp")
        page = list(old.values_list("pk", flat=True)[:BATCH])
        return UsageRecord.objects.filter(pk__in=page).delete()[0] if page else 0


def roots_with_old_events(*, before: datetime, limit: int = 100) -> Sequence[UUID]:
    """Roots whose stream holds events from before that instant."""
    old = StreamEvent.objects.filter(created_at__lt=before).order_by("created_at")
    return list(dict.fromkeys(old.values_list("root_id", flat=True)[: limit * 10]))[:limit]


@tried_again
def forget_events(*, root_id: UUID, before: datetime, now: datetime) -> int:
    """Delete one batch from the beginning of a stream and raise its floor, so that what is left has no gap (R-368)."""
    with locked(root_id, now) as tree:
        old = StreamEvent.objects.filter(root_id=root_id, created_at__lt=before)
        floor = tree.root.stream_floor
        last = old.filter(sequence__lt=floor + BATCH).aggregate(last=Max("sequence"))["last"]
        if last is None:
            return 0
        tree.root.stream_floor = last + 1
        return StreamEvent.objects.filter(root_id=root_id, sequence__lte=last).delete()[0]
