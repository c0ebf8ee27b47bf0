"""Go back to a checkpoint: hide what came after it, restore what was open then, and begin a new run (RT-21, P-16).

Nothing is deleted: messages are marked, calls that were made later are discarded `rewound`. Readers get one resync.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from helix import selectors
from helix.errors import AlreadyRunning, NotResumable
from helix.models import CallOwnership, CallTombstone, Checkpoint, Message, PendingCall, Run, Session
from helix.principals import Principal
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.calls import expose
from helix.rows.tree import Tree, has_open_subagents, locked
from helix.statuses import (
    CALL_EXTERNAL,
    CALL_UNANSWERED,
    RUN_PAUSED,
    CallKind,
    CallState,
    DiscardReason,
    EventType,
    Role,
    RunCause,
    RunStatus,
    SessionStatus,
)


@tried_again
def rewind(*, principal: Principal, session_id: str, checkpoint_id: str, now: datetime) -> runs.Entered:
    """Restore the conversation to a checkpoint of its own and go on from there in a new run.

    A checkpoint with unanswered calls suspends again at once: no model call, no invented result (R-103). An answer
    that a call had at the checkpoint is kept (X-07); every approval that is asked again gets a new id (R-161).
    Raises: `NotFound` for a missing or foreign checkpoint (R-464); `AlreadyRunning`; `NotResumable` when sub-agents
    were at work at the checkpoint, or are now, or when an earlier rewind took the checkpoint's own steps back.
    """
    session = selectors.session_for(principal, session_id)
    with locked(session.id, now) as tree:
        root = tree.root
        point = selectors.checkpoint_of(root, checkpoint_id)
        before = tree.current_run(root)
        _refuse_live(tree, before)
        _refuse_taken_back(point)
        open_then = {stored["toolCallId"]: stored for stored in point.calls}
        kept = _calls_in_log(root, point.message_position)
        if _has_delegations(root, open_then):
            raise NotResumable("Sub-agents were at work at this checkpoint.", cause="children")
        partial = any(stored["state"] in CALL_UNANSWERED for stored in open_then.values())
        new = runs.start_run(
            tree,
            root,
            cause=RunCause.RESUME_FROM_CHECKPOINT,
            started_by=principal.id,
            continues=before,
            status=RunStatus.SUSPENDED_CLIENT_TOOL if partial else RunStatus.QUEUED,
        )
        if before is not None and before.superseded_by_id is None:
            runs.update_run(before, superseded_by_id=new.id)
        _hide_messages(root, point, new)
        _discard_later_calls(tree, root, kept)
        _restore_calls(tree, root, new, open_then)
        root.state = point.state
        tree.emit(EventType.STREAM_RESYNC, root, new, reason="rewind", checkpointId=checkpoint_id)
        if partial:
            expose(tree, root)
        return runs.entered(tree, new)


def _refuse_live(tree: Tree, run: Run | None) -> None:
    root = tree.root
    if root.status in (SessionStatus.RUNNING, SessionStatus.STOPPING) or (
        root.status == SessionStatus.QUEUED and run is not None and run.status not in RUN_PAUSED
    ):
        raise AlreadyRunning("A turn is running.", runId=str(run.id) if run else None)
    if has_open_subagents(root):
        raise NotResumable("Sub-agents wait for answers.", cause="children")


def _refuse_taken_back(point: Checkpoint) -> None:
    """A checkpoint of steps that a rewind hid stands for a log that is not there any more: its calls would have no
    message that asked for them."""
    hidden = Message.objects.filter(session_id=point.session_id, position__lte=point.message_position)
    if hidden.filter(rolled_back_by__number__gt=point.run.number).exists():
        raise NotResumable("A rewind took the steps of this checkpoint back.", cause="rewound")


def _calls_in_log(root: Session, position: int) -> set[str]:
    """Ids of the calls that the log up to this position asks for."""
    asked = Message.objects.filter(
        session_id=root.id, role=Role.ASSISTANT, position__lte=position, rolled_back_by=None
    ).values_list("parts", flat=True)
    return {part["toolCallId"] for parts in asked.iterator() for part in parts if part["type"] == "tool_call"}


def _has_delegations(root: Session, open_then: dict[str, Any]) -> bool:
    return PendingCall.objects.filter(
        root_id=root.id, tool_call_id__in=list(open_then), kind=CallKind.SUBAGENT
    ).exists()


def _hide_messages(root: Session, point: Checkpoint, new: Run) -> None:
    live = Message.objects.filter(session_id=root.id, rolled_back_by=None)
    live.filter(position__gt=point.message_position).update(rolled_back_by=new)


def _discard_later_calls(tree: Tree, root: Session, kept: set[str]) -> None:
    """P-08: calls of steps that the rewind took back answer `rewound` from now on."""
    calls = PendingCall.objects.filter(session_id=root.id)
    later = [call for call in calls if call.tool_call_id not in kept]
    level = later
    while level:
        # What a sub-agent asked for goes with the call that started it, also when a stop had closed that one.
        level = list(PendingCall.objects.filter(session__parent_call__in=level))
        later = [*later, *level]
    PendingCall.objects.filter(pk__in=[call.pk for call in later]).exclude(state=CallState.DISCARDED).update(
        state=CallState.DISCARDED, discard_reason=DiscardReason.REWOUND, settled_at=tree.now
    )
    _forget(tree, [call.tool_call_id for call in later])


def _forget(tree: Tree, ids: list[str]) -> None:
    for table in (CallTombstone, CallOwnership):
        table.objects.filter(root_id=tree.root.id, tool_call_id__in=ids).delete()


def _restore_calls(tree: Tree, root: Session, new: Run, open_then: dict[str, Any]) -> None:
    """P-16: calls that were open at the checkpoint are open again, with the answers they had then."""
    calls = list(PendingCall.objects.filter(root_id=root.id, tool_call_id__in=list(open_then)))
    _forget(tree, [call.tool_call_id for call in calls])
    for call in calls:
        _restore(call, open_then[call.tool_call_id], new.id)
        call.save()
    CallOwnership.objects.bulk_create(
        [
            CallOwnership(
                root_id=root.id, tool_call_id=call.tool_call_id, owner_session_id=root.id, created_at=tree.now
            )
            for call in calls
            if call.kind in CALL_EXTERNAL
        ]
    )


def _restore(call: PendingCall, stored: dict[str, Any], run_id: UUID) -> None:
    answered = stored["state"] not in CALL_UNANSWERED
    # A call that was shown then is exposed anew: its wait begins again, and a client sees a new `tool_start`.
    call.state = CallState.ANSWERED if answered else CallState.HELD
    call.run_id = run_id
    call.answer_kind = stored["answerKind"]
    call.answer_json = stored["answerJson"]
    call.answer_error = stored["answerError"]
    call.error_code = stored["errorCode"]
    call.edited_arguments_json = stored["editedArgumentsJson"]
    call.discard_reason = None
    call.settled_at = None
    call.body_started_at = None
    call.claimed_by = call.claimed_at = None
    # A late answer of its second life is told like that of its first.
    call.late_answer_json = call.late_answered_at = call.late_notice = None
    if not answered:
        call.answered_at = call.exposed_at = call.deadline_at = None
    if call.kind == CallKind.APPROVAL:
        call.approval_id = f"{run_id}::{call.tool_call_id}"
