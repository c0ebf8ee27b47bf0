"""Where each watcher of a conversation stands, and the one reader that they share.

A `Place` first reads rows by itself until none is left (the backlog), then follows the `RootReader`. What a place may
hold is bounded: one that is too slow stops following and reads rows at its own pace again, so nobody is closed, nothing
is skipped and memory stays small. No place ever holds a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from helix.edge import frames
from helix.edge.frames import Frame
from helix.errors import NotFound

log = logging.getLogger("helix.streaming")

# Frames that a place may hold before it stops following. They are shared, so this bounds how far it may fall behind.
MOST_HELD: Final = 256

ReadPage = Callable[[UUID, int], Awaitable[Sequence[Frame]]]


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
