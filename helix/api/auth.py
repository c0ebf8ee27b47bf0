"""The shipped authenticate hooks: Django's login, signed tokens, or either (R-385a). `HELIX_AUTHENTICATE` names one.

A hook reads ``method``, ``headers``, ``META`` and ``user`` of the request and nothing else, so the request of a
websocket's handshake serves as well; there the Origin check stands in for the CSRF token.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from rest_framework.authentication import CSRFCheck

from helix.api import tokens
from helix.errors import Forbidden
from helix.operations import Refusal
from helix.principals import Principal, principal_of

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def login(operation: str, request: Any) -> Principal | Refusal | None:
    """Whoever is logged in. Unsafe methods need the CSRF token, since a browser sends the cookie by itself."""
    user = request.user
    if not user.is_authenticated or not user.is_active:
        return None
    if request.method not in SAFE_METHODS and not _csrf_holds(request):
        return Refusal(403, Forbidden.code, "The CSRF token is missing or wrong.", fields={"cause": "csrf"})
    return principal_of(user, address=_address(request))


def token(operation: str, request: Any) -> Principal | None:
    """Whoever a signed token in the Authorization header speaks for."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return tokens.bearer_of(text.strip(), address=_address(request))


def login_or_token(operation: str, request: Any) -> Principal | Refusal | None:
    """The token where one is given, and then it alone counts: a bad one is not rescued by a cookie; else the login."""
    if request.headers.get("Authorization"):
        return token(operation, request)
    return login(operation, request)


def _csrf_holds(request: Any) -> bool:
    check = CSRFCheck(_any_view)
    try:
        check.process_request(request)
        return check.process_view(request, _any_view, (), {}) is None
    except SuspiciousOperation:
        # A form that Django does not even read holds no token either.
        return False


def _any_view(request: HttpRequest) -> HttpResponse:
    """A view that is not exempt: the views of the API are, so that tokens need no cookie."""
    return HttpResponse()


def _address(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR") or "")
