"""The clock port: one reading per operation, passed on as an argument (F-5).

On PostgreSQL the database's clock is read, so that leases and deadlines of many hosts are judged by one clock (L-5);
on SQLite the host's. A test installs its own port, and only that port moves time (D-4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import connection

Clock = Callable[[], datetime]


def database_now() -> datetime:
    """The instant of the database on PostgreSQL (`clock_timestamp()`), of this host on SQLite; aware, UTC."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0].astimezone(UTC)


_port: Clock = database_now


def utc_now() -> datetime:
    """The present, from the installed port."""
    return _port()


@contextmanager
def installed(port: Clock) -> Iterator[Clock]:
    """Replace the port for a while, in the whole process: for tests."""
    global _port
    before, _port = _port, port
    try:
        yield port
    finally:
        _port = before


def in_utc(instant: datetime | None) -> datetime | None:
    """What a peer or a client named, in UTC; None without an offset, or one that leads out of the calendar's years."""
    if instant is None or instant.tzinfo is None:
        return None
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return None
