"""How "events were appended" travels from a commit to the processes that have readers.

A wake says (root, sequence) and nothing else; rows say the rest (F-1). It reaches the readers of this process through
plain callbacks, and those of other processes through one Redis channel when the channel layer has an address. Losing
every wake delays readers by their slow re-reading, `helix.edge.hub.REREAD_SECONDS`.

Publishing is a plain bounded PUBLISH from synchronous code: a group message of the channel layer would open a loop and
a connection each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

Listener = Callable[[UUID, int], None]

# A commit's thread waits for this long at most, and then the breaker of `helix.nudges` leaves Redis alone.
PUBLISH_SECONDS: Final = 0.5

_listeners: tuple[Listener, ...] = ()


def publish(root_id: UUID, sequence: int) -> None:
    """Tell every reader of ``root_id`` that events up to ``sequence`` are committed.

    Raises: redis.RedisError when other processes cannot be told; the readers of this one have been told before.
    """
    for listener in _listeners:
        listener(root_id, sequence)
    url = address()
    if url is not None:
        _publisher(url).publish(channel(), f"{root_id}:{sequence}")


def listen(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` at every wake of this process, in the thread that commits; returns how to end it.

    The listener must neither block nor raise.
    """
    global _listeners
    _listeners = (*_listeners, listener)

    def forget() -> None:
        global _listeners
        _listeners = tuple(one for one in _listeners if one is not listener)

    return forget


def address() -> str | None:
    """The Redis that carries wakes between processes; None when there is none and every process is on its own."""
    hosts = _layer().get("hosts") or [None]
    return hosts[0]


def channel() -> str:
    """The one channel of all wakes; deployments that share a Redis differ in the layer's prefix."""
    return f"{_layer().get('prefix', 'helix')}:wakes"


def parse(text: str | bytes) -> tuple[UUID, int] | None:
    """The wake in a message of the channel; None for anything else that somebody published there."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    root, _, sequence = text.partition(":")
    try:
        return UUID(root), int(sequence)
    except ValueError:
        return None


def _layer() -> dict[str, Any]:
    return settings.CHANNEL_LAYERS["default"].get("CONFIG", {})


@lru_cache(maxsize=4)
def _publisher(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=PUBLISH_SECONDS,
        socket_connect_timeout=PUBLISH_SECONDS,
        # Once: a second try would hold the commit's thread for as long again.
        retry=Retry(NoBackoff(), 0),
    )
