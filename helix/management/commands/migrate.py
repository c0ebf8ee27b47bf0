"""``migrate``, one process at a time: two hosts that are deployed at once end in one applied set (R-569).

Django reads what is applied and then applies the rest, without a lock in between. On PostgreSQL an advisory lock of the
database's session stands around both: the second process waits, and finds nothing left to do. If a process dies, its
connection and the lock with it are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.commands import migrate
from django.db import connections

# Any number does, as long as it is always the same one.
LOCK = 0x48454C49


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        with one_at_a_time(options["database"]):
            super().handle(*args, **options)


@contextmanager
def one_at_a_time(alias: str) -> Iterator[None]:
    """Wait until no other process is inside for this database. SQLite files belong to one host and have their own."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
