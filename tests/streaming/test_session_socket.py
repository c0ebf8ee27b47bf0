"""``ws/sessions/{id}/``: backlog, head, live frames, and the codes of a refusal (I-53, R-366, R-367)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

import pytest
from autobahn.exception import Disconnected
from django.db import OperationalError

from helix.agents import client_tool
from helix.models import Session, StreamEvent
from helix.streaming.routing import sockets
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World
from tests.streaming.conftest import PATIENCE_SECONDS, aside, opened

pytestmark = pytest.mark.django_db(transaction=True)

locate = client_tool("locate", description="Where the user is.", input_schema={"type": "object"})


@pytest.fixture
def paused(streaming_world: World, agent: AgentMaker) -> str:
    """A conversation that waits for one client call."""
    model = ScriptedModel([call("locate", "c1")], ["You are in Bern."])
    return str(streaming_world.started(agent(model, tools=[locate])))


async def test_the_backlog_then_head_then_live_frames_without_a_gap(streaming_world: World, paused: str) -> None:
    """I-53, I-44, R-518: what is there is replayed and not live; what comes is live."""
    async with opened(f"/ws/sessions/{paused}/?after=0") as client:
        *backlog, head = await client.backlog()
        assert [frame["sequence"] for frame in backlog] == list(range(1, head["sequence"] + 1))
        assert not any(frame["live"] for frame in backlog)
        assert "tool_start" in [frame["payload"]["type"] for frame in backlog]

        await aside(streaming_world.submit, paused, "c1", result="here")
        await aside(streaming_world.drain)
        newest = (await aside(Session.objects.get, pk=paused)).stream_sequence
        live = [await client.frame() for _ in range(newest - head["sequence"])]
    assert [frame["sequence"] for frame in live] == list(range(head["sequence"] + 1, newest + 1))
    assert all(frame["live"] for frame in live)
    assert live[-1]["payload"] == {"type": "session_status", **live[-1]["payload"], "status": "idle"}


async def test_a_cursor_leaves_out_what_was_read_and_a_reconnect_replays_the_rest_not_live(
    streaming_world: World, paused: str
) -> None:
    """R-518, R-520, I-44: what was missed during a disconnect is never live."""
    async with opened(f"/ws/sessions/{paused}/?after=2") as client:
        assert (await client.frame())["sequence"] == 3
        head = (await client.backlog())[-1]["sequence"]
    await aside(streaming_world.submit, paused, "c1", result="here")
    await aside(streaming_world.drain)
    async with opened(f"/ws/sessions/{paused}/?after={head}") as client:
        *missed, _ = await client.backlog()
    assert missed[0]["sequence"] == head + 1 and not any(frame["live"] for frame in missed)


async def test_every_event_has_the_envelope(paused: str) -> None:
    """R-510."""
    envelope = {"type", "sequence", "sessionId", "runId", "agentId", "agentType", "timestamp", "step"}
    async with opened(f"/ws/sessions/{paused}/") as client:
        *backlog, _ = await client.backlog()
    assert backlog
    for frame in backlog:
        assert envelope <= frame["payload"].keys()
        assert frame["payload"]["sequence"] == frame["sequence"] and frame["payload"]["sessionId"] == paused


async def test_attaching_changes_no_row_and_starts_nothing(streaming_world: World, paused: str) -> None:
    """R-524, I-19."""

    def rows() -> tuple[object, ...]:
        session = Session.objects.values().get(pk=paused)
        return session, StreamEvent.objects.count(), list(streaming_world.hints)

    before = await aside(rows)
    for _ in range(3):
        async with opened(f"/ws/sessions/{paused}/") as first, opened(f"/ws/sessions/{paused}/") as second:
            await first.backlog()
            await second.backlog()
    assert await aside(rows) == before


async def test_an_alias_names_the_conversation_for_its_owner_only(streaming_world: World, agent: AgentMaker) -> None:
    """R-365."""
    await aside(streaming_world.create, agent(ScriptedModel(["hello"])), client_id="mine")
    async with opened("/ws/sessions/mine/") as client:
        assert await client.backlog() == [{"type": "head", "sequence": 0}]
    async with opened("/ws/sessions/mine/", who="stranger") as client:
        assert await client.closing() == (4404, "NOT_FOUND")


@pytest.mark.parametrize("who", ["owner", "operator"])
async def test_the_owner_and_an_operator_read(paused: str, who: str) -> None:
    """R-398: the control of the refusals below."""
    async with opened(f"/ws/sessions/{paused}/", who=who) as client:
        assert (await client.backlog())[-1]["type"] == "head"


@pytest.mark.parametrize(
    ("who", "query", "closed"),
    [
        (None, "", (4401, "transport_unauthorized")),
        ("nobody-we-know", "", (4401, "transport_unauthorized")),
        ("stranger", "", (4404, "NOT_FOUND")),
        ("reviewer", "", (4404, "NOT_FOUND")),
        ("throttled", "", (4429, "rate_limited")),
        ("owner", "?after=-1", (4400, "validation_error")),
        ("owner", "?after=x", (4400, "validation_error")),
        ("owner", "?after=", (4400, "validation_error")),
        ("owner", "?after=99999999999999999999", (4400, "validation_error")),
        ("owner", "?after=4000", (4400, "validation_error")),
        # Who may not ask learns nothing from a bad cursor.
        (None, "?after=x", (4401, "transport_unauthorized")),
    ],
)
async def test_a_refused_socket_is_accepted_and_closed_with_its_code(
    paused: str, who: str | None, query: str, closed: tuple[int, str]
) -> None:
    """R-367."""
    async with opened(f"/ws/sessions/{paused}/{query}", who=who) as client:
        assert await client.closing() == closed


async def test_a_missing_session_looks_like_a_foreign_one(paused: str) -> None:
    """F-8."""
    codes = []
    for named in (paused, str(uuid4()), "no-such-alias"):
        async with opened(f"/ws/sessions/{named}/", who="stranger") as client:
            codes.append(await client.closing())
    assert set(codes) == {(4404, "NOT_FOUND")}


@pytest.mark.parametrize(("after", "is_refused"), [(0, True), (1, True), (2, False), (3, False)])
async def test_a_cursor_below_the_floor_is_told_to_read_the_snapshot(paused: str, after: int, is_refused: bool) -> None:
    """R-368: events 1 and 2 were swept; who had read them goes on."""

    def sweep_two() -> None:
        StreamEvent.objects.filter(root_id=paused, sequence__lte=2).delete()
        Session.objects.filter(pk=paused).update(stream_floor=3)

    await aside(sweep_two)
    async with opened(f"/ws/sessions/{paused}/?after={after}") as client:
        if is_refused:
            assert await client.closing() == (4410, "state_cursor_too_old")
        else:
            assert (await client.frame())["sequence"] == after + 1


async def test_no_gap_and_no_duplicate_while_rows_are_written(streaming_world: World, agent: AgentMaker) -> None:
    """X-19: sockets attach at any moment of a turn and see each number once."""
    model = ScriptedModel([f"word{n} " for n in range(30)])
    session = await aside(streaming_world.create, agent(model))

    async def watch(after: int) -> list[int]:
        async with opened(f"/ws/sessions/{session}/?after={after}") as client:
            seen: list[int] = []
            while True:
                frame = await client.frame()
                if frame["type"] == "event":
                    seen.append(frame["sequence"])
                    payload = frame["payload"]
                    if payload["type"] == "session_status" and payload["status"] == "idle":
                        return seen

    early = [asyncio.create_task(watch(0)) for _ in range(3)]
    await aside(streaming_world.send, session, "go")
    late = [asyncio.create_task(watch(1)) for _ in range(3)]
    await aside(streaming_world.drain)
    last = (await aside(Session.objects.get, pk=session)).stream_sequence
    assert await asyncio.gather(*early) == [list(range(1, last + 1))] * 3
    assert await asyncio.gather(*late) == [list(range(2, last + 1))] * 3


@pytest.mark.parametrize("gone", [Disconnected("Attempt to send on a closed protocol"), BrokenPipeError()])
async def test_a_socket_that_vanishes_while_it_is_written_to_ends_quietly(
    paused: str, caplog: pytest.LogCaptureFixture, gone: Exception
) -> None:
    """Nobody failed: no error is logged, nothing more is sent, and the reading ends."""
    sent: list[str] = []
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])
        if message["type"] == "websocket.send":
            incoming.put_nowait({"type": "websocket.receive", "text": '{"type": "ping"}'})
            incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
            raise gone

    headers = [(b"host", b"testserver"), (b"authorization", b"Bearer owner")]
    scope = {"type": "websocket", "path": f"/ws/sessions/{paused}/", "headers": headers, "subprotocols": []}
    scope |= {"scheme": "ws", "client": ["127.0.0.1", 50000], "server": ["testserver", 80], "query_string": b""}
    incoming.put_nowait({"type": "websocket.connect"})
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sockets(scope, incoming.get, send)
    assert sent == ["websocket.accept", "websocket.send"]
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("failure", "closing"),
    [(RuntimeError("a secret"), (4500, "transport_error")), (OperationalError(), (4503, "transport_error"))],
)
async def test_a_failure_closes_with_a_code_that_the_transport_may_send(
    paused: str, monkeypatch: pytest.MonkeyPatch, failure: Exception, closing: tuple[int, str]
) -> None:
    """R-354. Applications may send 1000 and 3000 to 4999: with another code the socket would stay open."""

    def fail(*args: object) -> None:
        raise failure

    monkeypatch.setattr("helix.streaming.consumers.attach", fail)
    async with opened(f"/ws/sessions/{paused}/") as client:
        assert await client.closing() == closing


@pytest.mark.parametrize("path", ["/ws/", "/ws/nobody/", "/ws/sessions/x", "/ws/sessions/a/b/", "/"])
async def test_a_path_without_a_socket_is_refused_like_a_missing_session(streaming_world: World, path: str) -> None:
    """R-367: accepted, then closed, as a browser sees no other refusal. What it goes on to say changes nothing."""
    async with opened(path) as client:
        await client.send("hello")
        assert await client.closing() == (4404, "NOT_FOUND")
