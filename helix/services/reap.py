"""Remove conversations whose life is over: stopped first, then deleted in batches (R-048).

A session without `expires_at` lives for ever. Deleting goes leaf first and in bounded transactions, so that a giant
conversation delays nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Model

from helix.models import (
    CallAudit,
    CallOwnership,
    CallTombstone,
    Checkpoint,
    Message,
    PendingCall,
    RemoteChild,
    RemoteDebt,
    Run,
    RunLease,
    Session,
    StreamEvent,
    UsageRecord,
)
from helix.rows.attempts import tried_again
from helix.rows.tree import locked

BATCH = 1000

# Leaf first: nothing that is left refers to what is gone.
_BY_ROOT: tuple[tuple[type[Model], str], ...] = (
    (StreamEvent, "root_id"),
    (UsageRecord, "root_id"),
    (CallTombstone, "root_id"),
    (CallOwnership, "root_id"),
    (CallAudit, "call__root_id"),
    # A stop that a peer is owed bears no call and stays.
    (RemoteDebt, "call__root_id"),
    (RemoteChild, "session__root_id"),
    (Checkpoint, "session__root_id"),
    (RunLease, "run__session__root_id"),
)


def expired_roots(*, now: datetime, limit: int = 20) -> Sequence[tuple[UUID, str | None]]:
    """(id, delegation id) of conversations whose life is over, the longest over first."""
    over = Session.objects.filter(expires_at__lte=now, parent_call=None).order_by("expires_at")
    return list(over.values_list("id", "delegation_id")[:limit])


@tried_again
def reap_batch(*, root_id: UUID, now: datetime) -> int:
    """Delete one batch of an expired conversation's rows, under its lock.

    0: nothing is left of it, or under the lock its life is not over.
    """
    try:
        with locked(root_id, now) as tree:
            expires_at = tree.root.expires_at
            return _delete_batch(root_id) if expires_at is not None and expires_at <= now else 0
    except Session.DoesNotExist:
        return 0


def _delete_batch(root_id: UUID) -> int:
    for table, path in _BY_ROOT:
        page = list(table._default_manager.filter(**{path: root_id}).values_list("pk", flat=True)[:BATCH])
        if page:
            return table._default_manager.filter(pk__in=page).delete()[0]
    PendingCall.objects.filter(root_id=root_id).update(late_notice=None)
    page = list(Message.objects.filter(session__root_id=root_id).values_list("pk", flat=True)[:BATCH])
    if page:
        return Message.objects.filter(pk__in=page).delete()[0]
    return _delete_tree(root_id)


def _delete_tree(root_id: UUID) -> int:
    """Sessions, calls and runs refer to one another: they go together, the deepest sessions first by their parents."""
    sessions = Session.objects.filter(root_id=root_id)
    sessions.update(current_run=None)
    Run.objects.filter(session__root_id=root_id).update(continues=None, superseded_by=None)
    return sessions.delete()[0]
