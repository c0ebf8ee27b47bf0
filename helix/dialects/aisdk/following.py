"""The response to a page: what its message lacks, then whatever is committed, until nothing is computed any more."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final

from helix.dialects.aisdk import chunks
from helix.dialects.aisdk.chunks import Chunk
from helix.dialects.aisdk.reading import resting_at
from helix.dialects.aisdk.translation import Translator, Turn, answered_among
from helix.edge.frames import MAY_END_A_TURN, Frame
from helix.edge.hub import Place, hub
from helix.edge.threads import read_in_thread
from helix.errors import HelixError

log = logging.getLogger("helix.dialects")

KEEP_ALIVE_SECONDS: Final = 15.0


async def stream(turn: Turn) -> AsyncIterator[str]:
    """The texts of the response. A page that goes away changes nothing: the run lives elsewhere."""
    try:
        async with hub().attached(turn.root_id, turn.after) as place:
            backlog = await _backlog(place)
            translator = Translator(turn, answered=answered_among(backlog))
            yield _text([*translator.begin(), *_translated(translator, backlog)])
            async with aclosing(_live(turn, place, translator)) as live:
                async for batch in live:
                    if text := batch if isinstance(batch, str) else _text(_translated(translator, batch)):
                        yield text
            yield _text(translator.close())
    except Exception as failure:
        # Too late for a status. The text of an unexpected failure stays here.
        words = failure.message if isinstance(failure, HelixError) else "Something went wrong."
        log.error("chat.stream_failed", exc_info=failure, extra={"sessionId": str(turn.root_id)})
        yield chunks.framed(chunks.error(words))
    yield chunks.DONE_TEXT


async def _backlog(place: Place) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while batch := await place.next_batch():
        events += _events(batch)
    return events


async def _live(turn: Turn, place: Place, translator: Translator) -> AsyncGenerator[Sequence[dict[str, Any]] | str]:
    """Batches of events, or a comment in silence; ends when another turn begins or nothing is computed."""
    reading: asyncio.Future[Sequence[Frame]] | None = None
    may_be_over = True
    try:
        while not translator.over:
            if may_be_over:
                rests_at = await read_in_thread(resting_at, turn.root_id)
                may_be_over = rests_at is not None
                # Whatever ended it is told first.
                if rests_at is not None and rests_at <= place.cursor:
                    return
            reading = asyncio.ensure_future(place.next_batch())
            while not (await asyncio.wait({reading}, timeout=KEEP_ALIVE_SECONDS))[0]:
                yield chunks.KEEP_ALIVE_TEXT
            frames = reading.result()
            may_be_over = may_be_over or any(frame.type in MAY_END_A_TURN for frame in frames)
            yield _events(frames)
    finally:
        if reading is not None:
            reading.cancel()


def _translated(translator: Translator, events: Iterable[dict[str, Any]]) -> Iterable[Chunk]:
    for event in events:
        yield from translator.translate(event)


def _events(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    # Not orjson, which would turn an integer beyond 64 bits into a float.
    return [json.loads(frame.payload) for frame in frames]


def _text(sent: Iterable[Chunk]) -> str:
    return "".join(map(chunks.framed, sent))
