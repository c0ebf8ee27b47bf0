"""What this process executes right now: the bodies whose threads have not returned (Q-07, Q-14).

A stop ends the wait for a body, not the body. One that ignores its token goes on, meets the fence when it writes, and
stays listed here until it returns, so that a worker's shutdown can wait for it and an operator can see it (Q-61).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Executing:
    """One body at work."""

    run_id: str
    tool_call_id: str
    tool_name: str


class ProcessRegistry:
    """A thread-safe list of bodies at work, and a wait for its end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at_work: dict[int, Executing] = {}
        self._issued = 0

    def enter(self, executing: Executing) -> int:
        """List a body; returns the ticket that ``leave`` takes."""
        with self._changed:
            self._issued += 1
            self._at_work[self._issued] = executing
            return self._issued

    def leave(self, ticket: int) -> None:
        with self._changed:
            self._at_work.pop(ticket, None)
            self._changed.notify_all()

    @contextmanager
    def listing(self, executing: Executing) -> Iterator[None]:
        """List a body for as long as the block runs, however the block ends."""
        ticket = self.enter(executing)
        try:
            yield
        finally:
            self.leave(ticket)

    def executing(self, run_id: str | None = None) -> tuple[Executing, ...]:
        """The bodies at work, oldest first; of one run when it is named."""
        with self._changed:
            return tuple(body for body in self._at_work.values() if run_id is None or body.run_id == run_id)

    def wait_until_quiet(self, timeout: float | None = None) -> bool:
        """Wait until no body is at work. False: ``timeout`` seconds passed first.

        Only a shutdown gives a timeout: it escalates against the process, never against a turn.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._at_work, timeout)


REGISTRY = ProcessRegistry()
