"""Hints after commit: to a worker that a run or a peer waits, to readers that events were appended (F-1).

Losing every one of them costs time only: sweeps and slow re-reading find what they would have told. This is the only
core module that knows Celery. A hint never blocks and never fails a request (R-080): publishing is bounded, and after
a failure the broker is left alone for a moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import transaction

from helix.waypoints import Waypoint, reach

log = logging.getLogger("helix.nudges")

ADVANCE_TASK = "helix.advance_run"
RELAY_TASK = "helix.relay"
REST_SECONDS = 2.0


class Breaker:
    """After one failure nothing is published for ``REST_SECONDS``; the sweep covers the time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._closed_until = 0.0

    def allows(self) -> bool:
        return self._monotonic() >= self._closed_until

    def failed(self) -> None:
        self._closed_until = self._monotonic() + REST_SECONDS


_worker_breaker = Breaker()
_reader_breaker = Breaker()


def _publish_run(run_id: UUID) -> None:
    from celery import current_app

    current_app.send_task(ADVANCE_TASK, kwargs={"run_id": str(run_id)}, ignore_result=True)


def _publish_relay() -> None:
    from celery import current_app

    current_app.send_task(RELAY_TASK, ignore_result=True)


def _publish_wake(root_id: UUID, sequence: int) -> None:
    from helix import wakes

    wakes.publish(root_id, sequence)


# Replaced by tests and by the in-process worker: how a hint leaves this process.
send_to_worker: Callable[[UUID], None] = _publish_run
send_to_relay: Callable[[], None] = _publish_relay
send_to_readers: Callable[[UUID, int], None] = _publish_wake


def nudge_worker(run_id: UUID) -> None:
    """Tell a worker, after the commit, that this run is queued."""

    def send_run_hint() -> None:
        reach(Waypoint.BEFORE_NUDGE)
        _send(_worker_breaker, lambda: send_to_worker(run_id), runId=str(run_id))

    transaction.on_commit(send_run_hint, robust=True)


def nudge_relay() -> None:
    """Tell a worker, after the commit, that something is due at a peer. Rows say what: the hint names nothing."""

    def send_relay_hint() -> None:
        _send(_worker_breaker, lambda: send_to_relay())

    transaction.on_commit(send_relay_hint, robust=True)


def nudge_readers(root_id: UUID, sequence: int) -> None:
    """Tell the readers of a root, after the commit, that events up to ``sequence`` are there."""

    def send_wake_hint() -> None:
        _send(_reader_breaker, lambda: send_to_readers(root_id, sequence), sessionId=str(root_id))

    transaction.on_commit(send_wake_hint, robust=True)


def _send(breaker: Breaker, publish: Callable[[], None], **ids: Any) -> None:
    if not breaker.allows():
        return
    try:
        publish()
    except Exception as failure:
        breaker.failed()
        # stored, but the nudge failed. The failure's text may hold an address, never an argument.
        log.error("client_tool.send_event_failed", extra={**ids, "failure": type(failure).__name__})
