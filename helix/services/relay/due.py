"""Everything that is due at a peer, one errand after another, until nothing is or the process leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from helix import clock as clocks
from helix.models import RemoteChild, RemoteDebt
from helix.rows.holdings import HOLDINGS
from helix.services.relay.children import attend_child
from helix.services.relay.debts import pay_debt
from helix.statuses import REMOTE_LIVE, DebtState

PAGE = 50


def due_children(now: datetime, limit: int = PAGE) -> Sequence[UUID]:
    """Stand-ins whose peer has to be asked to begin, or how the child stands; the longest due first (R-213)."""
    due = RemoteChild.objects.filter(state__in=REMOTE_LIVE, next_attempt_at__lte=now).order_by("next_attempt_at")
    return list(due.values_list("session_id", flat=True)[:limit])


def due_debts(now: datetime, limit: int = PAGE) -> Sequence[int]:
    """Answers and stops that a peer is owed, the longest due first (R-203, R-214)."""
    due = RemoteDebt.objects.filter(state=DebtState.OWED, next_attempt_at__lte=now).order_by("next_attempt_at")
    return list(due.values_list("id", flat=True)[:limit])


def is_due(now: datetime) -> bool:
    """Whether anything waits for a worker."""
    return bool(due_children(now, 1) or due_debts(now, 1))


def relay_due(clock: Callable[[], datetime] = clocks.utc_now) -> int:
    """Do what is due; how many errands were this worker's. An errand that another worker took counts for nobody here.

    Answers and stops go first: somebody waits for them, and what a reading finds may follow from them.
    """
    done = 0
    while not HOLDINGS.is_leaving:
        now = clock()
        debts, children = due_debts(now), due_children(now)
        worked = sum(pay_debt(debt_id, clock=clock) for debt_id in debts)
        worked += sum(attend_child(session_id, clock=clock) for session_id in children)
        if not worked:
            break
        done += worked
    return done
