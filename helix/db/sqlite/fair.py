"""A lock that is handed over in the order of asking.

SQLite lets waiting writers poll, and under load an old waiter loses to new ones for seconds. One lock per database
and process in front of it makes waiting a queue. Rivals in other processes still meet in SQLite's own lock.
"""

from __future__ import annotations

import os
import threading
from collections import deque


class FairLock:
    """First come, first served; not reentrant, and free to be released by another thread than its taker."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Event] = deque()

    def acquire(self, timeout: float) -> bool:
        """Wait for a turn. False: ``timeout`` seconds went by, and the place in the queue is given up."""
        with self._guard:
            if not self._held:
                self._held = True
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        if turn.wait(timeout):
            return True
        with self._guard:
            if turn.is_set():
                # The turn came in the very moment of giving up; it cannot be passed by.
                return True
            self._waiting.remove(turn)
            return False

    def release(self) -> None:
        """Hand the lock to whoever has waited longest. It is never free while somebody waits."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._held = False


_locks: dict[str, FairLock] = {}
_locks_guard = threading.Lock()


def lock_of(database: str) -> FairLock:
    """The one lock of ``database`` in this process."""
    with _locks_guard:
        return _locks.setdefault(database, FairLock())


def _forget_after_fork() -> None:
    """A child has none of the threads that would release the locks it copied."""
    global _locks_guard
    _locks_guard = threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
