"""Holding coroutines: gates and turns of the loop, so that an interleaving is chosen and never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from helix.edge.frames import PAGE, Frame
from helix.edge.hub import Hub
from helix.edge.places import Place

ROOT = uuid4()


class Turn:
    """``await Turn()`` lets every other task that is ready run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Gate:
    """Holds whoever passes until the test opens it; open from the beginning unless ``close`` was called."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self.arrived.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, *ignored: Any) -> None:
        self.arrived.set()
        await self._open.wait()


class Rows:
    """The rows of one stream in memory. A read sees what is committed when it begins, and returns through a gate."""

    def __init__(self) -> None:
        self.newest = 0
        self.reads = 0
        self.exists = True
        self.failures: list[Exception] = []
        self.after_reading = Gate()
        # One release is one slow re-reading.
        self.rereads = asyncio.Semaphore(0)
        self.hub = Hub(read_page=self.page, read_positions=self.positions, pause=self.until_reread)

    def append(self, count: int = 1, *, wake: bool = True) -> None:
        self.newest += count
        if wake:
            self.hub.wake(ROOT, self.newest)

    async def until_reread(self, at_once: asyncio.Event) -> None:
        await self.rereads.acquire()

    async def page(self, root_id: UUID, after: int) -> Sequence[Frame]:
        self.reads += 1
        found = [Frame(number, "custom", f'{{"n":{number}}}') for number in range(after + 1, self.newest + 1)][:PAGE]
        await self.after_reading(after)
        if self.failures:
            raise self.failures.pop()
        return found

    async def positions(self, root_ids: Sequence[UUID]) -> dict[UUID, int]:
        return {ROOT: self.newest} if self.exists else {}

    @asynccontextmanager
    async def watching(self, after: int = 0) -> AsyncIterator[Place]:
        async with asyncio.timeout(10), self.hub.attached(ROOT, after) as place:
            yield place


async def numbers(place: Place) -> list[int]:
    return [frame.sequence for frame in await place.next_batch()]


async def read_to_the_head(place: Place) -> list[int]:
    """The whole backlog."""
    found: list[int] = []
    while batch := await numbers(place):
        found += batch
    return found


async def read_until(place: Place, newest: int) -> list[int]:
    found: list[int] = []
    while place.cursor < newest:
        found += await numbers(place)
    return found
