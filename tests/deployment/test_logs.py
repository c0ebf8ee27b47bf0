"""What an operator sees of a log event."""

from __future__ import annotations

import logging

import pytest
from pytest_django import Settings

from helix.logs import EventFilter, EventFormatter, warn_when_unauthenticated


def record(name: str, level: int, **extra: object) -> logging.LogRecord:
    return logging.getLogger("helix.test").makeRecord("helix.test", level, "", 0, name, (), None, extra=extra)


def test_a_quiet_event_is_left_out_and_a_loud_one_passes() -> None:
    """R-613."""
    assert not EventFilter("INFO").filter(record("client_tool.submitted", logging.DEBUG))
    assert EventFilter("INFO").filter(record("client_tool.timeout", logging.WARNING))


def test_the_level_of_a_single_event_can_be_raised_and_lowered(settings: Settings) -> None:
    """R-617."""
    settings.HELIX_LOG_LEVELS = {"client_tool.submitted": "ERROR", "client_tool.timeout": "DEBUG"}
    raised = record("client_tool.submitted", logging.DEBUG)
    assert EventFilter("INFO").filter(raised)
    assert (raised.levelno, raised.levelname) == (logging.ERROR, "ERROR")
    assert not EventFilter("INFO").filter(record("client_tool.timeout", logging.WARNING))
    # Control: its neighbour keeps its level.
    assert not EventFilter("INFO").filter(record("client_tool.suspended", logging.DEBUG))


def test_with_a_service_name_every_event_carries_it(settings: Settings) -> None:
    """R-393."""
    unnamed = record("run.takeover", logging.WARNING)
    EventFilter().filter(unnamed)
    assert "service" not in EventFormatter().format(unnamed)
    settings.HELIX_SERVICE_NAME = "billing"
    named = record("run.takeover", logging.WARNING)
    EventFilter().filter(named)
    assert EventFormatter().format(named).endswith("run.takeover service=billing")


def test_no_field_of_an_event_is_dropped() -> None:
    """R-615."""
    line = EventFormatter().format(record("run.takeover", logging.WARNING, runId="r1", sessionId="s1", epoch=3))
    assert line.endswith("WARNING helix.test run.takeover runId=r1 sessionId=s1 epoch=3")


@pytest.mark.parametrize("is_allowed", [True, False])
def test_running_unauthenticated_is_warned_of_by_the_services_name(
    settings: Settings, caplog: pytest.LogCaptureFixture, is_allowed: bool
) -> None:
    """R-382, R-618."""
    settings.HELIX_AUTHENTICATE = None
    settings.HELIX_ALLOW_UNAUTHENTICATED = is_allowed
    settings.HELIX_SERVICE_NAME = "billing"
    warn_when_unauthenticated()
    assert [(event.msg, event.levelname, event.service) for event in caplog.records] == [
        ("auth.unauthenticated_mode", "WARNING", "billing")
    ][: int(is_allowed)]


def test_the_healthy_deployment_warns_of_nothing(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.HELIX_AUTHENTICATE = "helix.api.auth.login_or_token"
    warn_when_unauthenticated()
    assert caplog.records == []
