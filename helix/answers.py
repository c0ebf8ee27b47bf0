"""What a submit says: one parser for every door, from a JSON object to a frozen answer (R-061 to R-063).

A malformed body is refused with one fixed text that reveals no schema (R-315); with verbose errors on, the reason
stands beside it (R-316).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from django.utils.module_loading import import_string

from helix import conf, jsontext
from helix.errors import PayloadTooLarge, ValidationFailed

log = logging.getLogger("helix.submit")

MAX_ID_CHARACTERS = 256
MAX_ERROR_BYTES = 8192
MAX_REASON_BYTES = 8192
# An approval id is made of a run id and a call id.
MAX_APPROVAL_ID_CHARACTERS = 300


@dataclass(frozen=True)
class Result:
    """A client ran the tool; ``text`` is the value as compact JSON."""

    text: str
    value: Any


@dataclass(frozen=True)
class Failure:
    """A client tool failed, or somebody gives the call up."""

    error: str


@dataclass(frozen=True)
class Verdict:
    """A reviewer's decision. ``edited_arguments`` is compact JSON of an object."""

    approval_id: str
    approved: bool
    reason: str | None = None
    edited_arguments: str | None = None
    arguments_digest: str | None = None


Answer = Result | Failure | Verdict


@dataclass(frozen=True)
class Submission:
    session_id: str | None
    tool_call_id: str
    run_id: str | None
    answer: Answer


def malformed(why: str, **fields: Any) -> NoReturn:
    """Refuse a body with the fixed text of R-315; ``why`` is shown in verbose mode only."""
    if conf.get("HELIX_VERBOSE_VALIDATION_ERRORS"):
        fields["details"] = why
    raise ValidationFailed("The request is not valid.", **fields)


def object_of(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        malformed("the body is not an object")
    return value


def text_field(
    body: Mapping[str, Any], name: str, *, required: bool = False, limit: int = MAX_ID_CHARACTERS
) -> str | None:
    """A string of 1 to ``limit`` characters (R-300), or None when it is absent or null."""
    value = body.get(name)
    if value is None:
        if required:
            malformed(f"{name} is missing")
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= limit:
        malformed(f"{name} must be a string of 1 to {limit} characters")
    return value


def required_text(body: Mapping[str, Any], name: str, *, limit: int = MAX_ID_CHARACTERS) -> str:
    return text_field(body, name, required=True, limit=limit) or ""


def bounded_text(body: Mapping[str, Any], name: str, limit: int) -> str | None:
    """A string of at most ``limit`` UTF-8 bytes (R-176, R-300); may be empty."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value.encode()) > limit:
        malformed(f"{name} must be a string of at most {limit} bytes")
    return value


def flag(body: Mapping[str, Any], name: str, *, default: bool | None = None) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        malformed(f"{name} must be true or false")
    return value


def parse_submission(body: Any) -> Submission:
    """A submit's parsed JSON body as a `Submission`.

    Raises: `ValidationFailed` for a wrong shape. Unknown fields are ignored (R-325). Sizes of results are judged
    later, in their own place of the order of refusals: see `check_result_size`.
    """
    body = object_of(body)
    kind = body.get("kind", "client-tool-result")
    if kind == "client-tool-result":
        answer: Answer = _client_answer(body)
    elif kind == "approval-response":
        answer = _verdict(body)
    else:
        malformed("kind is neither client-tool-result nor approval-response")
    return Submission(
        session_id=text_field(body, "sessionId"),
        tool_call_id=required_text(body, "toolCallId"),
        run_id=text_field(body, "runId"),
        answer=answer,
    )


def check_result_size(answer: Answer) -> None:
    """Raises `PayloadTooLarge` when the result's compact JSON is over the limit (R-290 to R-292)."""
    if not isinstance(answer, Result):
        return
    limit = conf.get("HELIX_MAX_RESULT_BYTES")
    # A character is one to four bytes: most results are judged without encoding them.
    if len(answer.text) * 4 <= limit:
        return
    size = len(answer.text.encode())
    if size > limit:
        raise PayloadTooLarge("The result is too large.", cause="tool_result", limitBytes=limit, sizeBytes=size)


def scrubbed_error(error: str) -> str:
    """A submitted error as `HELIX_SCRUB` leaves it; a scrubber that raises leaves a fixed text (R-390)."""
    scrub = conf.get("HELIX_SCRUB")
    if scrub is None:
        return error
    scrubber: Callable[[str], str] = import_string(scrub) if isinstance(scrub, str) else scrub
    try:
        text = scrubber(error)
    except Exception:
        log.exception("client_tool.scrub_failed")
        text = "The error text was withheld."
    return str(text)[:MAX_ERROR_BYTES]


def _client_answer(body: Mapping[str, Any]) -> Result | Failure:
    if ("result" in body) == ("error" in body):
        malformed("exactly one of result and error is needed")
    if "result" in body:
        return Result(text=jsontext.dumps(body["result"]), value=body["result"])
    error = body["error"]
    if not isinstance(error, str) or len(error.encode()) > MAX_ERROR_BYTES:
        malformed(f"error must be a string of at most {MAX_ERROR_BYTES} bytes")
    return Failure(error=error)


def _verdict(body: Mapping[str, Any]) -> Verdict:
    if "result" in body or "error" in body:
        malformed("an approval-response carries neither result nor error")
    approved = flag(body, "approved")
    edited = body.get("editedArguments")
    if edited is not None:
        if not approved:
            malformed("editedArguments need approved: true", cause="edited_arguments")
        if not isinstance(edited, dict):
            malformed("editedArguments must be an object", cause="edited_arguments")
    return Verdict(
        approval_id=required_text(body, "approvalId", limit=MAX_APPROVAL_ID_CHARACTERS),
        approved=approved,
        reason=bounded_text(body, "reason", MAX_REASON_BYTES),
        edited_arguments=None if edited is None else jsontext.dumps(edited),
        arguments_digest=text_field(body, "argumentsDigest"),
    )
