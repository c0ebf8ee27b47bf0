"""How often somebody may submit (R-387, B-21)."""

from __future__ import annotations

import logging
from uuid import UUID, uuid4

import pytest
from django.core.cache import cache
from pytest_django.fixtures import Settings

from helix.errors import RateLimited
from helix.operations.rate import count_submit
from tests.api.conftest import Door, body_of
from tests.kit.world import OWNER, STRANGER, T0, World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    cache.clear()


def submit(door: Door, session_id: UUID | str) -> int:
    return door.post("submit-tool-result", {"sessionId": str(session_id), "toolCallId": "x", "result": 1}).status_code


def test_the_sixty_first_submit_in_a_minute_waits(owner: Door, world: World) -> None:
    """B-21: another session is not touched; a minute later the first one is free again."""
    session_id = uuid4()
    assert [submit(owner, session_id) for _ in range(60)] == [404] * 60
    world.tick(seconds=40)
    refused = owner.post("submit-tool-result", {"sessionId": str(session_id), "toolCallId": "x", "result": 1})
    assert (refused.status_code, body_of(refused)["code"], body_of(refused)["retryable"]) == (429, "rate_limited", True)
    assert refused["Retry-After"] == "20"
    assert submit(owner, uuid4()) == 404
    world.tick(seconds=20)
    assert submit(owner, session_id) == 404


def test_both_routes_share_one_count(owner: Door, world: World, settings: Settings) -> None:
    settings.HELIX_SUBMITS_PER_MINUTE = 1
    session_id = uuid4()
    assert submit(owner, session_id) == 404
    route = f"chat/{session_id}/submit-tool-result"
    assert owner.post(route, {"toolCallId": "x", "result": 1}).status_code == 429


def test_a_stranger_cannot_use_up_an_owners_allowance(
    owner: Door, stranger: Door, nobody: Door, waiting: UUID, settings: Settings
) -> None:
    settings.HELIX_SUBMITS_PER_MINUTE = 2
    assert [submit(stranger, waiting) for _ in range(3)] == [404, 404, 429]
    assert [submit(nobody, waiting) for _ in range(3)] == [401] * 3
    assert submit(owner, waiting) == 404


def test_no_burst_at_the_edge_of_a_minute_gets_through_twice(world: World, settings: Settings) -> None:
    settings.HELIX_SUBMITS_PER_MINUTE = 3
    moments = [T0.replace(second=second) for second in (58, 59, 59)]
    for moment in moments:
        count_submit(OWNER, "s", moment)
    with pytest.raises(RateLimited) as refused:
        count_submit(OWNER, "s", T0.replace(minute=1, second=1))
    assert refused.value.fields["retryAfterSeconds"] == 57


def test_a_refused_submit_does_not_lengthen_the_wait(world: World, settings: Settings) -> None:
    settings.HELIX_SUBMITS_PER_MINUTE = 1
    count_submit(OWNER, "s", T0)
    for second in range(1, 60):
        with pytest.raises(RateLimited):
            count_submit(OWNER, "s", T0.replace(second=second))
    count_submit(OWNER, "s", T0.replace(minute=1))


def test_names_that_join_alike_are_counted_apart(world: World, settings: Settings) -> None:
    settings.HELIX_SUBMITS_PER_MINUTE = 1
    count_submit(OWNER, "a", T0)
    count_submit(STRANGER, "a", T0)
    count_submit(OWNER, "a b\n" * 100, T0)


def test_a_cache_that_is_away_refuses_nobody(
    owner: Door, waiting: UUID, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis is optional: without it every answer is still stored."""
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }
    body = {"sessionId": str(waiting), "toolCallId": "c1", "result": {"city": "Bern"}}
    with caplog.at_level(logging.WARNING, "helix.rate"):
        assert owner.post("submit-tool-result", body).status_code == 200
    assert "rate.cache_unavailable" in caplog.text
