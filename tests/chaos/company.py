"""The processes of the storm: out of the Procfile, each replaced at once when it is killed.

PostgreSQL is the one of ``DATABASE_URL``, with a database of this run, or a throw-away one. Redis is always our own,
since it is shot. A broker of AMQP gets a vhost of this run.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from helix.serving.processes import read_procfile
from helix.serving.servers import Server, ServerUnavailable, start_postgres, start_valkey
from scripts.test import POSTGRES_OPTIONS, local_postgres
from tests.architecture.sources import ROOT
from tests.recovery.crew.watch import LEDGER

AMQP = os.environ.get("HELIX_TEST_AMQP_URL") or "amqp://guest:guest@127.0.0.1:5672"
# How many of each line of the Procfile.
SIZES = {"web": 2, "worker": 3, "sweeper": 1, "beat": 1}
LEASE_SECONDS = 4
OUTAGE_SECONDS = 0.5
# What each process adds to this one's settings.
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
    "HELIX_WORKER": "celery",
    "HELIX_THREADS": "8",
    "HELIX_LEASE_SECONDS": str(LEASE_SECONDS),
    "HELIX_LEASE_RENEW_SECONDS": "1",
    "HELIX_SUBMITS_PER_MINUTE": "100000",
}


class Member:
    """One line of the Procfile at work; ``pids`` are all that ever were."""

    def __init__(self, name: str, command: str, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.pids: list[int] = []
        self._command = command
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._command}"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pids.append(self._process.pid)

    def kill(self) -> int | None:
        """SIGKILL to all of it. Returns the status when it had ended by itself before, else None."""
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return status


class Company:
    """Everything that serves, and what the storm does to it."""

    def __init__(self, directory: Path, environment: dict[str, str], admin: str, sockets: Path) -> None:
        self.ledger = directory / "ledger"
        self.logs = directory / "logs"
        self.logs.mkdir()
        # Who ended without having been killed.
        self.deserted: list[str] = []
        self.killed: set[int] = set()
        # When the database was cut, in seconds since the epoch.
        self.cuts: list[float] = []
        self._admin = admin
        self._database = urlsplit(environment["DATABASE_URL"]).path.strip("/")
        self._sockets = sockets
        self._redis, _ = start_valkey(sockets)
        commands = {line.name: line.command for line in read_procfile(ROOT / "Procfile")}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self.doors: list[str] = []
        self._members: dict[str, list[Member]] = {}
        for name, size in SIZES.items():
            for number in range(size):
                own = {**environment, "PATH": path, LEDGER: str(self.ledger)}
                if name == "web":
                    own["PORT"] = str(_free_port())
                    self.doors.append(f"http://127.0.0.1:{own['PORT']}/api/")
                member = Member(name, commands[name], own, self.logs / f"{name}-{number}.log")
                self._members.setdefault(name, []).append(member)
                member.start()

    # -- blows -----------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Kill the process of that line which has lived longest, and start another."""
        members = self._members[name]
        member = members.pop(0)
        status = member.kill()
        if status is not None:
            self.deserted.append(f"a {name} ended by itself with status {status}")
        self.killed.add(member.pids[-1])
        member.start()
        members.append(member)

    def shoot_redis(self) -> None:
        """Everything that it held is lost."""
        self._redis.process.kill()
        self._redis.process.wait()
        _pass(OUTAGE_SECONDS)
        self._redis, _ = start_valkey(self._sockets)

    def cut_database(self) -> None:
        """End every connection, and let nobody back in for a while."""
        self.cuts.append(time.time())
        with psycopg.connect(self._admin, autocommit=True) as connection:
            self._let_in(connection, False)
            try:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self._database]
                )
                _pass(OUTAGE_SECONDS)
            finally:
                self._let_in(connection, True)

    def _let_in(self, connection: psycopg.Connection[Any], allowed: bool) -> None:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        connection.execute(statement.format(sql.Identifier(self._database), sql.Literal(allowed)))

    def end(self) -> None:
        """Kill everybody; whoever had left by then is noted."""
        for name, members in self._members.items():
            for member in members:
                status = member.kill()
                if status is not None:
                    self.deserted.append(f"a {name} ended by itself with status {status}")
        self._redis.stop()

    def told(self) -> Iterator[str]:
        """Every line of every log."""
        for log in sorted(self.logs.iterdir()):
            yield from log.read_text(errors="replace").splitlines()


@contextmanager
def company(directory: Path, broker: str) -> Iterator[Company]:
    """A company that works on a new database, which this process uses too. broker: redis or rabbitmq."""
    sockets = directory / "run"
    sockets.mkdir(mode=0o700)
    with ExitStack() as stack:
        admin, database = stack.enter_context(_database(directory, sockets))
        redis = sockets / "valkey.sock"
        address = f"redis+socket://{redis}" if broker == "redis" else stack.enter_context(_vhost())
        own = {
            **SETTINGS,
            "DATABASE_URL": database,
            "DJANGO_SECRET_KEY": secrets.token_urlsafe(50),
            "HELIX_BROKER_URL": address,
            "HELIX_CHANNEL_URL": f"unix://{redis}",
            "HELIX_STATE_DIR": str(directory / "state"),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "DJANGO_"))}
        os.environ.update(own)
        _prepare()
        made = Company(directory, {**kept, **own}, admin, sockets)
        stack.callback(made.end)
        yield made


def _prepare() -> None:
    """From here on this process knows the rows too."""
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    call_command("helix_schedule", verbosity=0)
    # What is in the pool now would be cut with everything else.
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


@contextmanager
def _database(directory: Path, sockets: Path) -> Iterator[tuple[str, str]]:
    """Where a superuser gets in, and a new database on the same server."""
    server: Server | None = None
    admin = os.environ.get("DATABASE_URL", "")
    if not admin.startswith("postgres"):
        try:
            server, admin = start_postgres(directory / "postgres", sockets, POSTGRES_OPTIONS)
        except ServerUnavailable:
            admin = local_postgres()
    if not admin:
        raise ServerUnavailable("There is no PostgreSQL: name one in DATABASE_URL.")
    name = f"helix_chaos_{os.getpid()}"
    parts = urlsplit(admin)
    try:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield admin, urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    finally:
        if server is not None:
            server.stop()


@contextmanager
def _vhost() -> Iterator[str]:
    """A broker of AMQP with nothing of anybody else in it."""
    name = f"helix-chaos-{os.getpid()}"
    user = urlsplit(AMQP).username or "guest"
    _rabbitmqctl("add_vhost", name)
    try:
        _rabbitmqctl("set_permissions", "--vhost", name, user, ".*", ".*", ".*")
        yield f"{AMQP}/{name}"
    finally:
        _rabbitmqctl("delete_vhost", name)


def _rabbitmqctl(*arguments: str) -> None:
    subprocess.run(["rabbitmqctl", "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _pass(seconds: float) -> None:
    """An outage lasts; nothing here waits for something to happen."""
    threading.Event().wait(seconds)
