"""The protocol: the operations of contract 5.L that a delegating server needs, and how their answers are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote

from django.utils.dateparse import parse_datetime

from helix import clock, schemas
from helix.peers.port import (
    Exchange,
    PeerCall,
    PeerClosing,
    PeerRefused,
    PeerStatus,
    PeerUnreachable,
    RemoteSubAgentClientToolUnsupportedError,
)
from helix.statuses import CALL_EXTERNAL, RUN_FINAL, SESSION_AT_REST, CallKind, CallState, StopKind

MAX_ID = 256
# The codes of an answer to a submit that take it: what was owed is paid.
TAKEN = ("accepted", "already_completed", "late_answer_after_timeout")


class Peer:
    """One peer, asked through ``exchange``. Every method may raise `PeerRefused` or `PeerUnreachable`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def start(self, *, agent_type: str, message: str, delegation_id: str) -> str:
        """Begin the child; its session id at the peer. Again is once: the delegation names the session.

        A peer that has gone further than the first run answers ALREADY_COMPLETED: the start had arrived (R-359).
        """
        body = {
            "sessionId": delegation_id,
            "delegationId": delegation_id,
            "agentType": agent_type,
            "message": message,
        }
        try:
            answer = self._exchange("POST", "start", body)
        except PeerRefused as refusal:
            if refusal.code == "ALREADY_COMPLETED":
                return delegation_id
            raise
        return _id(answer, "sessionId")

    def status(self, session_id: str) -> PeerStatus:
        """How the child stands. Raises also: `RemoteSubAgentClientToolUnsupportedError` (R-200)."""
        answer = self._exchange("GET", "status", {"sessionId": session_id})
        calls = answer.get("pendingCalls")
        if answer.get("awaitingClientTool") is True and not calls:
            raise RemoteSubAgentClientToolUnsupportedError("the peer lists none of the calls that it waits for")
        sequence = answer.get("streamSequence", 0)
        if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 <= sequence < 2**63:
            _nonsense("streamSequence")
        run_status = answer.get("runStatus")
        is_over = answer.get("status") in SESSION_AT_REST and run_status in RUN_FINAL
        detail = answer.get("errorDetail")
        code = detail.get("code") if isinstance(detail, dict) else None
        return PeerStatus(
            sequence=sequence,
            calls=tuple(_call(one) for one in _list(calls)),
            ended_as=run_status if is_over else None,
            output=answer.get("output"),
            error_code=code if isinstance(code, str) else None,
        )

    def closing(self, session_id: str, tool_call_id: str) -> PeerClosing | None:
        """How a call that is not listed any more was closed; None: the peer does not say."""
        try:
            path = f"sessions/{quote(session_id, safe='')}/calls"
            answer = self._exchange("GET", path, {"toolCallId": tool_call_id})
        except PeerRefused:
            return None
        for one in _list(answer.get("calls")):
            if isinstance(one, dict) and one.get("toolCallId") == tool_call_id:
                kind, reason = one.get("answerKind"), one.get("reason")
                discarded = one.get("state") == CallState.DISCARDED
                return PeerClosing(
                    answer_kind=kind if isinstance(kind, str) and not discarded else None,
                    reason=reason if isinstance(reason, str) and discarded else None,
                )
        return None

    def submit(self, session_id: str, answer: Mapping[str, Any]) -> str:
        """Hand an answer on; the status with which the peer took it.

        Raises also: `RemoteSubAgentClientToolUnsupportedError` for a peer without this operation (R-200).
        """
        try:
            taken = self._exchange("POST", "submit-tool-result", {"sessionId": session_id, **answer})
        except PeerRefused as refusal:
            lacking = refusal.status in (404, 405, 501) and not refusal.is_typed
            if lacking or refusal.code == "framework_not_supported":
                raise RemoteSubAgentClientToolUnsupportedError("the peer does not take relayed answers") from refusal
            raise
        status = taken.get("status")
        if status not in TAKEN:
            _nonsense("status")
        return str(status)

    def stop(self, session_id: str, *, kind: str, delegation_id: str, reason: str) -> bool:
        """Stop the child by its delegation. False: the peer knows no such session, so there is nothing to stop."""
        path = "abort" if kind == StopKind.ABORT else "interrupt"
        try:
            self._exchange("POST", path, {"sessionId": session_id, "delegationId": delegation_id, "reason": reason})
        except PeerRefused as refusal:
            if refusal.code == "NOT_FOUND":
                return False
            raise
        return True


def _nonsense(name: str) -> NoReturn:
    raise PeerUnreachable(f"the peer's answer has no usable {name}")


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        _nonsense("list of calls")
    return value


def _id(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID:
        _nonsense(name)
    return value


def _call(value: Any) -> PeerCall:
    if not isinstance(value, dict):
        _nonsense("call")
    kind, arguments, approval_id = value.get("kind"), value.get("argumentsJson"), value.get("approvalId")
    if kind not in CALL_EXTERNAL:
        _nonsense("kind")
    if not isinstance(arguments, str):
        _nonsense("argumentsJson")
    if (kind == CallKind.APPROVAL) != isinstance(approval_id, str):
        _nonsense("approvalId")
    return PeerCall(
        tool_call_id=_id(value, "toolCallId"),
        tool_name=_id(value, "toolName"),
        kind=kind,
        arguments_json=arguments,
        approval_id=approval_id,
        deadline_at=_instant(value.get("deadlineAt")),
        output_schema=_schema(value.get("outputSchema")),
    )


def _instant(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    return clock.in_utc(found) or _nonsense("deadlineAt")


def _schema(value: Any) -> dict[str, Any] | None:
    """A schema that this server cannot use is left to the peer, which judges by it in any case."""
    if not isinstance(value, dict):
        return None
    try:
        schemas.check_schema(value)
    except ValueError:
        return None
    return value
