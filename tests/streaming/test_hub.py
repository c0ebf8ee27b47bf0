"""One reader for all who watch: nothing skipped, nothing twice, nothing live that is not (R-518, I-44, X-19)."""

from __future__ import annotations

import asyncio
import random

import pytest

from helix import wakes
from helix.edge.places import MOST_HELD
from helix.errors import NotFound
from tests.streaming.turns import ROOT, Gate, Rows, Turn, numbers, read_to_the_head, read_until


async def test_the_backlog_comes_first_and_is_not_live_and_later_events_are() -> None:
    """I-44, I-53, R-518."""
    rows = Rows()
    rows.append(450)
    async with rows.watching(after=20) as place:
        assert await numbers(place) == list(range(21, 221)) and not place.live
        assert await read_to_the_head(place) == list(range(221, 451))
        rows.append()
        assert await numbers(place) == [451] and place.live


async def test_an_event_that_is_committed_while_the_backlog_is_sent_is_not_live() -> None:
    """I-44: only what is committed after the backlog was sent. The control is the test above."""
    rows = Rows()
    rows.append()
    async with rows.watching() as place:
        assert await numbers(place) == [1]
        rows.append()
        assert await numbers(place) == [2] and not place.live
        assert await numbers(place) == [] and place.live


async def test_an_event_between_the_last_read_and_following_is_not_lost() -> None:
    rows = Rows()
    async with rows.watching() as place:
        rows.after_reading.close()
        reading = asyncio.ensure_future(numbers(place))
        await rows.after_reading.arrived.wait()
        rows.append()  # after the read saw nothing, before anybody follows
        rows.after_reading.open()
        assert await reading == []
        assert await numbers(place) == [1] and place.live


async def test_an_event_that_others_were_handed_while_a_place_read_reaches_it_too() -> None:
    """The shared reader is past the place's cursor, and the place holds nothing: it reads again."""
    rows = Rows()
    async with rows.watching() as first, rows.watching() as second:
        rows.after_reading.close()
        reading = asyncio.ensure_future(numbers(second))
        await rows.after_reading.arrived.wait()
        rows.append(wake=False)
        ahead = asyncio.ensure_future(read_to_the_head(first))
        rows.after_reading.open()
        assert await ahead == [1]
        assert await reading == []
        rows.append()
        assert await read_until(second, 2) == [1, 2]
        assert await read_until(first, 2) == [2]


async def test_however_many_watch_an_event_is_read_once() -> None:
    rows = Rows()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:

        async def watch() -> None:
            async with rows.hub.attached(ROOT, 0) as place:
                await read_to_the_head(place)
                caught_up.release()
                batch = await place.next_batch()
                assert [frame.sequence for frame in batch] == [1]
                texts.append(batch[0].socket_text(live=True))

        caught_up, texts = asyncio.Semaphore(0), list[str]()
        for _ in range(50):
            group.create_task(watch())
        for _ in range(50):
            await caught_up.acquire()
        before = rows.reads
        rows.append()
    assert rows.reads == before + 1
    assert len({id(text) for text in texts}) == 1 and len(texts) == 50


async def test_a_slow_place_holds_little_and_misses_nothing() -> None:
    """What it could not hold it reads from rows, at its own pace; a fast one beside it is not disturbed."""
    rows = Rows()
    async with rows.watching() as slow, rows.watching() as fast:
        await read_to_the_head(slow)
        await read_to_the_head(fast)
        most = 0
        for _ in range(3 * MOST_HELD):
            rows.append()
            assert await numbers(fast) == [rows.newest]
            most = max(most, len(slow._held))
        assert most == MOST_HELD
        assert await read_until(slow, rows.newest) == list(range(1, 3 * MOST_HELD + 1))
        rows.append()
        assert await numbers(slow) == [rows.newest] and slow.live


async def test_what_a_place_has_read_already_may_overflow_it_and_it_still_follows() -> None:
    """The shared reader is far behind a place that attaches: more than it can hold is handed to it, all of it old."""
    rows, held = Rows(), Gate()
    newest = 2 * MOST_HELD

    async def hold_the_latecomer(after: int) -> None:
        if after == newest:
            await held()

    rows.after_reading = hold_the_latecomer  # type: ignore[assignment]
    async with rows.watching() as early, rows.watching(after=newest) as late:
        await read_to_the_head(early)
        rows.append(newest, wake=False)
        held.close()
        reading = asyncio.ensure_future(numbers(late))
        await held.arrived.wait()
        rows.hub.wake(ROOT, newest)
        await read_until(early, newest)
        held.open()
        assert await reading == []
        rows.append()
        assert await numbers(late) == [newest + 1]


async def test_a_lost_wake_is_a_delay() -> None:
    """F-1: the slow re-reading finds what nobody was told of."""
    rows = Rows()
    async with rows.watching() as place:
        await read_to_the_head(place)
        rows.append(wake=False)
        reading = asyncio.ensure_future(numbers(place))
        await Turn()
        assert not reading.done()
        rows.rereads.release()
        assert await reading == [1]


@pytest.mark.parametrize("sequence", [0, 1, 99])
async def test_a_wake_that_is_repeated_late_or_early_changes_nothing(sequence: int) -> None:
    rows = Rows()
    async with rows.watching() as place:
        await read_to_the_head(place)
        rows.append()
        rows.hub.wake(ROOT, sequence)
        assert await numbers(place) == [1]
        rows.hub.wake(ROOT, sequence)
        rows.append()
        assert await numbers(place) == [2]


async def test_a_place_in_a_conversation_that_is_deleted_ends() -> None:
    rows = Rows()
    async with rows.watching() as place:
        await read_to_the_head(place)
        rows.exists = False
        rows.rereads.release()
        with pytest.raises(NotFound):
            await place.next_batch()


async def test_a_shared_read_that_fails_sends_the_places_to_read_for_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = Rows()
    async with rows.watching() as place:
        await read_to_the_head(place)
        rows.failures.append(ConnectionError())
        rows.append()
        assert await numbers(place) == [1] and place.live
        rows.append()
        assert await numbers(place) == [2]
    assert [record.message for record in caplog.records] == ["streaming.read_failed"]


async def test_a_hub_that_nobody_uses_has_no_tasks_and_hears_nothing() -> None:
    rows = Rows()
    listeners = len(wakes._listeners)
    async with rows.watching():
        assert len(wakes._listeners) == listeners + 1
    with rows.hub.stirring():
        assert len(wakes._listeners) == listeners + 1
    assert len(wakes._listeners) == listeners
    await Turn()
    await Turn()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("seed", range(40))
async def test_no_interleaving_of_appends_reads_and_arrivals_skips_or_repeats(seed: int) -> None:
    """R-518, X-19: places come at any time and cursor, reads take any number of turns, wakes may be lost."""
    rows, draw = Rows(), random.Random(seed)
    last, seen = 600, dict[int, list[int]]()
    live_from, newest_at_head = dict[int, int](), dict[int, int]()

    async def slowly(*ignored: object) -> None:
        for _ in range(draw.randrange(6)):
            await Turn()

    async def slowly_again(at_once: asyncio.Event) -> None:
        await Turn()
        await slowly()

    async def watch(number: int) -> None:
        for _ in range(draw.randrange(200)):
            await Turn()
        after = draw.randrange(rows.newest + 1)
        seen[number] = [after]
        async with rows.hub.attached(ROOT, after) as place:
            while place.cursor < last:
                batch = await place.next_batch()
                if not batch:
                    newest_at_head[number] = place.cursor
                elif place.live:
                    live_from.setdefault(number, batch[0].sequence)
                seen[number] += [frame.sequence for frame in batch]
                await slowly()

    rows.after_reading = slowly  # type: ignore[assignment]
    rows.hub._pause = slowly_again
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(watch(number))
        while rows.newest < last:
            rows.append(min(draw.choice((1, 1, 2, 30, 300)), last - rows.newest), wake=draw.random() < 0.7)
            await slowly()
            await slowly()
    for numbers_seen in seen.values():
        assert numbers_seen == list(range(numbers_seen[0], last + 1))
    assert all(first == newest_at_head[number] + 1 for number, first in live_from.items())


async def test_five_hundred_watchers_of_a_thousand_events_all_end_at_the_head() -> None:
    """C-072: bursts far beyond what a place holds; nobody is behind, nothing is skipped, and no wake has to arrive."""
    rows = Rows()
    seen: list[list[int]] = []

    async def watch() -> None:
        mine: list[int] = []
        async with rows.hub.attached(ROOT, 0) as place:
            while not mine or mine[-1] < 1000:
                mine += [frame.sequence for frame in await place.next_batch()]
        seen.append(mine)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(500):
            group.create_task(watch())
        for burst in range(4):
            rows.append(250, wake=burst % 2 == 0)
            await asyncio.sleep(0)
        rows.hub.wake_all()
    assert len(seen) == 500 and all(mine == list(range(1, 1001)) for mine in seen)
