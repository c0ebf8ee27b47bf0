"""``manage.py helix_serve``: everything that Helix needs, started with one command (``make run``)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils.module_loading import import_string

from helix.serving import servers
from helix.serving.processes import Line, Supervisor
from helix.serving.start import banner, prepare


class Command(BaseCommand):
    """Prepares the database, prints where to go, and serves until SIGTERM or Ctrl-C."""

    help = "Serves web, worker and schedule: in one process, or with --profile full as processes over real servers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000, help="0 takes any free port (embedded profile).")
        parser.add_argument("--threads", type=int, default=16, help="Runs that are driven at the same time.")
        parser.add_argument(
            "--profile",
            choices=("embedded", "full"),
            default="embedded",
            help="full: PostgreSQL and Valkey from wheels (requirements-full.txt) and separate processes.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        serve = {"embedded": self._serve_embedded, "full": self._serve_full}[options["profile"]]
        serve(options["host"], options["port"], options["threads"])

    def _serve_embedded(self, host: str, port: int, threads: int) -> None:
        # Imported here: both bring in Twisted's reactor, which belongs to a process that serves.
        from helix.serving.embedded import EmbeddedProcess

        logins = prepare()
        process = EmbeddedProcess(import_string(settings.ASGI_APPLICATION), host=host, port=port, threads=threads)

        def announce(port_in_use: int) -> None:
            profile = "embedded profile: one process, one writer, one machine; for more use --profile full"
            for line in banner(profile, f"http://{host}:{port_in_use}/", logins):
                self.stdout.write(line)
            self.stdout.flush()

        status = process.serve(announce)
        if process.failure:
            self.stderr.write(process.failure)
        connections.close_all()
        sys.stdout.flush()
        sys.stderr.flush()
        # A body that outlasts the grace period holds a thread that a normal exit would wait for; its run has a lease.
        os._exit(status)

    def _serve_full(self, host: str, port: int, threads: int) -> None:
        """Real servers first, then ``helix_stack`` over them; whichever ends first ends everything."""
        signal.signal(signal.SIGTERM, _leave)
        # A socket's path is at most 107 characters long, so it cannot lie below a deep checkout.
        sockets = Path(tempfile.mkdtemp(prefix="helix-"))
        started: dict[str, servers.Server] = {}
        try:
            started["postgres"], database_url = servers.start_postgres(settings.STATE_DIR / "postgres", sockets)
            started["valkey"], valkey = servers.start_valkey(sockets)
            environment = {
                "DATABASE_URL": database_url,
                "HELIX_BROKER_URL": f"redis+socket://{valkey}",
                "HELIX_CHANNEL_URL": f"unix://{valkey}",
                "HELIX_WORKER": "celery",
                "HELIX_THREADS": str(threads),
                "DJANGO_SECRET_KEY": settings.SECRET_KEY,
            }
            command = f"python {settings.BASE_DIR / 'manage.py'} helix_stack --host {host} --port {port}"
            watched = {name: server.process for name, server in started.items()}
            ended = Supervisor((Line("stack", command),), environment, watched).run()
        except servers.ServerUnavailable as missing:
            raise CommandError(str(missing)) from missing
        finally:
            for server in reversed(started.values()):
                server.stop()
            shutil.rmtree(sockets, ignore_errors=True)
        if ended:
            raise CommandError(f"{ended[0]} ended with status {ended[1]}; everything was stopped.")


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal while servers start unwinds like an error, so that none is left behind."""
    raise SystemExit(128 + number)
