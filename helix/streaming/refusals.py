"""How a socket that is refused, or that fails, says so: its close code (R-367)."""

from __future__ import annotations

from typing import Final

from helix.errors import HelixError

# The HTTP status of the refusal plus 4000. The transport lets an application send no code below 3000 but 1000, so what
# a server's own trouble is called (1011, 1013) cannot be said.
CLOSED_BY_STATUS: Final = (400, 401, 403, 404, 410, 429)
TRY_AGAIN_LATER: Final = 4503
UNEXPECTED_FAILURE: Final = 4500


def close_code(refusal: HelixError) -> int:
    """The code that a refused or broken socket is closed with."""
    if refusal.status in CLOSED_BY_STATUS:
        return 4000 + refusal.status
    return TRY_AGAIN_LATER if refusal.retryable else UNEXPECTED_FAILURE
