"""Commands over the socket: the same answers, order and caps as over HTTP (R-366)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from pytest_django import Settings

from helix.agents import client_tool
from helix.models import PendingCall, Run
from helix.streaming import commands
from helix.streaming.commands import MOST_IN_FLIGHT
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, session_of
from tests.streaming.conftest import aside, opened

pytestmark = pytest.mark.django_db(transaction=True)

locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object"},
    output_schema={"type": "string"},
)


@pytest.fixture
def paused(streaming_world: World, agent: AgentMaker) -> str:
    model = ScriptedModel([call("locate", "c1")], ["You are in Bern."])
    return str(streaming_world.started(agent(model, tools=[locate])))


async def test_a_submit_is_answered_as_over_http_and_again_as_a_repeat(streaming_world: World, paused: str) -> None:
    """R-335, R-336."""
    async with opened(f"/ws/sessions/{paused}/") as client:
        first = await client.ask("submit_tool_result", "a", toolCallId="c1", result="here")
        again = await client.ask("submit_tool_result", "b", toolCallId="c1", result="there")
    assert (first["requestId"], first["status"], first["body"]["status"]) == ("a", 200, "accepted")
    assert first["body"]["continuation"]["kind"] == "new_run"
    assert (again["requestId"], again["status"], again["body"]["status"]) == ("b", 200, "already_completed")
    stored = await aside(PendingCall.objects.get, tool_call_id="c1")
    assert stored.answer_kind == "result"


async def test_a_message_a_claim_and_a_stop_do_what_their_routes_do(streaming_world: World, agent: AgentMaker) -> None:
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session = await aside(streaming_world.create, agent(model, tools=[locate]))
    async with opened(f"/ws/sessions/{session}/") as client:
        sent = await client.ask("message", message="where am I", clientMessageId="m1")
        assert sent["status"] == 200 and sent["body"].keys() == {"runId", "startSequence"}
        await aside(streaming_world.drain)
        assert (await client.ask("claim", toolCallId="c1", claimant="tab-1"))["body"] == {"claimed": True}
        assert (await client.ask("claim", toolCallId="c1", claimant="tab-2"))["body"] == {"claimed": False}
        stopped = await client.ask("interrupt", reason="enough")
        assert (stopped["status"], stopped["body"]["outcome"]) == (200, "resolved")
        assert (await client.ask("abort"))["body"]["outcome"] == "nothing_to_stop"
    assert (await aside(session_of, session)).status == "interrupted"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"toolCallId": "c9", "result": 1}, 404, "unknown_tool_call"),
        ({"toolCallId": "c1"}, 400, "validation_error"),
        ({"toolCallId": "c1", "result": 5}, 400, "INVALID_RESULT"),
        ({"toolCallId": "c1", "result": "x" * 2000}, 413, "validation_payload_too_large"),
        ({"toolCallId": "c1", "result": "here", "sessionId": "another"}, 400, "validation_error"),
    ],
)
async def test_a_refusal_is_a_reply_and_the_call_still_waits(
    streaming_world: World, paused: str, settings: Settings, body: dict[str, Any], status: int, code: str
) -> None:
    settings.HELIX_MAX_RESULT_BYTES = 1000
    async with opened(f"/ws/sessions/{paused}/") as client:
        reply = await client.ask("submit_tool_result", **body)
        assert (reply["status"], reply["body"]["code"]) == (status, code)
        # The control: the same socket, a good answer.
        assert (await client.ask("submit_tool_result", toolCallId="c1", result="here"))["status"] == 200


@pytest.mark.parametrize(("size", "status"), [(4000, 400), (4001, 413)])
async def test_the_cap_of_a_body_is_that_of_http(paused: str, settings: Settings, size: int, status: int) -> None:
    """R-293, R-301: counted is the body, not the frame around it. At the cap it is judged by its content: no kind."""
    settings.HELIX_MAX_RESULT_BYTES = 1000
    padding = size - len(json.dumps({"toolCallId": "c1", "pad": ""}, separators=(",", ":")))
    async with opened(f"/ws/sessions/{paused}/") as client:
        reply = await client.ask("submit_tool_result", toolCallId="c1", pad="x" * padding)
    assert reply["status"] == status
    if status == 413:
        assert reply["body"]["cause"] == "request_body" and reply["body"]["sizeBytes"] == size


async def test_submits_count_towards_the_same_rate(paused: str, settings: Settings) -> None:
    """R-387."""
    settings.HELIX_SUBMITS_PER_MINUTE = 2
    async with opened(f"/ws/sessions/{paused}/") as client:
        statuses = [(await client.ask("submit_tool_result", toolCallId="c9", result=1))["status"] for _ in range(3)]
    assert statuses == [404, 404, 429]


async def test_a_credential_is_judged_for_each_command(paused: str) -> None:
    """R-383: one that may only watch may not act."""
    async with opened(f"/ws/sessions/{paused}/", who="limited") as client:
        await client.backlog()
        reply = await client.ask("submit_tool_result", toolCallId="c1", result="here")
    assert (reply["status"], reply["body"]["cause"]) == (403, "not_permitted")


@pytest.mark.parametrize(
    "text",
    ["", "not json", "[]", "5", "null", "{}", '{"type":"shout","requestId":"r"}', '{"type":["ping"]}', '{"type":NaN}'],
)
async def test_a_frame_that_means_nothing_closes_the_socket(paused: str, text: str) -> None:
    """R-366. The control is every other test here."""
    async with opened(f"/ws/sessions/{paused}/") as client:
        await client.backlog()
        await client.send(text or " ")
        assert await client.closing() == (4400, "validation_error")


@pytest.mark.parametrize(
    "result", ['"\\u0000"', '"\\ud800"', "[" * 70 + "]" * 70, '{"a":1,"a":2}', "1" * 5000], ids=str
)
async def test_content_that_is_not_stored_is_refused_with_its_request_named(paused: str, result: str) -> None:
    """R-322, R-324: closing would make a client send it for ever."""
    frame = f'{{"type":"submit_tool_result","requestId":"r7","body":{{"toolCallId":"c1","result":{result}}}}}'
    async with opened(f"/ws/sessions/{paused}/") as client:
        await client.backlog()
        await client.send(frame)
        reply = await client.reply()
        assert (reply["requestId"], reply["status"], reply["body"]["code"]) == ("r7", 400, "validation_error")
        assert (await client.ask("submit_tool_result", toolCallId="c1", result="here"))["status"] == 200


@pytest.mark.parametrize(
    "frame", [{"type": "abort"}, {"type": "abort", "requestId": 7}, {"type": "abort", "requestId": ""}]
)
async def test_a_command_without_a_request_id_does_nothing(paused: str, frame: dict[str, Any]) -> None:
    async with opened(f"/ws/sessions/{paused}/") as client:
        await client.send(frame)
        reply = await client.reply()
    assert (reply["requestId"], reply["status"]) == (None, 400)
    assert not await aside(Run.objects.filter(stop_requested_at__isnull=False).exists)


async def test_a_ping_is_answered(paused: str) -> None:
    async with opened(f"/ws/sessions/{paused}/") as client:
        await client.backlog()
        await client.send({"type": "ping", "requestId": "p"})
        assert await client.frame() == {"type": "reply", "requestId": "p", "status": 200, "body": {}}
        await client.send({"type": "ping"})
        assert await client.frame() == {"type": "reply", "requestId": None, "status": 200, "body": {}}


async def test_eight_commands_are_under_way_and_one_more_is_refused(
    paused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-366. Reading and pings go on meanwhile; when one is answered there is room again."""
    opening, held = threading.Event(), threading.Semaphore(0)
    run = commands.run

    def hold(*args: Any, **kwargs: Any) -> str:
        held.release()
        opening.wait(10)
        return run(*args, **kwargs)

    monkeypatch.setattr(commands, "run", hold)
    async with opened(f"/ws/sessions/{paused}/") as client:
        await client.backlog()
        for number in range(MOST_IN_FLIGHT):
            await client.send(
                {"type": "claim", "requestId": f"r{number}", "body": {"toolCallId": "x", "claimant": "t"}}
            )
        for _ in range(MOST_IN_FLIGHT):
            assert await asyncio.to_thread(held.acquire, timeout=10)
        refused = await client.ask("interrupt", "one-more")
        assert (refused["requestId"], refused["status"], refused["body"]["code"]) == ("one-more", 429, "rate_limited")
        await client.send({"type": "ping", "requestId": "p"})
        assert (await client.reply())["requestId"] == "p"
        opening.set()
        answered = {(await client.reply())["requestId"] for _ in range(MOST_IN_FLIGHT)}
        assert answered == {f"r{number}" for number in range(MOST_IN_FLIGHT)}
        assert (await client.ask("interrupt", "again"))["status"] == 200


async def test_an_unexpected_failure_tells_nothing(
    paused: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-349, R-354."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a canary that no client may see")

    monkeypatch.setattr(commands, "perform", fail)
    async with opened(f"/ws/sessions/{paused}/") as client:
        reply = await client.ask("interrupt")
    assert (reply["status"], reply["body"]["code"]) == (500, "transport_error")
    assert "canary" not in json.dumps(reply)
    assert "api.unexpected_failure" in [record.message for record in caplog.records]
