"""Lanes of the suite: which database it runs on, and which tests belong to which lane.

``DATABASE_URL`` chooses the database; without it the suite runs on SQLite, on a file, since threads and processes
must share it. Every pytest process has databases of its own, so that several runs may share a machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.conf import settings

# Each needs what the suite does not: a process without an event loop and Chromium; Node and the packages of npm.
LANES = ("browser", "clients")
collect_ignore_glob = [f"{lane}/*" for lane in LANES if lane != os.environ.get("HELIX_TEST_LANE")]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Name this process's test database; the parallel suffix of xdist is part of it already."""
    database = settings.DATABASES["default"]
    if "sqlite" in database["ENGINE"]:
        name = str(Path(tmp_path_factory.mktemp("database")) / "helix.sqlite3")
    else:
        name = f"test_helix_{os.getpid()}"
    database.setdefault("TEST", {})["NAME"] = name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the races that need row locks to the PostgreSQL lane; its run proves them, so none is lost."""
    if "postgresql" in settings.DATABASES["default"]["ENGINE"]:
        return
    left_out = [item for item in items if item.get_closest_marker("postgres")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
