"""The cancel token: how a stop reaches work that is going on in this process (Q-13, Q-21).

The row is the truth; the token is its messenger inside one process. A driver fires it when it reads a stop record
or a newer epoch, and everything that waits (a model stream, a tool body, a subprocess, a held script) ends its wait
at once, because each of them registered a callback. Nothing polls, and nothing here has a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix.loop.messages import Reply


class Cancelled(Exception):
    """Work was cut by its token. ``partial`` is what a model had written when it fired, if anything (R-419)."""

    def __init__(self, partial: Reply | None = None) -> None:
        super().__init__("the work was cancelled")
        self.partial = partial


class CancelToken:
    """Fires once, from any thread, and tells everyone who registered. The first ``kind`` that was given stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fired = threading.Event()
        self._kind: str | None = None
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._issued = 0

    @property
    def cancelled(self) -> bool:
        return self._fired.is_set()

    @property
    def kind(self) -> str | None:
        """Why it fired (``interrupt``, ``abort``, ``superseded``, ...); None while it has not."""
        return self._kind

    def check(self) -> None:
        """Raises: Cancelled when the token has fired."""
        if self.cancelled:
            raise Cancelled

    def cancel(self, kind: str = "interrupt") -> bool:
        """Fire and call every callback, in the order of registration. False: it had fired already."""
        with self._lock:
            if self._fired.is_set():
                return False
            self._kind = kind
            self._fired.set()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()
        return True

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback`` when the token fires, or now when it has. Returns a function that takes it back.

        The callback runs in the thread that fires: it must be short, must not block and must not raise. Whoever
        registers takes it back when its work is over, so that no watcher is left behind (Q-28).
        """
        with self._lock:
            if not self._fired.is_set():
                self._issued += 1
                ticket = self._issued
                self._callbacks[ticket] = callback
                return lambda: self._forget(ticket)
        callback()
        return lambda: None

    @property
    def watchers(self) -> int:
        """How many callbacks are registered now."""
        with self._lock:
            return len(self._callbacks)

    def _forget(self, ticket: int) -> None:
        with self._lock:
            self._callbacks.pop(ticket, None)
