"""Write down what a session is after a step (R-566). The row's identity is the order (R-465)."""

from __future__ import annotations

import secrets
from typing import Any

from helix.models import Checkpoint, PendingCall, Run, Session
from helix.rows.calls import open_calls
from helix.rows.tree import Tree
from helix.statuses import EventType


def write_checkpoint(tree: Tree, session: Session, run: Run) -> Checkpoint:
    """A checkpoint of the session as this transaction leaves it."""
    milliseconds = int(tree.now.timestamp() * 1000)
    name = f"cpv1-{session.id}-s{run.step_count}-t{milliseconds}-{secrets.token_hex(3)}"
    sequence = tree.emit(EventType.CHECKPOINT_CREATED, session, run, checkpointId=name)
    return Checkpoint.objects.create(
        checkpoint_id=name,
        session_id=session.id,
        run_id=run.id,
        step_count=run.step_count,
        message_position=session.message_position,
        state=session.state,
        calls=[as_stored(call) for call in open_calls(session)],
        stream_sequence=sequence,
        created_at=tree.now,
    )


def as_stored(call: PendingCall) -> dict[str, Any]:
    """An open call with its stored answer, version 1: what a rewind restores."""
    return {
        "v": 1,
        "toolCallId": call.tool_call_id,
        "state": call.state,
        "answerKind": call.answer_kind,
        "answerJson": call.answer_json,
        "answerError": call.answer_error,
        "errorCode": call.error_code,
        "editedArgumentsJson": call.edited_arguments_json,
    }
