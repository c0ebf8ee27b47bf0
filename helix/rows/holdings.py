"""Which runs this process works on, and under which epoch (L-1, L-6, L-10).

A lease is judged by others only: a process that holds a run does not read `expires_at` for it. The mark lives exactly
as long as the turn: set where the claim is registered, cleared in a guarded `finally`, and only if it is still its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from helix import conf
from helix.loop.cancel import CancelToken
from helix.loop.registry import REGISTRY

SHUTDOWN = "shutdown"


@dataclass(eq=False)
class Holding:
    """One run at work in this process. ``renewed_at``: when its lease was last written from here."""

    run_id: UUID
    epoch: int
    token: CancelToken
    renewed_at: datetime

    def renewal_is_due(self, now: datetime) -> bool:
        return now - self.renewed_at >= timedelta(seconds=conf.get("HELIX_LEASE_RENEW_SECONDS"))


class Turn:
    """A turn that may claim a run; `mark` is called in the very block that claims it (L-10)."""

    def __init__(self, holdings: Holdings) -> None:
        self.token = CancelToken()
        self._holdings = holdings
        self._mine: Holding | None = None

    def mark(self, run_id: UUID, epoch: int, now: datetime) -> None:
        """The run is ours under this epoch. A process that is about to end gives it straight back."""
        self._mine = Holding(run_id, epoch, self.token, now)
        if not self._holdings.add(self._mine):
            self.token.cancel(SHUTDOWN)

    def end(self) -> None:
        if self._mine is not None:
            self._holdings.remove(self._mine)


class Holdings:
    """The marks of one process. A forked child is another process: it gets another holder id and no marks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pid = 0
        self._holder = ""
        self._held: dict[UUID, Holding] = {}
        self._leaving = False

    @property
    def holder(self) -> str:
        """Minted per process start: host, pid, random (L-1)."""
        with self._changed:
            self._notice_fork()
            return self._holder

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._holder = f"{socket.gethostname()[:64]}:{self._pid}:{secrets.token_hex(8)}"
            self._held = {}
            self._leaving = False

    def get(self, run_id: UUID) -> Holding | None:
        with self._changed:
            self._notice_fork()
            return self._held.get(run_id)

    def all(self) -> tuple[Holding, ...]:
        with self._changed:
            self._notice_fork()
            return tuple(self._held.values())

    def cut_after_commit(self, run_id: UUID, kind: str) -> None:
        """Fire the run's token once this transaction is committed, when it is held here: no nudge is quicker."""

        def cut() -> None:
            holding = self.get(run_id)
            if holding is not None:
                holding.token.cancel(kind)

        transaction.on_commit(cut, robust=True)

    # -- the life of a mark ----------------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """A turn whose mark ends with the block; a newer mark of the same run is left alone (Q-40)."""
        turn = Turn(self)
        try:
            yield turn
        finally:
            turn.end()

    def add(self, mine: Holding) -> bool:
        """Set the mark. False: this process is about to end."""
        with self._changed:
            self._notice_fork()
            self._held[mine.run_id] = mine
            return not self._leaving

    def remove(self, mine: Holding) -> None:
        with self._changed:
            if self._held.get(mine.run_id) is mine:
                del self._held[mine.run_id]
                self._changed.notify_all()

    # -- the end of the process ------------------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        """Whether this process takes no more runs and gives each of its own back at the next step."""
        with self._changed:
            self._notice_fork()
            return self._leaving

    def leave(self) -> None:
        """Take no more runs, and cut every turn that runs no body: a model may be asked again, a body may not."""
        with self._changed:
            self._notice_fork()
            self._leaving = True
            held = tuple(self._held.values())
        for holding in held:
            if not REGISTRY.executing(str(holding.run_id)):
                holding.token.cancel(SHUTDOWN)

    def cut_all(self) -> None:
        """Cut what is left, bodies included."""
        for holding in self.all():
            holding.token.cancel(SHUTDOWN)

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until every turn has ended. False: ``timeout`` seconds passed first; only a shutdown waits here."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held, timeout)


HOLDINGS = Holdings()
