"""Deployment variables: read, typed, and complained about without a traceback."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from config.environment import Environment, local_secret

DEFAULT = Path("default.sqlite3")


@pytest.mark.parametrize(
    ("address", "name"),
    [("sqlite:///here.sqlite3", "here.sqlite3"), ("sqlite:////srv/there.sqlite3", "/srv/there.sqlite3")],
)
def test_a_sqlite_address_opens_immediate_transactions_and_keeps_no_connection(address: str, name: str) -> None:
    database = Environment({"DATABASE_URL": address}).database("DATABASE_URL", DEFAULT)
    assert database["ENGINE"] == "helix.db.sqlite"
    assert database["NAME"] == Path(name)
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert database["OPTIONS"]["timeout"] == 20
    assert "journal_mode=WAL" in database["OPTIONS"]["init_command"]
    assert database["CONN_MAX_AGE"] == 0


def test_a_postgres_address_uses_the_pool_of_the_driver_and_keeps_no_connection() -> None:
    environment = Environment({"DATABASE_URL": "postgres://us%40er:p%2Fw@db.example:6432/helix?sslmode=require"})
    database = environment.database("DATABASE_URL", DEFAULT)
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert (database["NAME"], database["USER"], database["PASSWORD"]) == ("helix", "us@er", "p/w")
    assert (database["HOST"], database["PORT"]) == ("db.example", "6432")
    assert database["OPTIONS"]["sslmode"] == "require"
    assert database["OPTIONS"]["pool"]["max_size"] > 0
    assert database["CONN_MAX_AGE"] == 0
    # None of the pool that a restart of the server left dead is handed out.
    assert database["CONN_HEALTH_CHECKS"]


def test_a_postgres_address_may_name_the_directory_of_a_socket() -> None:
    environment = Environment({"DATABASE_URL": "postgres://helix@/postgres?host=/run/postgresql"})
    database = environment.database("DATABASE_URL", DEFAULT)
    assert (database["HOST"], database["NAME"]) == ("/run/postgresql", "postgres")
    assert "host" not in database["OPTIONS"]


@pytest.mark.parametrize(
    "address", ["mysql://secret/n", "postgres://secret:port/n", "postgres://secret", "sqlite:secret", "secret"]
)
def test_a_database_address_that_cannot_be_read_is_named_without_being_shown(address: str) -> None:
    environment = Environment({"DATABASE_URL": address})
    assert environment.database("DATABASE_URL", DEFAULT)["NAME"] == DEFAULT
    assert [problem.name for problem in environment.problems] == ["DATABASE_URL"]
    assert "secret" not in environment.problems[0].message


def test_without_an_address_the_default_is_used_and_nothing_is_wrong() -> None:
    environment = Environment({})
    assert environment.database("DATABASE_URL", DEFAULT)["NAME"] == DEFAULT
    assert environment.problems == []


def test_a_flag_that_is_neither_true_nor_false_is_named() -> None:
    environment = Environment({"GOOD": "Yes", "BAD": "maybe"})
    assert environment.flag("GOOD", default=False) is True
    assert environment.flag("BAD", default=False) is False
    assert [problem.name for problem in environment.problems] == ["BAD"]


def test_a_word_outside_the_choices_is_named_and_the_first_choice_stands() -> None:
    environment = Environment({"GOOD": "worker", "BAD": "boss"})
    assert environment.choice("GOOD", ("all", "worker")) == "worker"
    assert environment.choice("BAD", ("all", "worker")) == "all"
    assert [problem.name for problem in environment.problems] == ["BAD"]


def test_an_address_of_another_scheme_is_named_without_being_shown() -> None:
    environment = Environment({"GOOD": "redis://h/1", "BAD": "kafka://secret@h"})
    assert environment.url("GOOD", "memory://", ("memory", "redis")) == "redis://h/1"
    assert environment.url("BAD", "memory://", ("memory", "redis")) == "memory://"
    assert [problem.name for problem in environment.problems] == ["BAD"]
    assert "secret" not in environment.problems[0].message


@pytest.mark.parametrize("address", ["redis://[x", "redis://me]@h", "redis://[1.2.3.4]"])
def test_an_address_without_a_readable_host_is_named_like_any_other(address: str) -> None:
    environment = Environment({"BAD": address, "DATABASE_URL": address.replace("redis", "postgres") + "/n"})
    assert environment.url("BAD", "memory://", ("memory", "redis")) == "memory://"
    assert environment.database("DATABASE_URL", DEFAULT)["NAME"] == DEFAULT
    assert [problem.name for problem in environment.problems] == ["BAD", "DATABASE_URL"]
    assert not any(address in problem.message for problem in environment.problems)


def test_a_local_secret_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "secret_key"
    first = local_secret(path)
    assert len(first) >= 50
    assert local_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_of_rival_first_starts_all_get_the_same_secret(tmp_path: Path) -> None:
    secrets: list[str] = []
    threads = [threading.Thread(target=lambda: secrets.append(local_secret(tmp_path / "secret_key"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(secrets) == 8
    assert len(set(secrets)) == 1


def test_a_directory_that_cannot_be_written_gives_a_secret_for_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(local_secret(tmp_path / "file" / "secret_key")) >= 50
