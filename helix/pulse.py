"""The pulse of a process that works on runs: it renews their leases and brings stops to work in flight (L-3, Q-21).

One daemon thread stands for the process, on a connection of its own, outside every turn's transaction. It starts with
the first run that the process takes and beats for as long as the process lives. A beat that fails is tried again at
the next: a late renewal costs duplicated work at worst, never a result (L-4).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import connections

from helix import conf
from helix.clock import utc_now
from helix.services import leases

log = logging.getLogger("helix.pulse")

BEAT_SECONDS = 1.0


class Pulse:
    """What one beat does; the thread only repeats it."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._renewed_at: datetime | None = None

    def beat(self) -> None:
        """Cut what was stopped; renew the leases when their renewal is due."""
        leases.cut_stopped_work()
        now = self._clock()
        every = timedelta(seconds=conf.get("HELIX_LEASE_RENEW_SECONDS"))
        if self._renewed_at is None or now - self._renewed_at >= every:
            leases.renew_leases(now=now)
            self._renewed_at = now


_started_in: int | None = None
_starting = threading.Lock()


def ensure() -> None:
    """Start this process's pulse unless it beats already; a forked child starts its own."""
    global _started_in
    with _starting:
        if _started_in == os.getpid():
            return
        _started_in = os.getpid()
        threading.Thread(target=_beat_for_ever, name="helix-pulse", daemon=True).start()


def _beat_for_ever() -> None:
    pulse = Pulse()
    pause = threading.Event()
    while not pause.wait(BEAT_SECONDS):
        try:
            pulse.beat()
        except Exception:
            log.exception("pulse.failed")
        finally:
            # The pool's connection goes back between beats; an idle worker holds none.
            connections.close_all()
