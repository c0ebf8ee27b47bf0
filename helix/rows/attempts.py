"""A transaction that met another one in a deadlock, or a busy database, is tried again (R-601).

Nothing of it was written, so the whole verb runs again: it finds, locks, judges and checks the stop anew (Q-17).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import OperationalError

log = logging.getLogger("helix.rows")

MOST_RETRIES = 3
# Serialization failure, deadlock, lock not available.
_POSTGRES_STATES = ("40001", "40P01", "55P03")
_SQLITE_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

P = ParamSpec("P")
R = TypeVar("R")


def tried_again(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that is one transaction: contention runs it again, at most three times.

    The function must change nothing but rows. Every other failure, and the fourth contention, is raised on.
    """

    @wraps(verb)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
        for number in range(1, MOST_RETRIES + 1):
            try:
                return verb(*args, **kwargs)
            except OperationalError as failure:
                if not is_contention(failure):
                    raise
                log.debug("client_tool.ownership_retry", extra={"verb": verb.__name__, "attempt": number})
        return verb(*args, **kwargs)

    return attempt


def is_contention(failure: OperationalError) -> bool:
    """Whether another transaction was in the way, and not the database away."""
    cause = failure.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        # The fair lock of this process refuses in SQLite's words and without its code.
        code = getattr(cause, "sqlite_errorcode", None)
        return code & 0xFF in _SQLITE_CODES if code is not None else str(cause) == "database is locked"
    return getattr(cause, "sqlstate", None) in _POSTGRES_STATES
