"""Writers on SQLite wait in a fair line: none is refused as busy and the lock is never lost (F-10, R-601).

The database is a file of its own beside the suite's, so these tests run in both lanes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import OperationalError, connections, transaction
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from helix.db.sqlite.base import DatabaseWrapper
from helix.db.sqlite.fair import FairLock, lock_of

ALIAS = "fair"
WRITERS = 50


@pytest.fixture
def fair(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[DatabaseWrapper]:
    """A connection to a fresh file with the deployment's options and one table."""
    wanted = {
        "ENGINE": "helix.db.sqlite",
        "NAME": tmp_path / "fair.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"},
    }
    connections.settings[ALIAS] = ConnectionHandler().configure_settings({"default": {}, ALIAS: wanted})[ALIAS]
    with django_db_blocker.unblock():
        connection = connections[ALIAS]
        assert isinstance(connection, DatabaseWrapper)
        execute("CREATE TABLE counter (value INTEGER)")
        execute("INSERT INTO counter VALUES (0)")
        yield connection
        connection.close()
    del connections[ALIAS], connections.settings[ALIAS]


def execute(statement: str) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(statement)


def value() -> int:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT value FROM counter")
        return cursor.fetchone()[0]


def is_free() -> bool:
    """Whether another writer could begin at once."""
    lock = lock_of(str(connections[ALIAS].settings_dict["NAME"]))
    taken = lock.acquire(timeout=0)
    if taken:
        lock.release()
    return taken


def run_all(*bodies: Callable[[], object]) -> list[BaseException]:
    """Run every body in a thread of its own, with its own connection; what they raised."""
    failures: list[BaseException] = []

    def guarded(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as failure:
            failures.append(failure)
        finally:
            connections[ALIAS].close()

    threads = [threading.Thread(target=guarded, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def add_one_in_a_transaction() -> None:
    with transaction.atomic(using=ALIAS):
        seen = value()
        execute(f"UPDATE counter SET value = {seen + 1}")


def test_of_fifty_writers_that_read_first_none_is_refused_and_none_overwrites_another(fair: DatabaseWrapper) -> None:
    assert run_all(*[add_one_in_a_transaction] * WRITERS) == []
    assert value() == WRITERS
    assert is_free()


def test_a_statement_outside_a_transaction_waits_for_its_turn_too(fair: DatabaseWrapper) -> None:
    def add_one() -> None:
        execute("UPDATE counter SET value = value + 1")

    assert run_all(*[add_one_in_a_transaction] * 20, *[add_one] * 20) == []
    assert value() == 40
    assert is_free()


def test_a_read_does_not_wait_for_a_writer(fair: DatabaseWrapper) -> None:
    seen: list[int] = []
    with transaction.atomic(using=ALIAS):
        execute("UPDATE counter SET value = 7")
        assert run_all(lambda: seen.append(value())) == []
    assert seen == [0]
    assert value() == 7


def test_the_lock_is_kept_over_savepoints_and_given_away_at_commit(fair: DatabaseWrapper) -> None:
    with transaction.atomic(using=ALIAS):
        with transaction.atomic(using=ALIAS):
            execute("UPDATE counter SET value = 1")
        assert not is_free()
        with pytest.raises(ValueError), transaction.atomic(using=ALIAS):  # noqa: PT011
            raise ValueError
        assert not is_free()
    assert is_free()
    assert value() == 1


def test_the_lock_is_given_away_when_the_transaction_fails(fair: DatabaseWrapper) -> None:
    with pytest.raises(OperationalError), transaction.atomic(using=ALIAS):
        execute("UPDATE no_such_table SET value = 1")
    assert is_free()


def test_the_lock_is_given_away_when_the_connection_is_closed_inside_a_transaction(fair: DatabaseWrapper) -> None:
    with pytest.raises(OperationalError), transaction.atomic(using=ALIAS):
        fair.close()
        raise OperationalError
    assert is_free()


def test_a_wait_beyond_the_timeout_ends_as_sqlite_would_end_it(fair: DatabaseWrapper) -> None:
    lock = lock_of(str(fair.settings_dict["NAME"]))
    fair.settings_dict["OPTIONS"]["timeout"] = 0
    assert lock.acquire(timeout=0)
    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic(using=ALIAS):
        pass
    lock.release()
    # Control: the same writer succeeds once the lock is free.
    with transaction.atomic(using=ALIAS):
        execute("UPDATE counter SET value = 3")
    assert value() == 3


def test_waiters_are_served_in_the_order_of_asking() -> None:
    lock = FairLock()
    assert lock.acquire(timeout=0)
    served: list[int] = []
    threads = []
    for number in range(8):

        def wait_for_turn(number: int = number) -> None:
            assert lock.acquire(timeout=60)
            served.append(number)
            lock.release()

        threads.append(threading.Thread(target=wait_for_turn))
        threads[-1].start()
        while len(lock._waiting) <= number:
            threads[-1].join(timeout=0.001)
    lock.release()
    for thread in threads:
        thread.join()
    assert served == list(range(8))


def test_giving_up_a_place_in_the_line_does_not_stop_the_line() -> None:
    lock = FairLock()
    assert lock.acquire(timeout=0)
    assert not lock.acquire(timeout=0)
    lock.release()
    assert lock.acquire(timeout=0)
