"""When a peer is asked again: pauses that grow while nothing is heard, as due times on rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

FIRST: Final = timedelta(seconds=1)
LONGEST_READING: Final = timedelta(seconds=15)
LONGEST_SILENCE: Final = timedelta(seconds=60)
LONGEST_DEBT: Final = timedelta(seconds=300)
# An errand is another worker's for this long: longer than its exchanges may last.
ERRAND: Final = timedelta(seconds=90)
# a peer may be silent this much longer than declared.
GRACE: Final = timedelta(seconds=60)


def pause(attempts: int, longest: timedelta) -> timedelta:
    """The pause after so many attempts in a row that brought nothing: one second, doubled up to ``longest``."""
    return min(longest, FIRST * 2 ** min(attempts, 16))


def observed_silence(since: datetime, last_attempt_at: datetime | None, now: datetime) -> datetime:
    """The beginning of a silence, moved on by the time in which nobody here listened.

    Only failed readings are silence of the peer; while this server was away itself, nothing can be said.
    """
    if last_attempt_at is None:
        return since
    unheard = now - last_attempt_at - LONGEST_SILENCE - ERRAND
    return since + max(timedelta(0), unheard)
