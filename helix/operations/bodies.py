"""Bodies: how large they may be, how their bytes become JSON, and the parts that several operations share.

Every malformed body meets the same fixed text (R-315). Unknown fields are ignored (R-325).
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.utils.dateparse import parse_datetime

from helix import answers, clock, conf, jsontext
from helix.answers import malformed, object_of, required_text
from helix.errors import PayloadTooLarge

log = logging.getLogger("helix.operations")

SUBMIT = "submit-tool-result"
SUBMIT_CAP_FACTOR = 4
LARGEST_INTEGER = 2**63 - 1
# A model provider fetches the address of a file; nothing inside the house answers to these two.
FILE_SCHEMES = ("https", "data")
# C0, DEL and C1 are the control characters.
_NO_SEGMENT = re.compile(r"[/?#\x00-\x1f\x7f-\x9f]")
MAX_TAGS = 64
# A hundred years: a calendar ends, and a longer life is one without an end.
LONGEST_LIFE_MS = 100 * 366 * 24 * 3600 * 1000
MAX_MEMBERS = 16


def body_cap(operation: str) -> int:
    """How many bytes the body of an operation may have (R-293, R-295)."""
    if operation == SUBMIT:
        return SUBMIT_CAP_FACTOR * int(conf.get("HELIX_MAX_RESULT_BYTES"))
    return int(conf.get("HELIX_MAX_CHAT_BODY_BYTES"))


def check_body_size(operation: str, size: int | None) -> None:
    """Refuse a body over its cap. None: over it, by an unknown number of bytes. Raises: `PayloadTooLarge`."""
    limit = body_cap(operation)
    if size is not None and size <= limit:
        return
    fields: dict[str, Any] = {"cause": "request_body", "limitBytes": limit}
    if size is not None:
        fields["sizeBytes"] = size
    if operation == SUBMIT:
        log.warning("submit_tool_result.body_too_large", extra={"limitBytes": limit, "sizeBytes": size})
    raise PayloadTooLarge("The request body is too large.", **fields)


def parse_body(raw: bytes | str) -> dict[str, Any]:
    """The JSON object of a request. Raises: `ValidationFailed` (R-315, R-322, R-324)."""
    try:
        return dict(object_of(jsontext.loads(raw)))
    except jsontext.JsonRefused as refused:
        malformed(f"the body is not acceptable JSON: {refused.reason}")


# -- fields ------------------------------------------------------------------------------------------------------------


def checked_name(name: str, given: str) -> str:
    """An id from a path or a query, held to the bounds of one in a body (R-300, R-324)."""
    if not 1 <= len(given) <= answers.MAX_ID_CHARACTERS or "\x00" in given:
        malformed(f"{name} must be a string of 1 to {answers.MAX_ID_CHARACTERS} characters")
    return given


def named_field(body: Mapping[str, Any], name: str, given: str | None) -> str:
    """An id that the path or the body names; where both do, they must agree (R-064)."""
    if given is None:
        return required_text(body, name)
    if answers.text_field(body, name) not in (None, given):
        malformed(f"{name} differs from the one in the path")
    return given


def alias_field(given: str | None, name: str) -> str | None:
    """A new conversation's alias, which every later address must be able to name.

    Raises: `ValidationFailed` for one that no single segment of a path carries; servers, proxies and browsers change
    such a path before it reaches a route.
    """
    if given is not None and (given in (".", "..") or _NO_SEGMENT.search(given)):
        malformed(f"{name} must not be a dot or two, and has no '/', '?', '#' or control characters")
    return given


def parse_message(value: Any) -> list[dict[str, Any]]:
    """The parts of a user's message: a text, or a list of text and file parts.

    Raises: `ValidationFailed`; a message says something, and a file is named by an https or data address.
    """
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    if not isinstance(value, list) or not value:
        malformed("message must be a text or a list of parts")
    return [_part(object_of(part)) for part in value]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        text = part.get("text")
        if not isinstance(text, str) or not text.strip():
            malformed("a text part needs a text")
        return {"type": "text", "text": text}
    if part.get("type") != "file":
        malformed("a part is of type text or file")
    url = part.get("url")
    if not isinstance(url, str) or _scheme(url) not in FILE_SCHEMES:
        malformed("a file part needs an https or data url")
    return {"type": "file", "url": url, "mediaType": required_text(part, "mediaType")}


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def object_field(body: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = body.get(name)
    return None if value is None else object_of(value)


def tags_field(body: Mapping[str, Any]) -> list[str]:
    tags = body.get("tags")
    if tags is None:
        return []
    if not isinstance(tags, list) or len(tags) > MAX_TAGS:
        malformed(f"tags must be a list of at most {MAX_TAGS} strings")
    if not all(isinstance(tag, str) and 1 <= len(tag) <= answers.MAX_ID_CHARACTERS for tag in tags):
        malformed("a tag is a string of 1 to 256 characters")
    return tags


def lifetime_field(body: Mapping[str, Any], name: str) -> timedelta | None:
    """How long a conversation lives, in milliseconds; None: for ever (R-048)."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST_LIFE_MS:
        malformed(f"{name} must be a whole number from 1 to {LONGEST_LIFE_MS}")
    return timedelta(milliseconds=value)


# -- queries: every value is a string ----------------------------------------------------------------------------------


def integer_field(
    query: Mapping[str, Any], name: str, default: int, *, low: int = 0, high: int = LARGEST_INTEGER, clamp: bool = False
) -> int:
    """A whole number within its bounds; one over ``high`` is refused, or with ``clamp`` taken as ``high``."""
    text = query.get(name)
    if text is None:
        return default
    if not (isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_INTEGER))):
        malformed(f"{name} must be a whole number")
    value = int(text)
    if clamp:
        value = min(value, high)
    if not low <= value <= high:
        malformed(f"{name} is out of bounds")
    return value


def choice_field(query: Mapping[str, Any], name: str, choices: Any) -> str | None:
    text = query.get(name)
    if text is not None and text not in choices:
        malformed(f"{name} is not one of the known values")
    return text


def instant_field(query: Mapping[str, Any], name: str) -> datetime | None:
    """An RFC 3339 instant with its offset."""
    text = query.get(name)
    if text is None:
        return None
    try:
        instant = parse_datetime(text)
    except ValueError:
        instant = None
    return clock.in_utc(instant) or malformed(f"{name} must be an instant with an offset")


def uuid_field(query: Mapping[str, Any], name: str) -> UUID | None:
    text = answers.text_field(query, name)
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        malformed(f"{name} must be the id of a session")


def members_field(query: Mapping[str, Any], name: str) -> dict[str, str | int | float | bool]:
    """A JSON object of plain values, such as ``{"team":"blue"}``: what has to stand in the rows' own."""
    text = query.get(name)
    if text is None:
        return {}
    members = parse_body(text)
    if len(members) > MAX_MEMBERS or not all(isinstance(value, str | int | float) for value in members.values()):
        malformed(f"{name} must be an object of at most {MAX_MEMBERS} texts, numbers and truth values")
    return members


# -- cursors: opaque to clients ----------------------------------------------------------------------------------------


def cursor_of(*keys: str | int) -> str:
    """Where the next page begins. What is inside is nobody's business."""
    return base64.urlsafe_b64encode(jsontext.dumps(keys).encode()).decode().rstrip("=")


def cursor_field(query: Mapping[str, Any], *kinds: type) -> list[Any] | None:
    """The keys of a cursor that this server made. Raises: `ValidationFailed` for any other text."""
    text = query.get("cursor")
    if text is None:
        return None
    try:
        keys = jsontext.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        keys = None
    if not isinstance(keys, list) or [type(key) for key in keys] != list(kinds):
        malformed("cursor is not one of this server's")
    if any(isinstance(key, int) and not 0 <= key <= LARGEST_INTEGER for key in keys):
        malformed("cursor is not one of this server's")
    return keys
