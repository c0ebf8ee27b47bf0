"""Commands over a socket: the same operations, caps, rate and answers as over HTTP (R-366)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from helix import clock, jsontext
from helix.answers import MAX_ID_CHARACTERS
from helix.edge.frames import reply_text
from helix.edge.refusals import refusal_of
from helix.errors import HelixError, RateLimited, ValidationFailed
from helix.operations import body_cap, check_body_size, perform
from helix.streaming.gate import Scope, principal_of

PING: Final = "ping"
OPERATION_OF: Final[dict[str, str]] = {
    "message": "messages",
    "submit_tool_result": "submit-tool-result",
    "claim": "claim",
    "interrupt": "interrupt",
    "abort": "abort",
}
MOST_IN_FLIGHT: Final = 8
# A body may be as deep as over HTTP; the frame around it is one level more.
FRAME_DEPTH: Final = jsontext.MAX_DEPTH + 1
# Reasons for which a text is no JSON at all; what is refused for others still names its request.
_NOT_JSON: Final = ("syntax", "encoding")


class UnknownFrame(Exception):
    """A frame that is not JSON or has no known type: the socket closes with 4400."""


@dataclass(frozen=True)
class Command:
    """One frame of a client. ``refusal`` is set when its content was refused before it meant anything."""

    type: str
    request_id: str | None
    body: Mapping[str, Any]
    size: int
    refusal: HelixError | None = None


def parse_frame(text: str | None) -> Command:
    """Raises: `UnknownFrame`."""
    if text is None:
        raise UnknownFrame
    size = len(text.encode("utf-8", "surrogatepass"))
    refusal: HelixError | None = None
    try:
        frame = jsontext.loads(text, max_depth=FRAME_DEPTH)
    except jsontext.JsonRefused as refused:
        if refused.reason in _NOT_JSON:
            raise UnknownFrame from refused
        frame = _leniently(text)
        refusal = ValidationFailed("The request is not valid.")
    kind = frame.get("type") if isinstance(frame, dict) else None
    if kind not in (PING, *OPERATION_OF):
        raise UnknownFrame
    request_id, body = frame.get("requestId"), frame.get("body", {})
    if not (isinstance(request_id, str) and 1 <= len(request_id) <= MAX_ID_CHARACTERS and _is_clean(request_id)):
        request_id = None
    if (request_id is None and kind != PING) or not isinstance(body, dict):
        refusal = refusal or ValidationFailed("The request is not valid.")
        body = {}
    return Command(kind, request_id, body, size, refusal)


def answered_without_running(command: Command, in_flight: int) -> str | None:
    """The reply to a ping, and to a command beyond the `MOST_IN_FLIGHT`; None: it is to be run."""
    if command.type == PING:
        return reply_text(command.request_id, 200, {})
    if in_flight < MOST_IN_FLIGHT:
        return None
    busy = RateLimited("Too many commands are under way on this socket.", limit=MOST_IN_FLIGHT)
    return reply_text(command.request_id, busy.status, busy.as_body())


def run(command: Command, *, scope: Scope, session_id: str) -> str:
    """Do what the command asks, in a thread, and say what its HTTP route would have answered."""
    operation = OPERATION_OF[command.type]
    try:
        principal = principal_of(operation, scope, session_id=session_id)
        if command.size > body_cap(operation):
            check_body_size(operation, jsontext.size(command.body))
        if command.refusal is not None:
            raise command.refusal
        reply = perform(
            operation,
            principal=principal,
            session_id=session_id,
            body=command.body,
            door="websocket",
            now=clock.utc_now(),
        )
    except Exception as failure:
        refusal = refusal_of(failure, operation)
        return reply_text(command.request_id, refusal.status, refusal.as_body())
    return reply_text(command.request_id, reply.status, reply.body)


def _leniently(text: str) -> Any:
    """The frame's own fields from a text whose content is refused. Nothing else of it is used, least of all numbers."""
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_int=len)
    return None


def _is_clean(text: str) -> bool:
    try:
        jsontext.checked(text)
    except jsontext.JsonRefused:
        return False
    return True
