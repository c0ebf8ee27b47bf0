"""One reader per conversation and process: rows are read once and encoded once, for however many who watch.

Wakes only shorten the wait: every `REREAD_SECONDS` one query asks for the newest number of all watched roots.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from helix import wakes
from helix.edge import frames, listening
from helix.edge.frames import Frame
from helix.edge.places import Place, ReadPage, RootReader
from helix.edge.threads import read_in_thread

log = logging.getLogger("helix.streaming")

REREAD_SECONDS: Final = 1.5
# Roots in one query for positions; SQLite's oldest limit of variables is 999.
ROOTS_A_QUERY: Final = 500

ReadPositions = Callable[[Sequence[UUID]], Awaitable[Mapping[UUID, int]]]


async def _read_page(root_id: UUID, after: int) -> Sequence[Frame]:
    return await read_in_thread(frames.read_page, root_id, after)


async def _read_positions(root_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    return await read_in_thread(frames.read_positions, root_ids)


async def _pause(at_once: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(REREAD_SECONDS):
            await at_once.wait()


class Attached:
    """``async with hub().attached(...) as place``. No generator: those are all closed at once when a loop ends."""

    def __init__(self, hub: Hub, root_id: UUID, after: int) -> None:
        self._hub = hub
        self._root_id = root_id
        self._after = after

    async def __aenter__(self) -> Place:
        self._place = self._hub.enter(self._root_id, self._after)
        return self._place

    async def __aexit__(self, *failure: object) -> None:
        self._hub.leave(self._root_id, self._place)


class Hub:
    """The readers of one event loop. Its own tasks run only while somebody watches.

    read_page, read_positions: how rows are read.  pause: the wait between two slow re-readings, cut short by its event.
    """

    def __init__(
        self,
        *,
        read_page: ReadPage = _read_page,
        read_positions: ReadPositions = _read_positions,
        pause: Callable[[asyncio.Event], Awaitable[None]] = _pause,
    ) -> None:
        self._read_page = read_page
        self._read_positions = read_positions
        self._pause = pause
        self._readers: dict[UUID, tuple[RootReader, asyncio.Task[None]]] = {}
        self._stirred: set[asyncio.Event] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._at_once = asyncio.Event()
        self._forget: Callable[[], None] = lambda: None

    def attached(self, root_id: UUID, after: int) -> Attached:
        """A place in the stream of a root, which the caller has found through its principal. Starts no run (R-524)."""
        return Attached(self, root_id, after)

    def enter(self, root_id: UUID, after: int) -> Place:
        self._start()
        if root_id not in self._readers:
            reader = RootReader(root_id, self._read_page)
            self._readers[root_id] = (reader, _task(reader.run()))
        reader, _ = self._readers[root_id]
        place = Place(reader, after)
        reader.places.add(place)
        return place

    def leave(self, root_id: UUID, place: Place) -> None:
        reader, task = self._readers[root_id]
        reader.places.discard(place)
        if not reader.places:
            del self._readers[root_id]
            task.cancel()
        self._stop_when_idle()

    @contextmanager
    def stirring(self) -> Iterator[asyncio.Event]:
        """An event that is set by every wake of any conversation: for lists over many."""
        self._start()
        event = asyncio.Event()
        self._stirred.add(event)
        try:
            yield event
        finally:
            self._stirred.discard(event)
            self._stop_when_idle()

    def wake(self, root_id: UUID, sequence: int) -> None:
        """Events up to ``sequence`` of a root are committed. A repeated, late or early wake is harmless."""
        if root_id in self._readers:
            self._readers[root_id][0].wake(sequence)
        for event in self._stirred:
            event.set()

    def wake_all(self) -> None:
        """Wakes may have been lost: ask the rows at once."""
        for event in self._stirred:
            event.set()
        self._at_once.set()

    async def _reread(self) -> None:
        watched = list(self._readers)
        for start in range(0, len(watched), ROOTS_A_QUERY):
            asked = watched[start : start + ROOTS_A_QUERY]
            positions = await self._read_positions(asked)
            for root_id in asked:
                reader, _ = self._readers.get(root_id, (None, None))
                if reader is None:
                    continue
                if root_id in positions:
                    reader.wake(positions[root_id])
                else:
                    reader.lose()

    async def _reread_slowly(self) -> None:
        while True:
            await self._pause(self._at_once)
            self._at_once.clear()
            try:
                await self._reread()
            except Exception:
                log.exception("streaming.reread_failed")

    def _start(self) -> None:
        if self._tasks:
            return
        loop = asyncio.get_running_loop()

        def hear(root_id: UUID, sequence: int) -> None:
            # Called by the thread that committed. A loop that was closed meanwhile has no readers left.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.wake, root_id, sequence)

        self._tasks.append(_task(self._reread_slowly()))
        self._forget = wakes.listen(hear)
        url = wakes.address()
        if url is not None:
            self._tasks.append(_task(listening.relay(url, wake=self.wake, wake_all=self.wake_all)))

    def _stop_when_idle(self) -> None:
        if self._readers or self._stirred:
            return
        self._forget()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop: one in a server, one per test."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
