"""``manage.py helix_reap``: remove conversations whose life is over (R-048)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from helix.clock import utc_now
from helix.tasks import reap_expired


class Command(BaseCommand):
    """The sweep does the same, a few at a time; this goes on until none is left."""

    help = "Stops and removes every session past its expires_at."

    def handle(self, *args: Any, **options: Any) -> None:
        total = 0
        while reaped := reap_expired(utc_now()):
            total += reaped
        self.stdout.write(f"{total} conversations removed.")
