"""Every refusal and every failure as typed JSON (R-354): the text of an unexpected error never reaches a client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views import defaults
from rest_framework.exceptions import MethodNotAllowed

from helix import jsontext
from helix.errors import (
    DatabaseUnavailable,
    HelixError,
    NotFound,
    RateLimited,
    Unauthorized,
    UnexpectedFailure,
    ValidationFailed,
)

log = logging.getLogger("helix.api")


def json_response(body: Mapping[str, Any], status: int = 200) -> HttpResponse:
    """Written in the form that is counted and that sockets send. Nothing of it is for a cache."""
    response = HttpResponse(jsontext.dumps(body), status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response


def as_response(failure: BaseException, operation: str = "") -> HttpResponse:
    """The answer to a request that failed, expectedly or not."""
    if isinstance(failure, MethodNotAllowed):
        return refused(ValidationFailed("This route does not know the method.", cause="method"), status=405)
    return refused(refusal_of(failure, operation))


def refusal_of(failure: BaseException, operation: str = "") -> HelixError:
    """What a client is told about a failure, behind every door; an unexpected one is logged and its text stays here."""
    if isinstance(failure, HelixError):
        return failure
    log.error("api.unexpected_failure", extra={"operation": operation}, exc_info=failure)
    if isinstance(failure, OperationalError | InterfaceError):
        return DatabaseUnavailable("The database cannot be reached now. Try again.")
    return UnexpectedFailure("Something went wrong. Nothing was stored.")


def refused(refusal: HelixError, status: int | None = None) -> HttpResponse:
    response = json_response(refusal.as_body(), status or refusal.status)
    if isinstance(refusal, RateLimited):
        response["Retry-After"] = str(refusal.fields["retryAfterSeconds"])
    if isinstance(refusal, Unauthorized):
        response["WWW-Authenticate"] = "Bearer"
    return response


# -- Django's own answers, for paths of the API ------------------------------------------------------------------------


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler404`` of the project: typed for the API's paths, a page for the others."""
    if _is_ours(request):
        return refused(NotFound("There is no such route."))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """``handler500`` of the project, for what fails outside of a view."""
    if _is_ours(request):
        return refused(UnexpectedFailure("Something went wrong. Nothing was stored."))
    return defaults.server_error(request)


def _is_ours(request: HttpRequest) -> bool:
    try:
        return request.path_info.startswith(reverse("helix-status").removesuffix("status"))
    except NoReverseMatch:
        return False
