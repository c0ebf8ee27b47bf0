"""Named points that a transaction passes: nothing happens there, unless a test holds somebody up (D-11).

A race is an order in which two workers pass points, so a test lists that order instead of hoping for it. In production
nobody listens and a point costs one look at an empty tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Waypoint(StrEnum):
    """Where two writers of one tree can meet."""

    BEFORE_LOCK = "before_lock"
    """What may be read without the lock was read; the root's row is asked for next."""
    LOCKED = "locked"
    CLAIMED = "claimed"
    """A run was moved to this worker; not yet committed."""
    CLOSED_MINE = "closed_mine"
    """A child's call was settled in its parent; the siblings were not yet counted (Q-26)."""
    COUNTED_SIBLINGS = "counted_siblings"
    BEFORE_WRITE = "before_write"
    """The verb is done; statuses, events and the commit come next."""
    BEFORE_NUDGE = "before_nudge"
    """Committed; the hint to a worker was not yet sent."""
    AFTER_COMMIT = "after_commit"
    """Committed, and every hint was tried."""


Listener = Callable[[Waypoint], None]

_listeners: tuple[Listener, ...] = ()


def reach(point: Waypoint) -> None:
    """Tell whoever listens that this thread is at the point; it goes on when they return."""
    for listener in _listeners:
        listener(point)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` at every point of every thread of this process: for tests."""
    global _listeners
    _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        _listeners = tuple(one for one in _listeners if one is not listener)
