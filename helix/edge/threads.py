"""The one place where the asynchronous edges cross over to the synchronous core.

Each crossing has a connection of its own for as long as it lasts and gives it back: a stream that waits holds none.
Commands have threads of their own, so that one that waits for a lock never delays what readers read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync
from django.db import close_old_connections

READING_THREADS: Final = 8
COMMAND_THREADS: Final = 8

P = ParamSpec("P")
R = TypeVar("R")

_reading = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="helix-reading")
_commands = ThreadPoolExecutor(COMMAND_THREADS, thread_name_prefix="helix-commands")


async def read_in_thread(read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a read of rows."""
    return await _in_thread(_reading, read, *args, **kwargs)


async def act_in_thread(verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a verb that may wait for a lock."""
    return await _in_thread(_commands, verb, *args, **kwargs)


async def _in_thread(pool: ThreadPoolExecutor, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    def crossing() -> R:
        # What Django does around a request; nobody else does it in a thread of ours.
        close_old_connections()
        try:
            return verb(*args, **kwargs)
        finally:
            close_old_connections()

    return await SyncToAsync(crossing, thread_sensitive=False, executor=pool)()
