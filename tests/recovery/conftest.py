"""The fleet of real processes that every test here commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helix import nudges
from tests.provider_server import ProviderServer
from tests.recovery.fleet import Fleet


@pytest.fixture(scope="module")
def standing_fleet(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One web process for all tests: it holds nothing of a conversation, which is the point."""
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        made.web()
        yield made
    finally:
        made.end()


@pytest.fixture
def fleet(
    transactional_db: None, standing_fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    # The test is the sweep: its hints go to the workers' broker.
    monkeypatch.setattr(nudges, "send_to_worker", standing_fleet.hint)
    monkeypatch.setattr(nudges, "send_to_readers", lambda root_id, sequence: None)
    with ProviderServer() as provider, standing_fleet.serving(provider, tmp_path / "ledger"):
        yield standing_fleet
