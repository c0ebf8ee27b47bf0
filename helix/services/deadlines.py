"""Deadlines of outside parties: lapse what is due, shift what an outage made unfair, move one by hand (5.H, T-7)."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from helix import selectors
from helix.errors import Forbidden, NotSupported, UnknownToolCall
from helix.models import PendingCall, StreamEvent
from helix.principals import Principal
from helix.rows import sweeps
from helix.rows.attempts import tried_again
from helix.rows.batch import after_an_answer
from helix.rows.calls import audit, on_wire, store_timeout
from helix.rows.endings import fail
from helix.rows.tree import Tree, locked
from helix.statuses import CallState, EventType

log = logging.getLogger("helix.deadlines")


@tried_again
def lapse_calls(*, root_id: UUID, now: datetime) -> int:
    """Store the timeouts of every lapsed call of one tree and what follows from them (R-240, T-5); how many.

    0: nothing is due under the lock, or an outage has to be made good first (R-242).
    """
    with locked(root_id, now) as tree:
        if not sweeps.expiry_is_fair(now):
            return 0
        due = list(
            PendingCall.objects.filter(root_id=root_id, state=CallState.AWAITING, deadline_at__lte=now).order_by("seq")
        )
        # A recorded stop closes its calls itself.
        due = [call for call in due if not tree.run(call.run_id).stop_is_open]
        for call in due:
            store_timeout(tree, call)
        for session_id in dict.fromkeys(call.session_id for call in due):
            after_an_answer(tree, tree.session(session_id))
        return len(due)


@tried_again
def fail_unscheduled(*, root_id: UUID, cause: str, now: datetime) -> None:
    """End the runs whose due calls could not be lapsed: nobody may wait for work that never comes (R-234, Q-11).

    Answers that were given stay, as with every failure. cause: what kept the work from being scheduled.
    """
    with locked(root_id, now) as tree:
        due = PendingCall.objects.filter(root_id=root_id, state=CallState.AWAITING, deadline_at__lte=now)
        for run_id in dict.fromkeys(due.order_by("seq").values_list("run_id", flat=True)):
            run = tree.run(run_id)
            if not run.is_over:
                fail(tree, run, "framework_due_work_unscheduled", "A lapsed call could not be closed.", cause=cause)


@tried_again
def shift_deadlines(*, root_id: UUID, gap: timedelta, since: datetime, now: datetime) -> int:
    """Move every open deadline of one tree by the time that nobody could sweep (T-7); how many moved.

    gap: from the sweep's mark to now.  since: the mark; a call that was exposed later is moved from its exposure.
    0 for a tree that was shifted for this outage already, by another host or by a sweep that was cut (R-234).
    """
    outage = on_wire(since)
    with locked(root_id, now) as tree:
        open_now = PendingCall.objects.filter(root_id=root_id, state=CallState.AWAITING, deadline_at__isnull=False)
        if _was_shifted(root_id, since, outage):
            return 0
        moved = 0
        for call in open_now.order_by("seq"):
            if call.deadline_at is None or call.exposed_at is None:
                continue
            lost = min(gap, now - max(since, call.exposed_at))
            if lost > timedelta(0):
                _move(tree, call, call.deadline_at + lost, outageSince=outage)
                moved += 1
        return moved


def _was_shifted(root_id: UUID, since: datetime, outage: str | None) -> bool:
    """A tree is shifted in one transaction, so its events tell whether it was."""
    shifts = StreamEvent.objects.filter(root_id=root_id, type=EventType.DEADLINE_CHANGED, created_at__gt=since)
    return shifts.filter(payload__outageSince=outage).exists()


@tried_again
def move_deadline(
    *, principal: Principal, session_id: str, tool_call_id: str, deadline_at: datetime | None, now: datetime, door: str
) -> None:
    """An operator moves the deadline of a pending call, or removes it (R-241). Audited and told to every reader.

    Raises: `UnknownToolCall` for a call that is out of reach or not pending; `Forbidden` for anybody else;
    `NotSupported` for a remote child's call, whose deadline is its peer's alone (R-214).
    """
    found = selectors.call_for(principal, session_id, tool_call_id)
    if not principal.is_operator:
        raise Forbidden("Only operators move deadlines.", cause="not_permitted")
    with locked(found.root_id, now) as tree:
        call = PendingCall.objects.get(pk=found.pk)
        if call.state != CallState.AWAITING:
            raise UnknownToolCall("The call is not pending.", toolCallId=tool_call_id)
        if tree.session(call.session_id).is_remote:
            raise NotSupported("The deadline of this call is its peer's.", toolCallId=tool_call_id)
        before = {"deadlineAt": on_wire(call.deadline_at)}
        _move(tree, call, deadline_at)
        audit(
            tree, call, "move_deadline", principal, door=door, before=before, after={"deadlineAt": on_wire(deadline_at)}
        )


@tried_again
def finish_sweep(*, now: datetime) -> None:
    """Mark that the deadline sweep has seen everything that was due at ``now``."""
    with transaction.atomic(durable=True):
        sweeps.finish(sweeps.DEADLINES, now)


def _move(tree: Tree, call: PendingCall, deadline_at: datetime | None, **more: Any) -> None:
    call.deadline_at = deadline_at
    call.save(update_fields=["deadline_at"])
    tree.emit(
        EventType.DEADLINE_CHANGED,
        tree.session(call.session_id),
        tree.run(call.run_id),
        toolCallId=call.tool_call_id,
        deadlineAt=on_wire(deadline_at),
        **more,
    )
