"""The log as a model may read it: every tool call is followed directly by its one result (R-144, R-468).

Rows are written in commits, so the order of the log can be looser than what providers accept: a call may have been
left without a result by an import or a lost worker (R-457), and a message may stand between a call and its result.
``arrange`` is pure: it heals the reading and writes nothing. It cuts nothing off either: a model always gets the
whole live history (R-467).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from helix.loop.messages import LoggedMessage, Part
from helix.loop.texts import text_for

NOT_EXECUTED = "not_executed"


def arrange(messages: Iterable[LoggedMessage]) -> tuple[LoggedMessage, ...]:
    """The messages with each call's result directly after the assistant message, in emission order.

    A call without a result gets a not-executed one; a result without a call is dropped, and so is a second result
    of one call. Other messages keep their order. Arranging twice changes nothing.
    """
    log = list(messages)
    results: defaultdict[str, deque[LoggedMessage]] = defaultdict(deque)
    for message in log:
        if message.role == "tool" and message.tool_call_id is not None:
            results[message.tool_call_id].append(message)

    arranged: list[LoggedMessage] = []
    for message in log:
        if message.role == "tool":
            continue
        arranged.append(message)
        for call in message.calls():
            found = results[call["toolCallId"]]
            arranged.append(found.popleft() if found else healed(call))
    return tuple(arranged)


def unpaired(messages: Iterable[LoggedMessage]) -> tuple[Part, ...]:
    """The calls that have no result in the log, in order: what heal has to write (R-457)."""
    log = list(messages)
    answered = {message.tool_call_id for message in log if message.role == "tool"}
    return tuple(call for message in log for call in message.calls() if call["toolCallId"] not in answered)


def healed(call: Part) -> LoggedMessage:
    """The result of a call that never ran and of which nothing more is known."""
    result = {
        "type": "tool_result",
        "toolCallId": call["toolCallId"],
        "providerCallId": call.get("providerCallId"),
        "toolName": call["toolName"],
        "private": call.get("private", False),
        "error": text_for(NOT_EXECUTED),
        "errorCode": NOT_EXECUTED,
        "note": None,
    }
    return LoggedMessage("tool", (result,), tool_call_id=call["toolCallId"], error_code=NOT_EXECUTED)
