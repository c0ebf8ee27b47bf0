"""Wakes of other processes: one subscription per process to the channel of `helix.wakes`.

It ends only by being cancelled. While Redis is away it tries again, ever more slowly; after each return it asks for
everything to be read again, since wakes of the meantime are lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from redis import RedisError
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from helix import wakes

log = logging.getLogger("helix.streaming")

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
# A connection that fell silent is asked whether it lives, and given up when it does not answer in time.
SILENCE_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 5.0


async def relay(url: str, *, wake: wakes.Listener, wake_all: Callable[[], None]) -> None:
    """Hand every wake that is published at ``url`` to ``wake``, and call ``wake_all`` after each (re)connection."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        # Named, so that an operator sees in CLIENT LIST who listens.
        name = wakes.channel()
        client = Redis.from_url(url, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=None, client_name=name)
        try:
            async with client.pubsub() as subscription:
                await subscription.subscribe(name)
                await _first_message(subscription)
                wake_all()
                pause = FIRST_PAUSE_SECONDS
                await _hand_on(subscription, wake)
        except (RedisError, OSError, TimeoutError) as lost:
            log.warning("streaming.wakes_lost", extra={"failure": type(lost).__name__})
        finally:
            await client.aclose()
        await asyncio.sleep(pause * random.uniform(0.5, 1))
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


async def _first_message(subscription: PubSub) -> None:
    """Wait until the subscription is confirmed: wakes from then on are received."""
    if await subscription.get_message(timeout=ANSWER_SECONDS) is None:
        raise TimeoutError


async def _hand_on(subscription: PubSub, wake: wakes.Listener) -> None:
    asked = False
    while True:
        message = await subscription.get_message(timeout=ANSWER_SECONDS if asked else SILENCE_SECONDS)
        if message is None:
            if asked:
                raise TimeoutError
            await subscription.ping()
            asked = True
            continue
        asked = False
        if message["type"] == "message" and (found := wakes.parse(message["data"])):
            wake(*found)
