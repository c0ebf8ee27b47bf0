"""``GET sse``: events with their number as id, and an end that says how the turn ended (R-361, R-362, R-521)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connections
from django.test import AsyncClient

from helix.agents import client_tool
from helix.edge import attaching
from helix.edge.threads import READING_THREADS, read_in_thread
from helix.models import Session, StreamEvent
from helix.streaming import sse
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, session_of
from tests.streaming.conftest import aside

pytestmark = pytest.mark.django_db(transaction=True)

locate = client_tool("locate", description="Where the user is.", input_schema={"type": "object"})

Part = tuple[str | None, str, Any]


@pytest.fixture
def paused(streaming_world: World, agent: AgentMaker) -> str:
    model = ScriptedModel([call("locate", "c1")], ["You are in Bern."])
    return str(streaming_world.started(agent(model, tools=[locate])))


@asynccontextmanager
async def listening(
    session_id: object, *, who: str = "owner", seen: int | None = None, **query: Any
) -> AsyncIterator[Any]:
    """The parts of the stream, as a client reads them: (id, event, data); None for a comment."""
    headers = {"Authorization": f"Bearer {who}"}
    if seen is not None:
        headers["Last-Event-ID"] = str(seen)
    response = await AsyncClient().get("/api/sse", {"sessionId": str(session_id), **query}, headers=headers)
    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    async with aclosing(response.streaming_content) as content:
        yield (parsed(text.decode()) async for text in content)


def parsed(text: str) -> Part | None:
    assert text.endswith("\n\n")
    if text.startswith(":"):
        return None
    fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
    return fields.get("id"), fields.get("event", "message"), json.loads(fields["data"])


async def everything(parts: AsyncIterator[Part | None]) -> list[Part]:
    """The stream to its end, without comments."""
    return [part async for part in parts if part is not None]


async def test_a_finished_turn_is_told_and_then_ended_with_its_status(
    streaming_world: World, agent: AgentMaker
) -> None:
    """R-361, R-362, R-521."""
    session_id = await aside(streaming_world.started, agent(ScriptedModel(["Good day."])))
    async with listening(session_id) as parts:
        *told, end = await everything(parts)
    newest = (await aside(session_of, session_id)).stream_sequence
    assert [int(number) for number, _, _ in told] == list(range(1, newest + 1))
    assert end[:2] == (str(newest), "end")
    expected = {"streamStatus": "ended", "status": "idle", "runStatus": "completed", "streamSequence": newest}
    assert {**end[2], **expected} == end[2]
    assert end[2]["awaitingClientTool"] is False


async def test_a_paused_turn_stays_open_and_ends_after_its_answer(streaming_world: World, paused: str) -> None:
    """R-526: paused is not over."""
    async with listening(paused) as parts:
        async for _, _, data in parts:
            if data["type"] == "session_status" and data["status"] == "awaiting_client_tool":
                break
        await aside(streaming_world.submit, paused, "c1", result="here")
        await aside(streaming_world.drain)
        rest = await everything(parts)
    assert "text_delta" in [data["type"] for _, _, data in rest]
    assert (rest[-1][1], rest[-1][2]["status"]) == ("end", "idle")


async def test_a_failed_turn_ends_as_failed_with_its_detail(streaming_world: World, agent: AgentMaker) -> None:
    """ST-04, R-521: a reader never assumes completed."""
    model = ScriptedModel(ValueError("the script broke"))
    session_id = await aside(streaming_world.started, agent(model))
    async with listening(session_id) as parts:
        end = (await everything(parts))[-1]
    assert (end[1], end[2]["streamStatus"], end[2]["runStatus"]) == ("end", "failed", "failed")
    assert end[2]["errorDetail"]


async def test_a_conversation_that_has_not_begun_is_waited_for(streaming_world: World, agent: AgentMaker) -> None:
    session_id = await aside(streaming_world.create, agent(ScriptedModel(["Good day."])))
    async with listening(session_id) as parts:
        await aside(streaming_world.send, session_id, "hello")
        await aside(streaming_world.drain)
        told = await everything(parts)
    assert told[0][0] == "1" and told[-1][1] == "end"


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_reconnect_goes_on_after_the_last_event(
    streaming_world: World, agent: AgentMaker, by_header: bool
) -> None:
    """R-518: the header of a browser that reconnects wins over the address that it repeats."""
    session_id = await aside(streaming_world.started, agent(ScriptedModel(["Good day."])))
    cursor: dict[str, Any] = {"seen": 3, "after": 0} if by_header else {"after": 3}
    async with listening(session_id, **cursor) as parts:
        assert (await everything(parts))[0][0] == "4"


async def test_who_had_everything_is_told_the_end_at_once(streaming_world: World, agent: AgentMaker) -> None:
    """R-526: a connection that broke just before the end hangs nobody."""
    session_id = await aside(streaming_world.started, agent(ScriptedModel(["Good day."])))
    newest = (await aside(session_of, session_id)).stream_sequence
    async with listening(session_id, after=newest) as parts:
        assert [event for _, event, _ in await everything(parts)] == ["end"]


async def test_silence_is_filled_with_comments_and_holds_no_connection(
    paused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = threading.Barrier(READING_THREADS)
    async with listening(paused) as parts:
        await anext(parts)
        monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.01)
        while await anext(parts) is not None:
            pass
        held = await asyncio.gather(*[read_in_thread(holds_a_connection, barrier) for _ in range(READING_THREADS)])
    assert held == [False] * READING_THREADS and connections["default"].connection is None


def holds_a_connection(all_here: threading.Barrier) -> bool:
    """Asked in every reading thread: each waits until the others have been asked too."""
    all_here.wait(10)
    return connections["default"].connection is not None


async def test_a_conversation_that_is_deleted_ends_the_stream_typed(
    paused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(paused) as parts:
        await anext(parts)
        await aside(Session.objects.filter(pk=paused).delete)
        last = (await everything(parts))[-1]
    assert (last[1], last[2]["code"]) == ("error", "NOT_FOUND")


@pytest.mark.parametrize(
    ("who", "query", "status", "code"),
    [
        ("nobody", {}, 401, "transport_unauthorized"),
        ("stranger", {}, 404, "NOT_FOUND"),
        ("limited", {}, 403, "transport_forbidden"),
        ("owner", {"sessionId": ""}, 400, "validation_error"),
        ("owner", {"after": "x"}, 400, "validation_error"),
        ("owner", {"after": "4000"}, 400, "validation_error"),
        ("nobody", {"after": "x"}, 401, "transport_unauthorized"),
    ],
)
async def test_a_refusal_comes_before_the_stream(
    paused: str, who: str, query: dict[str, str], status: int, code: str
) -> None:
    """R-354, R-355, R-394."""
    response = await AsyncClient().get(
        "/api/sse", {"sessionId": paused, **query}, headers={"Authorization": f"Bearer {who}"}
    )
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_a_cursor_below_the_floor_is_gone(paused: str) -> None:
    """R-368."""

    def sweep_two() -> None:
        StreamEvent.objects.filter(root_id=UUID(paused), sequence__lte=2).delete()
        Session.objects.filter(pk=paused).update(stream_floor=3)

    await aside(sweep_two)
    response = await AsyncClient().get(
        "/api/sse", {"sessionId": paused, "after": 1}, headers={"Authorization": "Bearer owner"}
    )
    assert (response.status_code, response.json()["code"]) == (410, "state_cursor_too_old")
    assert response.json()["floorSequence"] == 3


async def test_a_database_that_is_away_is_a_typed_503(paused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-350."""

    def fail(*args: Any) -> None:
        raise OperationalError("a canary that no client may see")

    monkeypatch.setattr(attaching.selectors, "session_for", fail)
    response = await AsyncClient().get("/api/sse", {"sessionId": paused}, headers={"Authorization": "Bearer owner"})
    assert (response.status_code, response.json()["retryable"]) == (503, True)
    assert b"canary" not in response.content


async def test_only_get_is_allowed(paused: str) -> None:
    response = await AsyncClient().post("/api/sse", {"sessionId": paused}, headers={"Authorization": "Bearer owner"})
    assert (response.status_code, response["Allow"]) == (405, "GET")
