"""Wakes between processes: a plain publish, bounded; a subscription that comes back (F-1)."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
import redis
from pytest_django import Settings

from helix import wakes
from helix.edge import listening
from helix.edge.hub import Hub
from tests.streaming.turns import ROOT, Rows, numbers, read_to_the_head

REDIS_URL = os.environ.get("HELIX_TEST_REDIS_URL") or "redis://127.0.0.1:6379/15"


def layer(url: str, prefix: str) -> dict[str, dict[str, object]]:
    return {"default": {"BACKEND": "any", "CONFIG": {"hosts": [url], "prefix": prefix}}}


@pytest.fixture
def server(settings: Settings) -> Iterator[redis.Redis]:
    """A real Redis, on a channel that only this test uses."""
    client = redis.Redis.from_url(REDIS_URL, socket_connect_timeout=2)
    try:
        client.ping()
    except redis.RedisError as away:
        pytest.skip(f"no Redis answers at HELIX_TEST_REDIS_URL or on this machine: {type(away).__name__}")
    settings.CHANNEL_LAYERS = layer(REDIS_URL, f"test-{uuid4().hex}")
    yield client
    client.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"6f9619ff-8b86-d011-b42d-00cf4fc964ff:7", (UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff"), 7)),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff:7", (UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff"), 7)),
        (b"hello", None),
        (b"\xff:1", None),
        (b"6f9619ff-8b86-d011-b42d-00cf4fc964ff:", None),
        (b"", None),
    ],
)
def test_a_message_that_is_no_wake_is_left_alone(text: bytes | str, found: tuple[UUID, int] | None) -> None:
    assert wakes.parse(text) == found


def test_without_an_address_a_wake_stays_in_this_process(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    heard: list[tuple[UUID, int]] = []
    forget = wakes.listen(lambda root_id, sequence: heard.append((root_id, sequence)))
    wakes.publish(ROOT, 3)
    forget()
    wakes.publish(ROOT, 4)
    assert heard == [(ROOT, 3)]


def test_a_redis_that_accepts_and_never_answers_costs_half_a_second_once(settings: Settings) -> None:
    """A publish must not hold the thread that committed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.CHANNEL_LAYERS = layer(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", "test")
        failures: list[str] = []
        publishing = threading.Thread(target=publish_and_note, args=(failures,))
        publishing.start()
        publishing.join(5)
        assert failures == ["TimeoutError"]


def publish_and_note(failures: list[str]) -> None:
    try:
        wakes.publish(ROOT, 1)
    except redis.RedisError as failure:
        failures.append(type(failure).__name__)


async def test_a_wake_of_another_process_reaches_the_readers(server: redis.Redis) -> None:
    rows = Rows()
    async with rows.watching() as place:
        await read_to_the_head(place)
        await subscribed(server)
        rows.append(wake=False)
        server.publish(wakes.channel(), "no wake at all")
        server.publish(wakes.channel(), f"{ROOT}:1")
        assert await numbers(place) == [1]


async def test_what_is_published_here_is_heard_there(server: redis.Redis) -> None:
    with server.pubsub() as other:
        other.subscribe(wakes.channel())
        assert other.get_message(timeout=5) is not None
        await asyncio.to_thread(wakes.publish, ROOT, 12)
        message = other.get_message(timeout=5)
    assert message is not None and wakes.parse(message["data"]) == (ROOT, 12)


async def test_a_lost_subscription_comes_back_and_everything_is_read_again(
    server: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "FIRST_PAUSE_SECONDS", 0)
    returned = asyncio.Semaphore(0)
    relaying = asyncio.ensure_future(
        listening.relay(REDIS_URL, wake=lambda root_id, sequence: None, wake_all=returned.release)
    )
    try:
        async with asyncio.timeout(10):
            await returned.acquire()
            (subscriber,) = [one for one in server.client_list(_type="pubsub") if one["name"] == wakes.channel()]
            server.client_kill_filter(_id=subscriber["id"])
            await returned.acquire()
    finally:
        relaying.cancel()
    assert "streaming.wakes_lost" in [record.message for record in caplog.records]


async def test_when_wakes_may_be_lost_the_rows_are_asked_at_once() -> None:
    """The real pause is long; this is over before it."""
    rows = Rows()
    rows.hub = Hub(read_page=rows.page, read_positions=rows.positions)
    async with rows.watching() as place:
        await read_to_the_head(place)
        rows.append(wake=False)
        rows.hub.wake_all()
        assert await numbers(place) == [1]


async def subscribed(server: redis.Redis) -> None:
    """Returns when somebody listens on the channel."""
    async with asyncio.timeout(10):
        while not server.pubsub_numsub(wakes.channel())[0][1]:
            await asyncio.to_thread(server.ping)
