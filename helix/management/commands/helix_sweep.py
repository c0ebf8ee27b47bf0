"""``manage.py helix_sweep``: one pass over everything that may be due, without beat and without a broker (R-238)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from helix.tasks import run_sweeps


class Command(BaseCommand):
    """For an outage of beat, and for cron. May run beside the scheduled sweep, and twice (R-234)."""

    help = "Runs every sweep once; fails when one of them did."

    def handle(self, *args: Any, **options: Any) -> None:
        touched = run_sweeps()
        for name, rows in touched.items():
            self.stdout.write(f"{name}: {'failed, see the log' if rows is None else rows}")
        failed = [name for name, rows in touched.items() if rows is None]
        if failed:
            raise CommandError(f"{', '.join(failed)} failed.")
