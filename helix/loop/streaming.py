"""Driving an asynchronous stream from a synchronous worker thread.

A provider's stream needs a running event loop; the driver's database work must not see one. So the loop runs only
while the driver waits for the next items: one task reads the stream, and between two looks at it the loop stands
still and the thread is plain synchronous Python again. A token that fires wakes the loop and cancels the task, and
the task's clean-up, which closes the connection, is over before the driver goes on (Q-21).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from typing import Generic, TypeVar

from helix.loop.cancel import Cancelled, CancelToken

Item = TypeVar("Item")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def drive(
    stream: Callable[[], AsyncIterator[Item]], token: CancelToken, *, new_loop: LoopFactory = asyncio.new_event_loop
) -> Generator[Item, None, None]:
    """Iterate ``stream()`` in the calling thread, handing out each item while no event loop runs.

    stream: an async generator function that cleans up in its own ``finally``.  new_loop: for a clock of a test's own.
    Raises: Cancelled when the token fires; what the stream raises, unchanged. Leaving the iteration early ends the
    stream in the same way.
    """
    token.check()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        reading = _Reading(stream)
        loop = runner.get_loop()

        def wake() -> None:
            # The loop may have been closed by a stream that ended in this very instant.
            if not loop.is_closed():
                loop.call_soon_threadsafe(reading.cut)

        runner.run(reading.begin())
        forget = token.on_cancel(wake)
        try:
            while items := runner.run(reading.next_items()):
                while items:
                    token.check()
                    yield items.popleft()
            if token.cancelled:
                raise Cancelled
        finally:
            forget()
            runner.run(reading.end())
        reading.raise_failure()


class _Reading(Generic[Item]):
    """One task that reads the stream into a queue. All methods but ``cut`` and ``raise_failure`` are awaited."""

    def __init__(self, stream: Callable[[], AsyncIterator[Item]]) -> None:
        self._stream = stream
        self._items: deque[Item] = deque()
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._over = False
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._task = asyncio.create_task(self._read())

    async def next_items(self) -> deque[Item]:
        """Everything that arrived since the last look, waiting for the first; empty when the stream is over."""
        await self._news.wait()
        items, self._items = self._items, deque()
        if not self._over:
            self._news.clear()
        return items

    async def end(self) -> None:
        """Cancel the task unless it is done, and wait until its clean-up is over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def cut(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _read(self) -> None:
        try:
            async for item in self._stream():
                self._items.append(item)
                self._news.set()
        except Exception as failure:  # carried to the driver's thread and raised there
            self._failure = failure
        finally:
            # The last piece of news is never cleared.
            self._over = True
            self._news.set()
