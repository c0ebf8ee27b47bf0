"""How a stream that is refused, or that fails, says so: close codes of a socket, bodies of a response."""

from __future__ import annotations

import logging
from typing import Final

from django.db import InterfaceError, OperationalError

from helix.errors import DatabaseUnavailable, HelixError, UnexpectedFailure

log = logging.getLogger("helix.streaming")

# the HTTP status of the refusal plus 4000.
CLOSED_BY_STATUS: Final = (400, 401, 403, 404, 410, 429)
TRY_AGAIN_LATER: Final = 1013
INTERNAL_ERROR: Final = 1011


def refusal_of(failure: Exception, operation: str) -> HelixError:
    """What a client is told about a failure; an unexpected one is logged and its text stays here (R-349, R-354)."""
    if isinstance(failure, HelixError):
        return failure
    if isinstance(failure, OperationalError | InterfaceError):
        log.error("streaming.database_unavailable", extra={"operation": operation})
        return DatabaseUnavailable("The service is unavailable for the moment.")
    log.error("streaming.failed", exc_info=failure, extra={"operation": operation})
    return UnexpectedFailure("Something went wrong.")


def close_code(refusal: HelixError) -> int:
    """The code that a refused or broken socket is closed with."""
    if refusal.status in CLOSED_BY_STATUS:
        return 4000 + refusal.status
    return TRY_AGAIN_LATER if refusal.retryable else INTERNAL_ERROR
