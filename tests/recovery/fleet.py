"""Real processes over the test's PostgreSQL database and Redis: a web process, workers, and a way to kill them.

The test is the sweep, and time passes only for rows: `Fleet.time_passes` makes leases run out and retries due. Nobody
polls: a watched process tells of every point that it passes, and the test reads on until the rows are as it wants.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from celery import Celery
from django.db import connection
from django.db.models import F

from helix import nudges, tasks
from helix.models import Run, RunLease
from helix.waypoints import Waypoint
from tests.architecture.sources import ROOT
from tests.provider_server import ProviderServer
from tests.recovery.crew import watch

REDIS = os.environ.get("HELIX_TEST_REDIS_URL") or "redis://127.0.0.1:6379/15"
# Celery and the channel layer spell a socket's address differently.
BROKER = REDIS.replace("unix://", "redis+socket://", 1)
NOWHERE = "redis://127.0.0.1:1/0"
AGES = timedelta(hours=1)


class Member:
    """One process of the fleet and the pipe through which it is heard."""

    def __init__(
        self, command: list[str], environment: dict[str, str], hold: Path, inherits: Sequence[int] = ()
    ) -> None:
        heard, told = os.pipe()
        self._lines = os.fdopen(heard)
        self._hold = hold
        hold.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**environment, watch.PIPE: str(told), watch.HOLD: str(hold)},
            pass_fds=[told, *inherits],
        )
        os.close(told)

    def until(self, condition: Callable[[], bool]) -> None:
        """Listen until the rows say so; they are read again after every commit of the process."""
        while not condition():
            self.until_at(Waypoint.AFTER_COMMIT)

    def until_at(self, point: str) -> None:
        """Listen until the process tells that it passes the point. Raises: AssertionError when it ends before."""
        for line in self._lines:
            if line.strip() == point:
                return
        raise AssertionError(f"it ended before {point}")

    def holds_at(self, point: str) -> None:
        """From now on it never goes on from this point."""
        self._hold.write_text(point)

    def dies_at(self, point: str) -> None:
        """Kill it where it was told to hold."""
        self.until_at(point)
        self.kill()

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up. Killing what is dead changes nothing."""
        self.process.kill()
        self.process.wait()
        self._lines.close()


class Fleet:
    """Starts members; ends whatever is left of them."""

    def __init__(self, state: Path) -> None:
        self.provider: ProviderServer
        self.ledger = state / "ledger"
        self.members: list[Member] = []
        self.address = ""
        self._state = state
        self._started = 0
        prefix = f"crew-{os.getpid()}-"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "DJANGO_"))},
            "DJANGO_SETTINGS_MODULE": "tests.recovery.settings",
            "DATABASE_URL": database_url(),
            "DJANGO_SECRET_KEY": secrets.token_urlsafe(50),
            "HELIX_STATE_DIR": str(state),
            "HELIX_BROKER_URL": BROKER,
            "HELIX_CHANNEL_URL": REDIS,
            "HELIX_WORKER": "celery",
            "HELIX_MODEL_API_KEY": "none",
            "HELIX_STREAM_SILENCE_SECONDS": "1",
            "CREW_PREFIX": prefix,
        }
        self._sender = Celery("sender", broker=BROKER)
        self._sender.conf.update(broker_transport_options={"global_keyprefix": prefix}, task_ignore_result=True)

    @contextmanager
    def serving(self, provider: ProviderServer, ledger: Path) -> Iterator[None]:
        """One test: its provider, its ledger, and the members that it starts."""
        stays, address = len(self.members), self.address
        self.provider, self.ledger = provider, ledger
        self._environment |= {"HELIX_MODEL_BASE_URL": provider.base_url, watch.LEDGER: str(ledger)}
        try:
            yield
        finally:
            self._end(stays)
            self.address = address

    # -- members ---------------------------------------------------------------------------------------------------

    def _start(self, command: list[str], inherits: Sequence[int] = (), **more: str) -> Member:
        self._started += 1
        hold = self._state / f"hold-{self._started}"
        member = Member(command, {**self._environment, **more}, hold, inherits)
        self.members.append(member)
        return member

    def worker(self, **more: str) -> Member:
        """A worker; ``more`` adds to its environment."""
        command = "celery --quiet --app tests.recovery.crew.worker worker --queues helix --pool threads --concurrency 2"
        quiet = "--without-gossip --without-mingle --without-heartbeat --loglevel ERROR"
        name = f"--hostname crew{len(self.members)}@%h"
        return self._start([*command.split(), *quiet.split(), *name.split()], HELIX_ROLE="worker", **more)

    def web(self, *, broker: str = BROKER) -> Member:
        """A web process; requests go to it from now on, and wait in its socket while it starts."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/"
            command = f"daphne --fd {listening.fileno()} --verbosity 0 tests.recovery.crew.web:application"
            return self._start(command.split(), [listening.fileno()], HELIX_ROLE="web", HELIX_BROKER_URL=broker)

    def _end(self, stays: int = 0) -> None:
        for member in self.members[stays:]:
            member.kill()
        del self.members[stays:]

    def end(self) -> None:
        self._end()
        self._sender.close()

    # -- what the test does in their place ---------------------------------------------------------------------------

    def post(self, path: str, body: dict[str, Any], *, by: str = "owner") -> dict[str, Any]:
        return self._ask(path, json.dumps(body).encode(), by)

    def get(self, path: str, *, by: str = "owner") -> dict[str, Any]:
        return self._ask(path, None, by)

    def _ask(self, path: str, body: bytes | None, by: str) -> dict[str, Any]:
        headers = {"X-Crew": by, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", body, headers)  # noqa: S310
        with urllib.request.urlopen(request) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
            return answer

    def hint(self, run_id: UUID) -> None:
        """Send the hint that a web process would send; by hand, or as `nudges.send_to_worker`."""
        self._sender.send_task(nudges.ADVANCE_TASK, kwargs={"run_id": str(run_id)}, queue="helix")

    def time_passes(self) -> None:
        """Every lease has run out, every pause is over."""
        RunLease.objects.update(expires_at=F("expires_at") - AGES)
        Run.objects.update(next_attempt_at=F("next_attempt_at") - AGES, next_hint_at=F("next_hint_at") - AGES)

    def sweep(self) -> None:
        """What beat and the sweeper do, after the time for it has come."""
        self.time_passes()
        tasks.run_sweeps()

    @property
    def rung(self) -> list[str]:
        """What bodies did, whichever process they ran in."""
        return self.ledger.read_text().split() if self.ledger.exists() else []


def database_url(name: str | None = None) -> str:
    """The test's own database, or another on its server, as the environment of a process names it."""
    options = connection.settings_dict
    user = quote(options["USER"]) + (f":{quote(options['PASSWORD'])}" if options["PASSWORD"] else "")
    # A host that is a directory holds sockets, and cannot stand before the slash of a URL.
    where = urlencode({"host": options["HOST"], "port": options["PORT"] or 5432})
    return f"postgres://{user}@/{name or options['NAME']}?{where}"
