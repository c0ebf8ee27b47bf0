"""Migrations: additive, and safe to start on two hosts at once (R-568, R-569)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection, migrations
from django.db.migrations.loader import MigrationLoader

from tests.recovery.fleet import database_url

ROOT = Path(__file__).resolve().parents[2]
ADDING = (
    migrations.AddField,
    migrations.AddConstraint,
    migrations.AddIndex,
    migrations.CreateModel,
    migrations.RunPython,
    migrations.RunSQL,
    migrations.AlterModelOptions,
    # A check over a set of words is replaced by one over more of them.
    migrations.RemoveConstraint,
)


def test_migrations_after_the_first_only_add() -> None:
    """R-568: the version before them goes on writing; a column that it does not know may be left out."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    found = [one for (app, _), one in loader.disk_migrations.items() if app in ("helix", "approvals")]
    assert len(found) > 1
    for migration in found:
        if migration.initial:
            continue
        for operation in migration.operations:
            assert isinstance(operation, ADDING), f"{migration.name}: {operation.describe()}"
            if isinstance(operation, migrations.AddField):
                field = operation.field
                assert field.null or field.has_default() or field.many_to_many, f"{migration.name}: {operation.name}"


@pytest.fixture
def empty_database(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own on the server of the tests; gone afterwards."""
    name = f"helix_migrations_{uuid4().hex[:12]}"
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        with connection.cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{name}"')
        yield database_url(name)
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.postgres
def test_two_hosts_that_migrate_at_once_end_in_one_applied_set(empty_database: str) -> None:
    """R-569: neither fails, and a third finds nothing to do."""
    environment = {**os.environ, "DATABASE_URL": empty_database}
    command = [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "1"]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert sorted("No migrations to apply" in text for text in said) == [False, True]
    checked = subprocess.run([*command[:3], "--check"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
