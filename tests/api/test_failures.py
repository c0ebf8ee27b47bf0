"""Whatever fails is typed JSON, and the text of an unexpected error stays here (R-349, R-350, R-354)."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from django.db import InterfaceError, OperationalError

from helix import selectors
from tests.api.conftest import Door, body_of
from tests.kit.world import World

pytestmark = pytest.mark.django_db

CANARY = "canary-9d20"


@pytest.mark.parametrize(
    ("failure", "status", "retryable"),
    [(RuntimeError, 500, False), (OperationalError, 503, True), (InterfaceError, 503, True)],
)
def test_an_unexpected_failure_has_a_fixed_text(
    owner: Door,
    waiting: UUID,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: type[Exception],
    status: int,
    retryable: bool,
) -> None:
    """Control: the log has the traceback, and the same request succeeds when nothing fails."""

    def fail(*_: object) -> None:
        raise failure(CANARY)

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR, "helix.api"):
        broken.setattr(selectors, "session_for", fail)
        failed = owner.get(f"sessions/{waiting}/events")
    assert (failed.status_code, body_of(failed)["code"], body_of(failed)["retryable"]) == (
        status,
        "transport_error",
        retryable,
    )
    assert CANARY not in failed.content.decode() and CANARY in caplog.text
    assert owner.get(f"sessions/{waiting}/events").status_code == 200


def test_an_unavailable_database_is_no_verdict_on_a_credential(owner: Door, settings: object) -> None:
    """R-350 rather than R-384: the same request may succeed later."""

    def hook(operation: str, request: object) -> None:
        raise OperationalError(CANARY)

    settings.HELIX_AUTHENTICATE = hook  # type: ignore[attr-defined]
    assert owner.get("sessions").status_code == 503


def test_a_route_that_is_not_there_is_typed(owner: Door, nobody: Door) -> None:
    for door in (owner, nobody):
        missing = door.get("nowhere/at/all")
        assert (missing.status_code, body_of(missing)["code"]) == (404, "NOT_FOUND")


def test_a_page_that_is_not_there_is_a_page(owner: Door) -> None:
    missing = owner.client.get("/nowhere/at/all")
    assert missing.status_code == 404 and missing["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_a_method_that_a_route_does_not_know_is_refused_typed(
    owner: Door, nobody: Door, world: World, method: str
) -> None:
    """And gated like any other (R-380)."""

    def ask(door: Door) -> tuple[int, str]:
        response = getattr(door.client, method)("/api/sessions", headers=door.headers)
        return response.status_code, body_of(response)["code"]

    assert ask(owner) == (405, "validation_error")
    assert ask(nobody) == (401, "transport_unauthorized")


def test_an_answer_is_json_whatever_the_client_accepts(owner: Door) -> None:
    answer = owner.client.get("/api/sessions", headers={**owner.headers, "Accept": "text/html"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


def test_no_answer_is_kept_by_a_cache(owner: Door, nobody: Door) -> None:
    for door in (owner, nobody):
        assert door.get("sessions")["Cache-Control"] == "no-store"


def test_head_is_a_get_without_a_body(owner: Door) -> None:
    answer = owner.client.head("/api/sessions", headers=owner.headers)
    assert (answer.status_code, answer.content) == (200, b"")
