"""Force-fail a call whatever its state: one decision for the console and the command (R-665, R-666, R-677)."""

from __future__ import annotations

from datetime import datetime

from helix.answers import MAX_ERROR_BYTES, Failure, bounded_text
from helix.models import PendingCall
from helix.principals import Principal
from helix.services.force import fail_body
from helix.services.submit import submit_answer
from helix.statuses import CallKind, CallState


def body_executes(call: PendingCall) -> bool:
    """Whether giving the call up means giving up a running body; a sub-agent has none, its session is stopped."""
    return call.state == CallState.EXECUTING and call.kind != CallKind.SUBAGENT


def can_be_failed(call: PendingCall) -> bool:
    """Whether force-failing changes anything: the call waits outside, or its body executes."""
    return body_executes(call) or (call.is_external and call.state == CallState.AWAITING)


def force_fail(
    call: PendingCall, *, principal: Principal, error: str, now: datetime, door: str, override: bool = False
) -> str:
    """Settle the call as failed with the operator's words; a sentence that says what became of it.

    A call that waits outside gets an error through the submit that every client uses: the schema is skipped and the
    model sees a failed result. Raises: the refusals of `submit_answer` and `fail_body`; `ValidationFailed` for a text
    over the limit.
    """
    text = bounded_text({"error": error}, "error", MAX_ERROR_BYTES) or ""
    session_id = str(call.root_id)
    if body_executes(call):
        fail_body(
            principal=principal,
            session_id=session_id,
            tool_call_id=call.tool_call_id,
            error=text,
            now=now,
            door=door,
            override=override,
        )
        return "force_failed: the run is queued for another worker"
    done = submit_answer(
        principal=principal,
        session_id=session_id,
        tool_call_id=call.tool_call_id,
        answer=Failure(error=text),
        now=now,
        door=door,
    )
    follows = done.continuation["kind"] if done.continuation else "nothing"
    return f"{done.status}: {follows} follows"
