"""One reader per conversation and process: rows are read once and encoded once, for however many who watch.

A `Place` is where one watcher stands in a stream. It first reads rows by itself until none is left (the backlog), then
follows the shared `RootReader`. What a place may hold is bounded: one that is too slow stops following and reads rows
at its own pace again, so nobody is closed, nothing is skipped and memory stays small. No place ever holds a connection.

Wakes only shorten the wait: every `REREAD_SECONDS` one query asks for the newest number of all watched roots.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from helix import wakes
from helix.edge import frames, listening
from helix.edge.frames import Frame
from helix.edge.threads import read_in_thread
from helix.errors import NotFound

log = logging.getLogger("helix.streaming")

REREAD_SECONDS: Final = 1.5
# Frames that a place may hold before it stops following. They are shared, so this bounds how far it may fall behind.
MOST_HELD: Final = 256
# Roots in one query for positions; SQLite's oldest limit of variables is 999.
ROOTS_A_QUERY: Final = 500

ReadPage = Callable[[UUID, int], Awaitable[Sequence[Frame]]]
ReadPositions = Callable[[Sequence[UUID]], Awaitable[Mapping[UUID, int]]]


async def _read_page(root_id: UUID, after: int) -> Sequence[Frame]:
    return await read_in_thread(frames.read_page, root_id, after)


async def _read_positions(root_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    return await read_in_thread(frames.read_positions, root_ids)


async def _pause(at_once: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(REREAD_SECONDS):
            await at_once.wait()


class Place:
    """Where one watcher stands. ``cursor`` is the last sequence that it was given.

    live: whether what is given now was committed after the whole backlog had been given (I-44).
    """

    def __init__(self, reader: RootReader, after: int) -> None:
        self.cursor = after
        self.live = False
        self._reader = reader
        self._held: deque[Frame] = deque()
        # Held frames are complete from some read on; once they continue the cursor, the place follows.
        self._holds = False
        self._follows = False
        self._gone = False
        self._news = asyncio.Event()

    async def next_batch(self) -> Sequence[Frame]:
        """The next frames, waiting for them; empty exactly once, when the backlog has been given.

        The backlog ends at a read that finds nothing and that began after all before it had been given. So whatever
        comes later was committed later, which is what ``live`` promises.
        Raises: `CursorTooOld` when the next events were swept; `NotFound` when the conversation is gone.
        """
        while True:
            if self._gone:
                raise NotFound("There is no such session.")
            if not self._follows:
                batch = await self._read()
                if not batch and not self.live:
                    self.live = True
                    return ()
            elif not (batch := self._take()):
                await self._news.wait()
                self._news.clear()
            if batch:
                self.cursor = batch[-1].sequence
                return batch

    async def _read(self) -> Sequence[Frame]:
        """Rows after the cursor; none: the place follows, unless frames were lost meanwhile and it must read again."""
        self._held.clear()
        self._holds = True
        batch = await self._reader.read(self.cursor)
        if not batch:
            self._follows = self._holds and self._reader.lead(self.cursor, self._held)
        return batch

    def _take(self) -> Sequence[Frame]:
        taken = [frame for frame in self._held if frame.sequence > self.cursor]
        self._held.clear()
        return taken

    def offer(self, frame: Frame) -> None:
        """Take a frame that the shared reader read; too many at once: read rows again, from the cursor."""
        if not self._holds:
            return
        if len(self._held) >= MOST_HELD:
            self.fall_behind()
        else:
            self._held.append(frame)
        self._news.set()

    def fall_behind(self) -> None:
        self._held.clear()
        self._holds = self._follows = False
        self._news.set()

    def lose(self) -> None:
        self._gone = True
        self._news.set()


class RootReader:
    """Reads what is appended to one root, for the places that follow. It begins where the first of them caught up."""

    def __init__(self, root_id: UUID, read_page: ReadPage) -> None:
        self.places: set[Place] = set()
        self._root_id = root_id
        self._read_page = read_page
        self._cursor: int | None = None
        self._hinted = 0
        self._news = asyncio.Event()

    async def read(self, after: int) -> Sequence[Frame]:
        return await self._read_page(self._root_id, after)

    def lead(self, cursor: int, held: Sequence[Frame]) -> bool:
        """Whether a place that has read everything up to ``cursor`` and holds ``held`` will miss nothing.

        False: this reader is past the cursor and what it handed out before is not held.
        """
        if self._cursor is None:
            self._cursor = cursor
        if self._hinted > self._cursor:
            self._news.set()
        return self._cursor <= cursor or any(frame.sequence == cursor + 1 for frame in held)

    def wake(self, sequence: int) -> None:
        """Events up to ``sequence`` are committed."""
        self._hinted = max(self._hinted, sequence)
        if self._cursor is not None and sequence > self._cursor:
            self._news.set()

    def lose(self) -> None:
        for place in self.places:
            place.lose()

    async def run(self) -> None:
        """Hand on what is appended until cancelled; a read that fails sends the places to read for themselves."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._read_on()
            except Exception:
                log.exception("streaming.read_failed", extra={"sessionId": str(self._root_id)})
                self._cursor = None
                for place in self.places:
                    place.fall_behind()

    async def _read_on(self) -> None:
        while self._cursor is not None:
            page = await self.read(self._cursor)
            for frame in page:
                for place in self.places:
                    place.offer(frame)
                self._cursor = frame.sequence
            if len(page) < frames.PAGE:
                return


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

    @asynccontextmanager
    async def attached(self, root_id: UUID, after: int) -> AsyncIterator[Place]:
        """A place in the stream of a root, which the caller has found through its principal. Starts no run (R-524)."""
        self._start()
        if root_id not in self._readers:
            reader = RootReader(root_id, self._read_page)
            self._readers[root_id] = (reader, _task(reader.run()))
        reader, task = self._readers[root_id]
        place = Place(reader, after)
        reader.places.add(place)
        try:
            yield place
        finally:
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
