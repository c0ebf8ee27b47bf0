"""From a Django request to what an operation takes: a JSON body within its cap, or a query."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from helix.answers import malformed
from helix.edge.bodycap import OVER_CAP
from helix.errors import UnsupportedContentType
from helix.operations import body_cap, check_body_size, parse_body

JSON = "application/json"


def json_of(request: HttpRequest, operation: str) -> dict[str, Any]:
    """The body as a JSON object, judged in the order of R-323: size, content type, then what is in it.

    Raises: `PayloadTooLarge`, `UnsupportedContentType`, `ValidationFailed`.
    """
    raw = _within_cap(request, operation)
    charset = (request.content_params or {}).get("charset", "utf-8")
    is_json = request.content_type == JSON and charset.lower() in ("utf-8", "utf8")
    # Nothing at all is a malformed body rather than one of another type.
    if not is_json and (raw or request.content_type):
        raise UnsupportedContentType("The body must be application/json.", cause="content_type")
    return parse_body(raw)


def query_of(request: HttpRequest) -> dict[str, str]:
    """The query's values by name; of a repeated name the last. U+0000 is refused like in a body (R-324)."""
    query = {name: str(value) for name, value in request.GET.items()}
    if any("\x00" in text for pair in query.items() for text in pair):
        malformed("the query holds U+0000")
    return query


def _within_cap(request: HttpRequest, operation: str) -> bytes:
    """The bytes of the body, never more than the cap and one, whatever server is in front (R-302, R-304)."""
    declared = request.META.get("CONTENT_LENGTH") or ""
    if declared.isdecimal():
        check_body_size(operation, int(declared))
    scope = getattr(request, "scope", None) or request.META.get("asgi.scope") or {}
    if scope.get(OVER_CAP):
        check_body_size(operation, None)
    cap = body_cap(operation)
    source: Any = request
    if not declared and request.META.get("wsgi.input_terminated"):
        # A WSGI server without the middleware in front: it ends the stream itself, and Django would see no body.
        source = request.META["wsgi.input"]
    try:
        raw: bytes = source.read(cap + 1)
    except OSError:
        malformed("the body ended early")
    check_body_size(operation, len(raw) if len(raw) <= cap else None)
    return raw
