"""Who opens a websocket: the authenticate hook sees a request like any other (R-380 to R-385a, R-397).

Browsers open sockets to anywhere and send cookies along, so a page of another origin gets nothing from a cookie: it is
refused, unless it brings a token. A browser cannot set headers of a socket either, so a token travels as a subprotocol
beside the one that this server speaks: ``helix`` and ``helix.bearer.<token in unpadded base64url>``. The hook finds it
as ``Authorization: Bearer``.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.utils.functional import SimpleLazyObject
from django.utils.http import is_same_domain
from django.utils.module_loading import import_string

from helix.errors import Forbidden, Unauthorized
from helix.operations import authenticate
from helix.principals import Principal

SUBPROTOCOL: Final = "helix"
BEARER_PREFIX: Final = "helix.bearer."

Scope = Mapping[str, Any]


def chosen_subprotocol(scope: Scope) -> str | None:
    """What the handshake answers: never the token. None: the client offered none, or none that is spoken here."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None


def principal_of(operation: str, scope: Scope, *, session_id: str | None = None) -> Principal:
    """The principal behind a socket, entitled to ``operation``. Asked again for every command, so a token may lapse.

    Raises: `Unauthorized`, `Forbidden`, or the hook's own refusal.
    """
    token = _token(scope)
    request = _as_request(scope, token)
    if not _is_own_origin(request):
        if token is None:
            raise Forbidden("The socket was opened by a page of another origin.", cause="not_permitted")
        _forget_the_cookie(request)
    return authenticate(operation, request, session_id=session_id)


def _token(scope: Scope) -> str | None:
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(BEARER_PREFIX):
            text = offered.removeprefix(BEARER_PREFIX)
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
            except (binascii.Error, ValueError):
                raise Unauthorized("Authentication is needed.") from None
    return None


def _as_request(scope: Scope, token: str | None) -> ASGIRequest:
    """The handshake as Django's views would see it: cookies, session, user, and the token as a header."""
    headers = list(scope.get("headers", ()))
    if token is not None:
        headers = [pair for pair in headers if pair[0].lower() != b"authorization"]
        headers.append((b"authorization", f"Bearer {token}".encode("ascii")))
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    request = ASGIRequest({**scope, "method": "GET", "scheme": scheme, "headers": headers}, io.BytesIO())
    store: type[SessionBase] = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
    request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    request.user = SimpleLazyObject(lambda: get_user(request))  # type: ignore[assignment]
    return request


def _is_own_origin(request: ASGIRequest) -> bool:
    """Whether the page that opened the socket is ours, or none did: programs send no Origin."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        page, host = urlsplit(origin).netloc, request.get_host()
    except (DisallowedHost, ValueError):
        return False
    if page and page == host:
        return True
    return any(_covers(trusted, origin) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _covers(trusted: str, origin: str) -> bool:
    """Whether an entry of CSRF_TRUSTED_ORIGINS, which may begin with ``*.``, names the origin."""
    entry, page = urlsplit(trusted), urlsplit(origin)
    return entry.scheme == page.scheme and is_same_domain(page.netloc, entry.netloc.lstrip("*"))


def _forget_the_cookie(request: ASGIRequest) -> None:
    request.COOKIES.clear()
    request.META.pop("HTTP_COOKIE", None)
    request.session = type(request.session)()
    request.user = AnonymousUser()
