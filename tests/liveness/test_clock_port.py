"""The one clock that judges leases and deadlines, and the clocks around it that may not (L-5, D-4, liveness 12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection, transaction

from helix import clock
from helix.models import RunLease
from helix.services.advance import advance_run
from helix.services.advance.claim import claim_run
from tests.architecture.sources import ROOT
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel
from tests.kit.world import T0, World, current_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.postgres
def test_the_present_is_the_databases_and_goes_on_within_a_transaction() -> None:
    """L-5: the moment of the reading, which `now()` of a transaction would not be."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT transaction_timestamp()")
        begun = cursor.fetchone()[0]
        first, second = clock.database_now(), clock.database_now()
    assert begun < first < second and first.tzinfo is UTC


def test_without_a_server_the_present_is_the_hosts() -> None:
    """L-5: SQLite has no other."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert before < clock.database_now() < datetime.now(UTC) + timedelta(minutes=1)


def test_an_installed_port_is_the_only_clock(world: World) -> None:
    """D-4, D-13: it stands until it is moved, and the real one is back afterwards."""
    assert clock.utc_now() == T0 == clock.utc_now()
    world.tick(days=1)
    assert clock.utc_now() == T0 + timedelta(days=1)


@pytest.mark.parametrize(("seconds", "is_lost"), [(29.999, False), (30, True)])
def test_a_host_whose_clock_stepped_judges_no_lease(
    world: World, agent: AgentMaker, seconds: float, is_lost: bool
) -> None:
    """L-5: the instant is an argument from the port; whatever the host believes has no say."""
    run_id = current_run(world.start(agent(ScriptedModel(["done"])))).id
    assert claim_run(run_id, now=T0) is not None
    assert RunLease.objects.get().expires_at == T0 + timedelta(seconds=30)
    assert advance_run(run_id, clock=lambda: T0 + timedelta(seconds=seconds)) is is_lost


def test_a_message_has_no_life_of_its_own_in_the_broker() -> None:
    """Liveness 12: no queue with a bound on age or length is declared; due times are columns (T-10)."""
    assert not current_app.conf.task_queues and current_app.conf.result_backend is None
    assert not {"x-expires", "x-message-ttl", "x-max-length"} & set(current_app.conf.broker_transport_options)


def test_writers_of_sqlite_ask_for_the_lock_first() -> None:
    """R-601, liveness 12: a transaction that began as a reader could not become a writer without being refused."""
    for database in settings.DATABASES.values():
        if "sqlite" in database["ENGINE"]:
            assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_sockets_of_the_web_process_have_no_end() -> None:
    """Liveness 12: a reader stays for as long as it likes; streams resume after a cursor where a proxy cuts them."""
    web = next(line for line in (ROOT / "Procfile").read_text().splitlines() if line.startswith("web:"))
    assert "--websocket_timeout -1" in web and "--http-timeout" not in web
