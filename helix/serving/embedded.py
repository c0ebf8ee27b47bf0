"""Web server, worker and schedule in one process: the default, for one machine and SQLite.

Daphne owns the main thread. A Celery worker and Celery's beat run in daemon threads over the memory broker; the
classes are semi-public, so Celery is pinned and a test boots this. Killing the process loses no answer: rows say what
was under way, and the next start takes it up after a lease (F-1). Limits: one interpreter, one writer, one machine.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from celery import Celery, current_app
from celery.beat import ScheduleEntry, Service
from celery.worker import WorkController, state
from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server
from django.db import close_old_connections
from django_celery_beat.schedulers import DatabaseScheduler

from helix import handover

log = logging.getLogger("helix.serving")

QUEUE = "helix"
# Bodies wait for models most of their time; each needs a thread, not a core.
WORKER_THREADS = 16
STOP_GRACE_SECONDS = 1.0


class InThreadScheduler(DatabaseScheduler):
    """Beat that runs a due task itself: a worker full of slow models must not delay a deadline."""

    def apply_async(self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        if advance:
            entry = self.reserve(entry)
        try:
            return self.app.tasks[entry.task].apply(args=entry.args, kwargs=entry.kwargs)
        finally:
            close_old_connections()


class Part:
    """A part of the process that runs in a thread of its own; its unexpected end is told to ``on_end``."""

    def __init__(self, name: str, run: Callable[[], None], on_end: Callable[[str], None]) -> None:
        self.name = name
        self._run = run
        self._on_end = on_end
        self.stopping = False
        self.thread = threading.Thread(target=self._body, name=f"helix-{name}", daemon=True)

    def _body(self) -> None:
        try:
            self._run()
        except Exception:
            log.exception("serving.part_failed", extra={"part": self.name})
        finally:
            close_old_connections()
            if not self.stopping:
                self._on_end(self.name)


class EmbeddedProcess:
    """The parts and the server. ``serve`` blocks until a signal, then returns the exit status."""

    def __init__(
        self, application: Any, *, host: str, port: int, threads: int = WORKER_THREADS, celery: Celery = current_app
    ) -> None:
        # Why it ended by itself, for whoever started it.
        self.failure = ""
        self._worker = WorkController(
            app=celery,
            hostname="helix@embedded",
            queues=[QUEUE],
            pool="threads",
            concurrency=threads,
            loglevel="WARNING",
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
        )
        self._beat = Service(celery, scheduler_cls=InThreadScheduler)
        self._parts = [
            Part("worker", self._worker.start, self._on_end),
            Part("beat", self._beat.start, self._on_end),
        ]
        self._server = Server(
            application=application,
            endpoints=build_endpoint_description_strings(host=host, port=port),
            # A stream or a socket may stay open for as long as its reader likes.
            websocket_timeout=-1,
            http_timeout=None,
            ready_callable=self._start_parts,
            server_name="helix",
        )
        self._on_ready: Callable[[int], None] = lambda port: None

    def serve(self, on_ready: Callable[[int], None]) -> int:
        """Run until SIGTERM or SIGINT. ``on_ready`` is told the port once requests are answered.

        Returns 0 after a signal; 1, with ``failure`` set, when the port was taken or a part ended by itself.
        """
        self._on_ready = on_ready
        self._server.run()
        if not self._server.listening_addresses:
            self.failure = "The address is taken or not allowed; choose another with --port or --host."
            return 1
        self._stop_parts()
        return 1 if self.failure else 0

    def _start_parts(self) -> None:
        for part in self._parts:
            part.thread.start()
        self._on_ready(self._server.listening_addresses[0][1])

    def _stop_parts(self) -> None:
        """Take no new work, hand back what is under way, and end; what stays is taken over when its lease lapses."""
        for part in self._parts:
            part.stopping = True
        self._beat.stop()
        state.should_stop = 0
        handover.hand_back()
        for part in self._parts:
            part.thread.join(STOP_GRACE_SECONDS)

    def _on_end(self, name: str) -> None:
        from twisted.internet import reactor

        self.failure = f"The {name} ended by itself; see the log."
        reactor.callFromThread(self._server.stop)
