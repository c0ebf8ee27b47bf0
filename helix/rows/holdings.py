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
from uuid import UUID

from django.db import transaction

from helix.loop.cancel import CancelToken


@dataclass(frozen=True)
class Holding:
    """One run at work in this process."""

    run_id: UUID
    epoch: int
    token: CancelToken


class Holdings:
    """The marks of one process. A forked child is another process: it gets another holder id and no marks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._holder = ""
        self._held: dict[UUID, Holding] = {}

    @property
    def holder(self) -> str:
        """Minted per process start: host, pid, random (L-1)."""
        with self._lock:
            self._notice_fork()
            return self._holder

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._holder = f"{socket.gethostname()[:64]}:{self._pid}:{secrets.token_hex(8)}"
            self._held = {}

    def get(self, run_id: UUID) -> Holding | None:
        with self._lock:
            self._notice_fork()
            return self._held.get(run_id)

    def all(self) -> tuple[Holding, ...]:
        with self._lock:
            self._notice_fork()
            return tuple(self._held.values())

    def cut_after_commit(self, run_id: UUID, kind: str) -> None:
        """Fire the run's token once this transaction is committed, when it is held here: no nudge is quicker."""

        def cut() -> None:
            holding = self.get(run_id)
            if holding is not None:
                holding.token.cancel(kind)

        transaction.on_commit(cut, robust=True)

    @contextmanager
    def holding(self, run_id: UUID, epoch: int) -> Iterator[CancelToken]:
        """Mark the run as ours for as long as the block runs; a newer mark of the same run is left alone (Q-40)."""
        mine = Holding(run_id, epoch, CancelToken())
        with self._lock:
            self._notice_fork()
            self._held[run_id] = mine
        try:
            yield mine.token
        finally:
            with self._lock:
                if self._held.get(run_id) is mine:
                    del self._held[run_id]


HOLDINGS = Holdings()
