"""Rows as clients see them: camelCase, versioned by tolerance, and the one place where private values are hidden.

A private server tool shows its real name, input ``{}`` and a fixed placeholder for result and error in every byte that
leaves (R-395). Events are written redacted; messages and calls are redacted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from helix.models import Checkpoint, Message, PendingCall, Run, Session, StreamEvent
from helix.selectors import SnapshotRows
from helix.statuses import SESSION_BUTTONS, CallState, Role, RunStatus, SessionStatus

PLACEHOLDER = "[private]"

_HIDDEN_PARTS = ("provider",)


def instant(value: datetime | None) -> str | None:
    """RFC 3339 in UTC, or None."""
    return None if value is None else value.isoformat().replace("+00:00", "Z")


def event(row: StreamEvent) -> dict[str, Any]:
    """One event with the envelope of R-510; the payload's own fields stand beside it."""
    return {
        **row.payload,
        "type": row.type,
        "sequence": row.sequence,
        "sessionId": str(row.root_id),
        "agentId": str(row.session_id),
        "runId": str(row.run_id) if row.run_id else None,
        "step": row.step,
        "timestamp": instant(row.created_at),
    }


def message(row: Message) -> dict[str, Any] | None:
    """One message of the log; None for a hidden one."""
    if row.hidden or row.role == Role.NOTICE:
        return None
    shown: dict[str, Any] = {
        "id": str(row.pk),
        "position": row.position,
        "role": row.role,
        "parts": [part(one) for one in row.parts if one.get("type") not in _HIDDEN_PARTS],
        "runId": str(row.run_id) if row.run_id else None,
        "step": row.step,
        "createdAt": instant(row.created_at),
    }
    if row.tool_call_id is not None:
        shown["toolCallId"] = row.tool_call_id
    if row.error_code is not None:
        shown["errorCode"] = row.error_code
    if row.interrupted:
        shown["helixInterrupted"] = {"stop": "interrupt"}
    return shown


def part(stored: dict[str, Any]) -> dict[str, Any]:
    """One part of a message without what a client must not see."""
    shown = {
        key: value for key, value in stored.items() if key not in ("private", "providerCallId") and value is not None
    }
    if not stored.get("private"):
        return shown
    if stored["type"] == "tool_call":
        shown["argumentsJson"] = "{}"
    for key in ("text", "value", "error", "note"):
        if key in shown:
            shown[key] = PLACEHOLDER
    return shown


def pending_message(run: Run, position: int) -> dict[str, Any]:
    """A message that waits on a run stands at its future place, marked (client.md section 2)."""
    return {
        "id": f"pending-{run.pk}",
        "position": position,
        "role": Role.USER,
        "parts": run.entry_message,
        "runId": str(run.pk),
        "pending": True,
    }


def pending_tool(
    call: PendingCall, path: list[str], remote_deadlines: Mapping[str, datetime | None] | None = None
) -> dict[str, Any]:
    """An exposed, unanswered external call (R-528). A client and a reviewer see its arguments in full.

    remote_deadlines: of calls that a peer owns, by their id here (R-214).
    """
    deadline_at = (remote_deadlines or {}).get(call.tool_call_id, call.deadline_at)
    shown: dict[str, Any] = {
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "kind": call.kind,
        "argumentsJson": call.arguments_json,
        "argumentsDigest": call.arguments_digest,
        "runId": str(call.run_id),
        "agentType": path[-1],
        "agentPath": path,
        "createdAt": instant(call.created_at),
        "exposedAt": instant(call.exposed_at),
        "deadlineAt": instant(deadline_at),
        "claimed": call.claimed_by is not None,
    }
    if call.approval_id is not None:
        shown["approvalId"] = call.approval_id
    if call.schema_digest:
        shown["schemaDigest"] = call.schema_digest
    return shown


def call(row: PendingCall) -> dict[str, Any]:
    """One call of any kind and state, for lists. The answer itself is in the log."""
    return {
        "toolCallId": row.tool_call_id,
        "toolName": row.tool_name,
        "kind": row.kind,
        "state": row.state,
        "seq": row.seq,
        "argumentsJson": "{}" if row.private else row.arguments_json,
        "runId": str(row.run_id),
        "agentType": row.session.agent_type,
        "createdAt": instant(row.created_at),
        "exposedAt": instant(row.exposed_at),
        "deadlineAt": instant(row.deadline_at),
        "answeredAt": instant(row.answered_at) if row.state != CallState.DISCARDED else None,
        "answerKind": row.answer_kind,
        "errorCode": row.error_code,
        "reason": row.discard_reason,
        "settledAt": instant(row.settled_at),
    }


def _pending(rows: SnapshotRows) -> list[dict[str, Any]]:
    return [pending_tool(one, rows.paths[one.session_id], rows.remote_deadlines) for one in rows.pending]


def status(rows: SnapshotRows) -> dict[str, Any]:
    """What `GET status` says (R-361); to a server that delegated the session also the schemas of its open calls and
    the output (R-213).
    """
    run = rows.run
    shown: dict[str, Any] = {
        "sessionId": rows.named,
        "status": rows.root.status,
        "runId": str(run.pk) if run else None,
        "runStatus": run.status if run else None,
        "awaitingClientTool": rows.root.status == SessionStatus.AWAITING_CLIENT_TOOL,
        "pendingCalls": _pending(rows),
        "streamSequence": rows.root.stream_sequence,
    }
    if run is not None and run.error_detail and rows.root.status == SessionStatus.FAILED:
        shown["errorDetail"] = run.error_detail
    if rows.root.delegation_id is not None:
        for one, row in zip(shown["pendingCalls"], rows.pending, strict=True):
            one["outputSchema"] = row.output_schema
        if run is not None and run.status == RunStatus.COMPLETED:
            shown["output"] = run.output
    return shown


def snapshot(rows: SnapshotRows, now: datetime) -> dict[str, Any]:
    """The conversation as one consistent read saw it (R-519, client.md section 2)."""
    root, run = rows.root, rows.run
    can_send, can_cancel = SESSION_BUTTONS[SessionStatus(root.status)]
    messages = [visible for one in rows.messages if (visible := message(one)) is not None]
    if run is not None and run.entry_message:
        messages.append(pending_message(run, root.message_position + 1))
    shown: dict[str, Any] = {
        "sessionId": rows.named,
        "agentType": root.agent_type,
        "status": root.status,
        "streamStatus": rows.stream_status,
        "canSend": can_send,
        "canCancel": can_cancel,
        "pendingTools": _pending(rows),
        "messages": messages,
        "state": root.state,
        "runId": str(run.pk) if run else None,
        "streamSequence": root.stream_sequence,
        "timestamp": instant(now),
    }
    if run is not None and run.error_detail and root.status == SessionStatus.FAILED:
        shown["errorDetail"] = run.error_detail
    return shown


def session_row(root: Session) -> dict[str, Any]:
    """One conversation in a list (R-567)."""
    return {
        "sessionId": str(root.pk),
        "clientId": root.client_id,
        "agentType": root.agent_type,
        "status": root.status,
        "waitingSince": instant(root.waiting_since),
        "tags": root.tags,
        "metadata": root.metadata,
        "createdAt": instant(root.created_at),
        "updatedAt": instant(root.updated_at),
    }


def checkpoint(row: Checkpoint) -> dict[str, Any]:
    return {
        "checkpointId": row.checkpoint_id,
        "runId": str(row.run_id),
        "stepCount": row.step_count,
        "messagePosition": row.message_position,
        "openCalls": [one["toolCallId"] for one in row.calls],
        "createdAt": instant(row.created_at),
    }


def checkpoint_in_full(row: Checkpoint) -> dict[str, Any]:
    """What a rewind to it would restore; answers stay in the log, and of a call its place in 4.3 is enough."""
    calls = [{"toolCallId": one["toolCallId"], "state": one["state"]} for one in row.calls]
    return {**checkpoint(row), "calls": calls, "state": row.state, "streamSequence": row.stream_sequence}
