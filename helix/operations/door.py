"""The one door: an operation's name, a principal and a parsed body in; a reply or a refusal out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from helix.answers import text_field
from helix.errors import Forbidden
from helix.operations.access import check_scope
from helix.operations.asked import Asked, Reply
from helix.operations.bodies import checked_name, named_field
from helix.operations.reads import READS
from helix.operations.writes import WRITES
from helix.principals import Principal

OPERATIONS: dict[str, Callable[[Asked], Reply]] = {**READS, **WRITES}
"""Every operation that answers at once; chat, streams and sockets are other people's."""

_WITHOUT_SESSION = ("sessions-list", "sessions-create")
_BEGINNINGS = ("sessions-create", "start")


def perform(
    operation: str,
    *,
    principal: Principal,
    session_id: str | None,
    body: Mapping[str, Any],
    door: str,
    now: datetime,
    tool_call_id: str | None = None,
) -> Reply:
    """Do what was asked, in the order of R-323 from step 3 on.

    session_id, tool_call_id: as the path or the socket names them; None where the body does.
    body: the parsed JSON object, or the query of a read. door: http, websocket, chat or inbox, for the audit row.
    Raises: every refusal, as a `HelixError`.
    """
    named = _session_named(operation, session_id, body)
    check_scope(principal, operation, named)
    if named is None and principal.session_id is not None and operation in _BEGINNINGS:
        # A new session would be another one than the token's.
        raise Forbidden("This credential belongs to another session.", cause="session_mismatch")
    asked = Asked(
        principal=principal,
        session_id=named,
        tool_call_id=None if tool_call_id is None else checked_name("toolCallId", tool_call_id),
        body=body,
        door=door,
        now=now,
    )
    return OPERATIONS[operation](asked)


def _session_named(operation: str, given: str | None, body: Mapping[str, Any]) -> str | None:
    if operation in _WITHOUT_SESSION:
        return None
    if given is not None:
        given = checked_name("sessionId", given)
    elif operation == "start":
        return text_field(body, "sessionId")
    return named_field(body, "sessionId", given)
