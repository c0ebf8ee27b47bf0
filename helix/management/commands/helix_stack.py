"""``manage.py helix_stack``: the Procfile's processes over the database and broker of the environment (``make up``)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from helix import conf
from helix.serving.processes import Supervisor, read_procfile
from helix.serving.start import banner, prepare


class Command(BaseCommand):
    """Prepares the database once, then starts web, worker, sweeper and beat; the death of one ends all."""

    help = "Starts web, worker, sweeper and beat as processes under one supervisor."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        if conf.get("HELIX_WORKER") != "celery":
            raise CommandError("Separate processes need HELIX_WORKER=celery and a broker that they share.")
        logins = prepare()
        connections.close_all()
        host, port = options["host"], options["port"]
        for line in banner("separate processes: web, worker, sweeper, beat", f"http://{host}:{port}/", logins):
            self.stdout.write(line)
        self.stdout.flush()
        lines = read_procfile(settings.BASE_DIR / "Procfile")
        environment = {"HELIX_HOST": host, "PORT": str(port)}
        if ended := Supervisor(lines, environment).run():
            raise CommandError(f"{ended[0]} ended with status {ended[1]}; everything was stopped.")
