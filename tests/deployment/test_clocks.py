"""Clocks of the infrastructure that would end, repeat, hide or delay work, each asserted off (liveness section 12)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from celery import current_app
from django.conf import settings

from tests.architecture.sources import ROOT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # Would kill a healthy body.
        ("task_time_limit", None),
        ("task_soft_time_limit", None),
        ("worker_max_tasks_per_child", None),
        ("worker_cancel_long_running_tasks_on_connection_loss", False),
        # Would deliver a message a second time while the first is at work.
        ("task_acks_late", False),
        # Would keep messages from other workers, or a worker waiting for a worker.
        ("worker_prefetch_multiplier", 1),
        ("task_ignore_result", True),
        ("result_backend", None),
        # Would end what a worker runs, from outside.
        ("worker_enable_remote_control", False),
        # Would hold a submit for as long as the broker is away.
        ("task_publish_retry", False),
    ],
)
def test_celery_has_no_clock_over_work(name: str, value: object) -> None:
    assert current_app.conf[name] == value


def test_no_database_connection_outlives_its_request() -> None:
    assert all(database["CONN_MAX_AGE"] == 0 for database in settings.DATABASES.values())


def test_no_request_is_one_transaction() -> None:
    assert not any(database["ATOMIC_REQUESTS"] for database in settings.DATABASES.values())


def test_the_memory_broker_is_polled_often_enough_for_a_conversation() -> None:
    assert bound_of("memory://", "all", "polling_interval") == "0.02"


@pytest.mark.parametrize(
    ("broker", "option"),
    [
        ("redis://localhost", "socket_timeout"),
        ("redis+socket:///run/valkey.sock", "socket_connect_timeout"),
        ("rediss://localhost", "socket_connect_timeout"),
        ("amqp://localhost", "write_timeout"),
        ("amqps://localhost", "connect_timeout"),
    ],
)
def test_a_web_process_gives_up_a_publish_quickly_and_a_worker_outlasts_its_own_blocking_reads(
    broker: str, option: str
) -> None:
    assert bound_of(broker, "web", option) == "0.5"
    assert float(bound_of(broker, "worker", option)) > 2


def bound_of(broker: str, role: str, option: str) -> str:
    """What the settings of a fresh process say; they are read once per process."""
    program = f"from config import settings; print(settings.CELERY_BROKER_TRANSPORT_OPTIONS[{option!r}])"
    environment = {"HELIX_BROKER_URL": broker, "HELIX_ROLE": role, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
