"""What a stored answer becomes in the log: the result as the model will read it."""

from __future__ import annotations

from typing import Any

from helix import jsontext
from helix.errors import CLIENT_TOOL_ERROR_CODES
from helix.models import PendingCall, Session
from helix.rows.calls import Outcome, readable
from helix.statuses import AnswerKind, CallKind


def result_body(value: Any) -> dict[str, Any]:
    """A string is kept verbatim and marked as text; everything else is JSON (R-017)."""
    return {"text": value} if isinstance(value, str) else {"value": value}


def outcome_of(session: Session, call: PendingCall) -> Outcome:
    """The result of an answered external call, as the model will read it."""
    kind = AnswerKind(call.answer_kind)
    if kind == AnswerKind.RESULT:
        return Outcome(call, kind, result_body(jsontext.loads(call.answer_json or "null")))
    if kind == AnswerKind.ERROR:
        return _submitted_error(session, call)
    detail = None
    if kind == AnswerKind.DENIED:
        detail = (jsontext.loads(call.answer_json or "{}") or {}).get("reason")
    code = call.error_code or str(kind)
    return Outcome(call, kind, {"error": readable(session, code, call.kind, detail)}, error_code=code)


def _submitted_error(session: Session, call: PendingCall) -> Outcome:
    """R-072: as given; a built-in code becomes its readable text, with the code beside it."""
    given = call.answer_error or ""
    if given in CLIENT_TOOL_ERROR_CODES:
        return Outcome(call, AnswerKind.ERROR, {"error": readable(session, given, call.kind)}, error_code=given)
    if call.kind == CallKind.APPROVAL:
        text = readable(session, "not_executed", call.kind, given)
        return Outcome(call, AnswerKind.ERROR, {"error": text}, error_code="not_executed")
    return Outcome(call, AnswerKind.ERROR, {"error": given}, error_code=call.error_code)
