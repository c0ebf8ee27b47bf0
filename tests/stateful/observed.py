"""What the rows say, in the words of the reference, so that the two can be compared as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from helix import jsontext, selectors
from helix.errors import HelixError
from helix.models import Checkpoint, Message, Run
from helix.statuses import CALL_UNANSWERED
from tests.kit.invariants import Rows
from tests.kit.world import T0
from tests.stateful.reference import Reference, Refused

Entry = tuple[Any, ...]


def entry_of(message: Any) -> Entry:
    """One message of the log or of a request, as `Conversation.log` writes it."""
    parts = message.parts
    if message.role == "user":
        return "user", tuple(part["text"] for part in parts)
    if message.role == "assistant":
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        return "assistant", text, tuple(part["toolCallId"] for part in parts if part["type"] == "tool_call")
    if message.role == "notice":
        return "notice", re.findall(r"\(call (\S+)\)", parts[0]["text"])[0]
    part = parts[0]
    value = part.get("text", part.get("value"))
    if part["errorCode"] is None and "error" in part:
        value = part["error"]
    return "result", part["toolCallId"], part["errorCode"], value


def milliseconds(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - T0) // timedelta(milliseconds=1)


def live_messages(session_id: UUID) -> QuerySet[Message]:
    return Message.objects.filter(session_id=session_id, rolled_back_by=None)


def answer_of(stored: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The answer that a call had at a checkpoint, and its value; (None, None) when it had none."""
    if stored["state"] in CALL_UNANSWERED:
        return None, None
    is_result = stored["answerKind"] == "result"
    return stored["answerKind"], jsontext.loads(stored["answerJson"]) if is_result else stored["answerError"]


def was_taken_back(point: Checkpoint) -> bool:
    """Whether a later rewind hid a part of the log that the checkpoint stands for."""
    hidden = Message.objects.filter(session_id=point.session_id, position__lte=point.message_position)
    return hidden.filter(rolled_back_by__number__gt=point.run.number).exists()


def run_names(root_id: UUID) -> dict[UUID, str]:
    """Every run of the tree by the name that the reference gives it."""
    rows = Run.objects.filter(session__root_id=root_id)
    named = rows.values_list("id", "session__parent_call__tool_call_id", "number")
    return {run_id: f"{call_id or 'root'}#{number}" for run_id, call_id, number in named}


def observed(root_id: UUID, rows: Rows) -> dict[str, Any]:
    """Everything visible of a tree: status, pending tools, runs, calls and logs."""
    asked_by = {call.id: call.tool_call_id for call in rows.calls}
    names = {row.id: asked_by[row.parent_call_id] if row.parent_call_id else "root" for row in rows.sessions.values()}
    logs: dict[str, list[Entry]] = {name: [] for name in names.values()}
    for message in rows.messages:
        logs[names[message.session_id]].append(entry_of(message))
    root = rows.sessions[root_id]
    return {
        "status": root.status,
        "pending": [(one.tool_call_id, milliseconds(one.deadline_at)) for one in selectors.pending_tools(root)],
        "runs": {
            f"{names[run.session_id]}#{run.number}": (
                run.cause,
                run.status,
                run.superseded_by_id is not None,
                run.error_code,
            )
            for run in rows.runs.values()
        },
        "calls": {
            one.tool_call_id: (one.state, one.answer_kind if one.is_external else None, one.discard_reason)
            for one in rows.calls
        },
        "logs": logs,
    }


def expected(ref: Reference) -> dict[str, Any]:
    """The same of the reference."""
    runs = [run for conversation in ref.conversations for run in conversation.runs]
    return {
        "status": ref.status(),
        "pending": [(call.id, call.deadline) for call in ref.pending()],
        "runs": {run.name: (run.cause, run.status, run.superseded, run.code) for run in runs},
        "calls": {
            call.id: (call.state, call.answer if call.is_external else None, call.reason) for call in ref.calls.values()
        },
        "logs": {conversation.name: conversation.log for conversation in ref.conversations},
    }


def differences(ref: Reference, root_id: UUID, rows: Rows) -> dict[str, tuple[Any, Any]]:
    """What the rows say and what the reference says, where they disagree."""
    stored, model = observed(root_id, rows), expected(ref)
    return {key: (stored[key], model[key]) for key in stored if stored[key] != model[key]}


# -- outcomes ----------------------------------------------------------------------------------------------------------


def told(act: Callable[[], Any], read: Callable[[Any], Any] = lambda outcome: outcome) -> Any:
    """What a verb answers, or its refusal as (code, reason or cause)."""
    try:
        return read(act())
    except Refused as refusal:
        return refusal.told
    except HelixError as refusal:
        return refusal.code, refusal.fields.get("reason", refusal.fields.get("cause"))


def agree(answer: Any, wanted: Any) -> bool:
    """Whether the body of a submit's answer says what the reference says; it may name any of several runs."""
    if not isinstance(answer, Mapping):
        return bool(answer == wanted)
    status, continuation = wanted
    if answer["status"] != status or (continuation is None) != ("continuation" not in answer):
        return False
    if continuation is None:
        return True
    kind, named = continuation
    run = answer["continuation"].get("run")
    return answer["continuation"]["kind"] == kind and (run in named if named else run is None)


def with_names(answer: Mapping[str, Any], names: Mapping[UUID, str]) -> dict[str, Any]:
    """The body of a submit's answer with the run that it points to by its name."""
    body = dict(answer)
    if "continuation" in body:
        given = body["continuation"]
        run_id = given.get("runId", given.get("blockingRunId"))
        body["continuation"] = {"kind": given["kind"], "run": names[UUID(run_id)] if run_id else None}
    return body


def transcript_of(messages: Iterable[Any]) -> list[Entry]:
    return [entry_of(message) for message in messages]
