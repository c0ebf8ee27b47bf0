"""Operations that change rows: each parses its body, calls one service and says what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from helix import answers
from helix.answers import bounded_text, flag, malformed, parse_submission, required_text, text_field
from helix.errors import PayloadTooLarge
from helix.operations.asked import Asked, Reply
from helix.operations.bodies import (
    SUBMIT,
    alias_field,
    lifetime_field,
    named_field,
    object_field,
    parse_message,
    tags_field,
)
from helix.operations.rate import count_submit
from helix.rows.runs import Entered
from helix.services.claims import claim_call
from helix.services.entries import resume, send_message, start
from helix.services.retry import retry_run
from helix.services.rewind import rewind
from helix.services.sessions import create_session
from helix.services.stops import stop_session
from helix.services.submit import submit_answer
from helix.statuses import StopKind

log = logging.getLogger("helix.operations")

MAX_STOP_REASON_BYTES = 8192


def submit_tool_result(asked: Asked) -> Reply:
    """R-323 from step 3 on: shape, rate, result size, then what only rows can tell."""
    submission = parse_submission(asked.body)
    count_submit(asked.principal, asked.session, asked.now)
    try:
        answers.check_result_size(submission.answer)
    except PayloadTooLarge as refusal:
        sizes = {name: refusal.fields[name] for name in ("sizeBytes", "limitBytes")}
        log.warning("submit_tool_result.result_too_large", extra={"toolCallId": submission.tool_call_id, **sizes})
        raise
    done = submit_answer(
        principal=asked.principal,
        session_id=asked.session,
        tool_call_id=submission.tool_call_id,
        answer=submission.answer,
        run_id=submission.run_id,
        now=asked.now,
        door=asked.door,
    )
    return Reply(200, done.as_body())


def create(asked: Asked) -> Reply:
    session = create_session(
        principal=asked.principal,
        agent_type=required_text(asked.body, "agentType"),
        client_id=alias_field(text_field(asked.body, "clientId"), "clientId"),
        tags=tags_field(asked.body),
        metadata=object_field(asked.body, "metadata"),
        state=object_field(asked.body, "state"),
        expires_after=lifetime_field(asked.body, "expiresAfterMs"),
        now=asked.now,
    )
    return Reply(201, {"sessionId": str(session.id)})


def begin(asked: Asked) -> Reply:
    entered = start(
        principal=asked.principal,
        agent_type=required_text(asked.body, "agentType"),
        message=parse_message(asked.body.get("message")),
        session_id=alias_field(asked.session_id, "sessionId"),
        state=object_field(asked.body, "state"),
        metadata=object_field(asked.body, "metadata"),
        delegation_id=text_field(asked.body, "delegationId"),
        expires_after=lifetime_field(asked.body, "expiresAfterMs"),
        now=asked.now,
    )
    return _entered(entered, asked.session_id or entered.session_id)


def message(asked: Asked) -> Reply:
    entered = send_message(
        principal=asked.principal,
        session_id=asked.session,
        message=parse_message(asked.body.get("message")),
        abandon_pending=flag(asked.body, "abandonPending", default=False),
        client_message_id=text_field(asked.body, "clientMessageId"),
        now=asked.now,
    )
    return Reply(200, {"runId": entered.run_id, "startSequence": entered.start_sequence})


def go_on(asked: Asked) -> Reply:
    """Resume. A message without a mode means that it is to be sent."""
    given = asked.body.get("message")
    mode = asked.body.get("mode", "continue" if given is None else "with_message")
    if mode == "from_checkpoint":
        return _entered(
            rewind(
                principal=asked.principal,
                session_id=asked.session,
                checkpoint_id=required_text(asked.body, "checkpointId"),
                now=asked.now,
            ),
            asked.session,
        )
    if mode not in ("continue", "with_message"):
        malformed("mode is not one of the known values")
    entered = resume(
        principal=asked.principal,
        session_id=asked.session,
        mode=mode,
        message=parse_message(given) if mode == "with_message" else None,
        abandon_pending=flag(asked.body, "abandonPending", default=False),
        now=asked.now,
    )
    return _entered(entered, asked.session)


def retry(asked: Asked) -> Reply:
    given = asked.body.get("message")
    entered = retry_run(
        principal=asked.principal,
        session_id=asked.session,
        message=None if given is None else parse_message(given),
        now=asked.now,
    )
    return _entered(entered, asked.session)


def stop(kind: StopKind) -> Callable[[Asked], Reply]:
    """The operation that stops a conversation softly or hard."""

    def stopping(asked: Asked) -> Reply:
        stopped = stop_session(
            principal=asked.principal,
            session_id=asked.session,
            kind=kind,
            reason=bounded_text(asked.body, "reason", MAX_STOP_REASON_BYTES) or "",
            delegation_id=text_field(asked.body, "delegationId"),
            now=asked.now,
        )
        return Reply(200, stopped.as_body())

    return stopping


def claim(asked: Asked) -> Reply:
    won = claim_call(
        principal=asked.principal,
        session_id=asked.session,
        tool_call_id=named_field(asked.body, "toolCallId", asked.tool_call_id),
        claimant=required_text(asked.body, "claimant"),
        now=asked.now,
    )
    return Reply(200, {"claimed": won})


def _entered(entered: Entered, named: str) -> Reply:
    """A stream is named by its session, and a session as its caller named it (R-365)."""
    body: dict[str, Any] = {
        "sessionId": named,
        "streamId": named,
        "runId": entered.run_id,
        "startSequence": entered.start_sequence,
    }
    return Reply(200, body)


WRITES: dict[str, Callable[[Asked], Reply]] = {
    SUBMIT: submit_tool_result,
    "sessions-create": create,
    "start": begin,
    "messages": message,
    "resume": go_on,
    "retry": retry,
    "interrupt": stop(StopKind.INTERRUPT),
    "abort": stop(StopKind.ABORT),
    "claim": claim,
}
