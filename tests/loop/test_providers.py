"""The provider port against a real HTTP server: streams, exact arguments, stops, silence, errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from helix.loop import (
    Cancelled,
    CancelToken,
    EmittedCall,
    LoggedMessage,
    ModelError,
    ModelRequest,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
    complete_reply,
    providers,
)
from tests.loop.conftest import said
from tests.provider_server import Comment, Cut, Gate, ProviderServer, call, text, thinking

Ask = Callable[..., ModelRequest]
BOUND, DAY = 120.0, 86_400.0
ODD_ARGUMENTS = '{"b": 1.0e2,  "a":"\\u00e9", "a": "twice", "n": 12345678901234567890}'


def ignore(delta: object) -> None:
    """For tests that look at the reply alone."""


def test_a_streamed_text_arrives_as_deltas_and_as_a_reply(server: ProviderServer, ask: Ask) -> None:
    server.answer(text("Good "), text("day"))
    deltas: list[object] = []
    reply = complete_reply(ask(), emit=deltas.append, token=CancelToken())
    assert deltas == [TextDelta("Good "), TextDelta("day")]
    assert (reply.text, reply.complete, reply.calls) == ("Good day", True, ())
    assert reply.usage == Usage(input_tokens=11, output_tokens=7)
    assert reply.provider is None


def test_reasoning_is_told_apart_from_text(server: ProviderServer, ask: Ask) -> None:
    server.answer(thinking("Let me "), thinking("see."), text("Yes."))
    deltas: list[object] = []
    reply = complete_reply(ask(), emit=deltas.append, token=CancelToken())
    assert (reply.reasoning, reply.text) == ("Let me see.", "Yes.")
    assert deltas[:3] == [ThinkingDelta("Let me "), ThinkingDelta("see."), ThinkingDelta("", is_complete=True)]


def test_argument_text_is_kept_character_for_character(server: ProviderServer, ask: Ask) -> None:
    """R-053: key order, number spelling, spaces, escapes and duplicates, across fragments that cut anywhere."""
    fragments = [ODD_ARGUMENTS[start : start + 7] for start in range(0, len(ODD_ARGUMENTS), 7)]
    server.answer(*call(0, "call_a", "look", *fragments), *call(1, "call_b", "look", '{"thing":', "null}"))
    deltas: list[object] = []
    reply = complete_reply(ask(), emit=deltas.append, token=CancelToken())
    assert reply.calls == (
        EmittedCall("call_a", "look", ODD_ARGUMENTS),
        EmittedCall("call_b", "look", '{"thing":null}'),
    )
    assert deltas[0] == ToolCallStarted(0, "call_a", "look")
    assert "".join(delta.text for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == 0) == (
        ODD_ARGUMENTS
    )


def test_a_call_without_argument_text_has_no_arguments(server: ProviderServer, ask: Ask) -> None:
    server.answer(*call(0, "call_a", "look"))
    assert complete_reply(ask(), emit=ignore, token=CancelToken()).calls == (EmittedCall("call_a", "look", "{}"),)


def test_the_model_reads_its_own_ids_and_the_results_in_order(server: ProviderServer, ask: Ask) -> None:
    """R-017, R-052: the request carries provider ids; a text is verbatim, a value compact JSON, an error readable."""
    server.answer(text("Done."))
    calls = [
        {
            "type": "tool_call",
            "toolCallId": f"minted-{name}",
            "providerCallId": f"own-{name}",
            "toolName": "look",
            "argumentsJson": "{}",
            "private": False,
        }
        for name in "abc"
    ]
    log = (
        said("Look."),
        LoggedMessage("assistant", ({"type": "text", "text": "I look."}, *calls)),
        result("a", text='He said "no"'),
        result("b", value={"b": [1, None], "a": "é"}, note="A reviewer changed the arguments."),
        result("c", error="The tool failed.", errorCode="tool_execution_failed"),
        LoggedMessage("notice", ({"type": "text", "text": "An earlier answer came late."},)),
    )
    complete_reply(ask(*log), emit=ignore, token=CancelToken())
    sent = server.requests[0]
    assert [(message["role"], message.get("tool_call_id")) for message in sent["messages"]] == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "own-a"),
        ("tool", "own-b"),
        ("tool", "own-c"),
        ("user", None),
    ]
    contents = [message["content"] for message in sent["messages"]]
    assert contents[0] == "Be brief."
    assert contents[3] == 'He said "no"'
    assert contents[4] == 'A reviewer changed the arguments.\n\n{"b":[1,null],"a":"é"}'
    assert "The tool failed." in contents[5]
    assert contents[6] == "An earlier answer came late."
    assert [item["id"] for item in sent["messages"][2]["tool_calls"]] == ["own-a", "own-b", "own-c"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look"]
    assert "minted" not in str(sent)


def test_a_stop_closes_the_connection_and_keeps_what_was_written(server: ProviderServer, ask: Ask) -> None:
    """Q-21, R-419: the server sees the client leave; the partial reply holds text and calls."""
    gate = Gate()
    server.answer(text("So far"), *call(0, "call_a", "look", '{"thi'), gate, text(" never sent"))
    token = CancelToken()
    read = threading.Event()
    stopper = threading.Thread(target=lambda: (gate.entered.wait(), read.wait(), token.cancel("interrupt")))
    stopper.start()

    def emit(delta: object) -> None:
        if isinstance(delta, ToolCallDelta):
            read.set()

    with pytest.raises(Cancelled) as cut:
        complete_reply(ask(), emit=emit, token=token)
    stopper.join()
    server.hung_up.wait()
    assert gate.arrivals == 1
    partial = cut.value.partial
    assert partial is not None
    assert (partial.text, partial.complete) == ("So far", False)
    assert partial.calls == (EmittedCall("call_a", "look", '{"thi'),)
    assert token.watchers == 0


def test_a_stop_before_the_first_word_leaves_nothing(server: ProviderServer, ask: Ask) -> None:
    gate = Gate()
    server.answer(gate, text("never sent"))
    token = CancelToken()
    stopper = threading.Thread(target=lambda: (gate.entered.wait(), token.cancel("abort")))
    stopper.start()
    with pytest.raises(Cancelled) as cut:
        complete_reply(ask(), emit=ignore, token=token)
    stopper.join()
    assert cut.value.partial is None


def test_a_fired_token_sends_no_request(server: ProviderServer, ask: Ask) -> None:
    """Q-15, with the control that the same request is sent under a fresh token."""
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        complete_reply(ask(), emit=ignore, token=token)
    assert server.requests == []
    complete_reply(ask(), emit=ignore, token=CancelToken())
    assert len(server.requests) == 1


def test_a_silent_connection_is_stalled(server: ProviderServer, ask: Ask) -> None:
    """Q-60."""
    gate = Gate()
    server.answer(text("So far"), gate, text(" never sent"))
    with pytest.raises(ModelError) as stalled:
        providers.complete_reply(ask(), emit=ignore, token=CancelToken(), silence_seconds=0.05)
    assert (stalled.value.code, stalled.value.retryable) == ("provider_stream_stalled", True)
    assert stalled.value.partial is not None
    assert stalled.value.partial.text == "So far"


def test_a_server_that_never_begins_is_stalled(server: ProviderServer, ask: Ask) -> None:
    gate = Gate()
    server.answer(gate)
    with pytest.raises(ModelError) as stalled:
        providers.complete_reply(ask(), emit=ignore, token=CancelToken(), silence_seconds=0.05)
    assert (stalled.value.code, stalled.value.partial) == ("provider_stream_stalled", None)


class SimulatedDay(asyncio.SelectorEventLoop):
    """An event loop whose clock the test moves on."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_silence_has_no_total(server: ProviderServer, ask: Ask) -> None:
    """Q-60: one word per bound minus one second, for a simulated day."""
    loop = SimulatedDay()
    reply = trickle(server, ask(), loop)
    assert len(reply.text) > 700
    assert loop.ahead > DAY


def test_a_total_would_have_cut_that_day(server: ProviderServer, ask: Ask) -> None:
    """The control: the simulated clock bites where an agent asks for a total by itself."""
    with pytest.raises(ModelError):
        trickle(server, ask(settings={"request_timeout": 3600}), SimulatedDay())


def trickle(server: ProviderServer, request: ModelRequest, loop: SimulatedDay) -> Reply:
    gates = [Gate() for _ in range(int(DAY / (BOUND - 1)) + 1)]
    server.answer(*(piece for gate in gates for piece in (text("."), gate)))
    closed = iter(gates)

    def emit(delta: object) -> None:
        loop.ahead += BOUND - 1
        next(closed).release()

    return providers.complete_reply(
        request, emit=emit, token=CancelToken(), silence_seconds=BOUND, new_loop=lambda: loop
    )


def test_comments_alone_do_not_make_a_reply(server: ProviderServer, ask: Ask) -> None:
    server.answer(Comment(), Comment(), text("Here."), Comment())
    assert complete_reply(ask(), emit=ignore, token=CancelToken()).text == "Here."


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "provider_error", False),
        (401, "provider_error", False),
        (404, "provider_error", False),
        (429, "provider_rate_limited", True),
        (500, "provider_error", True),
        (503, "provider_error", True),
    ],
)
def test_a_refusal_is_classified_and_asked_once(
    server: ProviderServer, ask: Ask, status: int, code: str, retryable: bool
) -> None:
    """R-494: retries are the run's, never the library's."""
    server.refuse(status)
    with pytest.raises(ModelError) as refused:
        complete_reply(ask(), emit=ignore, token=CancelToken())
    error = refused.value
    assert (error.code, error.retryable, error.status_code) == (code, retryable, status)
    assert len(server.requests) == 1


@pytest.mark.parametrize("cut", [Cut(rude=True), Cut(rude=False)], ids=["in the body", "body ends early"])
def test_a_reply_that_breaks_off_is_not_a_reply(server: ProviderServer, ask: Ask, cut: Cut) -> None:
    server.answer(text("So far"), cut)
    with pytest.raises(ModelError) as broken:
        complete_reply(ask(), emit=ignore, token=CancelToken())
    assert (broken.value.code, broken.value.retryable) == ("provider_error", True)
    assert broken.value.partial is not None
    assert broken.value.partial.text == "So far"


def test_a_server_that_is_not_there_is_retryable(server: ProviderServer, ask: Ask, settings: Any) -> None:
    settings.HELIX_MODEL_BASE_URL = "http://127.0.0.1:1/v1"
    with pytest.raises(ModelError) as lost:
        complete_reply(ask(), emit=ignore, token=CancelToken())
    assert (lost.value.code, lost.value.retryable) == ("provider_error", True)


def test_an_unknown_model_is_a_lasting_error(ask: Ask) -> None:
    with pytest.raises(ModelError) as unknown:
        complete_reply(ask(model="nobody:knows"), emit=ignore, token=CancelToken())
    assert (unknown.value.code, unknown.value.retryable) == ("provider_error", False)


@pytest.mark.django_db
def test_a_delta_may_be_written_to_the_database(server: ProviderServer, ask: Ask) -> None:
    """No event loop runs in the driver's thread while it handles a delta."""
    server.answer(text("a"), text("b"))
    seen = []

    def emit(delta: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            seen.append(cursor.fetchone()[0])

    complete_reply(ask(), emit=emit, token=CancelToken())
    assert seen == [1, 1]


def test_a_delta_that_cannot_be_taken_ends_the_stream(server: ProviderServer, ask: Ask) -> None:
    """A driver that lost its run leaves by an exception; the connection does not outlive it."""
    gate = Gate()
    server.answer(text("a"), gate, text("b"))

    def emit(delta: object) -> None:
        raise LookupError("superseded")

    with pytest.raises(LookupError, match="superseded"):
        complete_reply(ask(), emit=emit, token=CancelToken())
    server.hung_up.wait()


SIGNED = (
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 0},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me look."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "look",
            "input": {},
        },
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"thing" '}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 1e2}"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {
            "output_tokens": 9,
        },
    },
    {"type": "message_stop"},
)


@pytest.fixture
def other_server(server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> ProviderServer:
    """The same server as another provider finds it: through its own environment."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url.removesuffix("/v1"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-the-test")
    return server


def logged(reply: Reply, provider: Any) -> LoggedMessage:
    calls = [
        {
            "type": "tool_call",
            "toolCallId": "minted-a",
            "providerCallId": call.provider_call_id,
            "toolName": call.tool_name,
            "argumentsJson": call.arguments_json,
            "private": False,
        }
        for call in reply.calls
    ]
    return LoggedMessage("assistant", (*calls, {"type": "provider", **provider}))


def test_another_provider_gets_its_signatures_back(other_server: ProviderServer, ask: Ask) -> None:
    """R-053 too: its argument text is exact. The opaque part survives JSON, as the row keeps it."""
    other_server.answer_raw(*SIGNED)
    other_server.answer_raw(*SIGNED)
    model = "anthropic:claude-test"
    reply = complete_reply(ask(model=model), emit=ignore, token=CancelToken())
    assert reply.calls == (EmittedCall("toolu_1", "look", '{"thing" : 1e2}'),)
    assert (reply.reasoning, reply.complete) == ("Let me look.", True)
    assert reply.provider is not None
    log = (
        said("Look."),
        logged(reply, json.loads(json.dumps(reply.provider))),
        result("a", providerCallId="toolu_1", text="seen"),
    )
    complete_reply(ask(*log, model=model), emit=ignore, token=CancelToken())
    _, assistant, answer = other_server.requests[1]["messages"]
    assert [block["type"] for block in assistant["content"]] == ["thinking", "tool_use"]
    assert assistant["content"][0]["signature"] == "c2lnbmVk"
    assert answer["content"][0]["tool_use_id"] == "toolu_1"


@pytest.mark.parametrize("data", [{"parts": [{"part_kind": "of-the-future"}]}, "nonsense", None])
def test_an_opaque_part_that_cannot_be_read_is_rebuilt_from_the_log(
    other_server: ProviderServer, ask: Ask, data: Any
) -> None:
    other_server.answer_raw(*SIGNED)
    stale = {"format": providers.FORMAT, "data": data}
    reply = Reply(calls=(EmittedCall("toolu_1", "look", "{}"),))
    log = (said("Look."), logged(reply, stale), result("a", providerCallId="toolu_1", text="seen"))
    complete_reply(ask(*log, model="anthropic:claude-test"), emit=ignore, token=CancelToken())
    assert [block["type"] for block in other_server.requests[0]["messages"][1]["content"]] == ["tool_use"]


def test_a_withheld_reply_is_a_lasting_error(server: ProviderServer, ask: Ask) -> None:
    server.answer(finish="content_filter")
    with pytest.raises(ModelError, match="content filter") as withheld:
        complete_reply(ask(), emit=ignore, token=CancelToken())
    assert not withheld.value.retryable


def test_a_file_of_the_user_reaches_the_model(server: ProviderServer, ask: Ask) -> None:
    picture = {"type": "file", "url": "https://files.example/cat.png", "mediaType": "image/png"}
    inline = {"type": "file", "url": "data:image/png;base64,iVBORw0KGgo=", "mediaType": "image/png"}
    complete_reply(
        ask(LoggedMessage("user", ({"type": "text", "text": "What is this?"}, picture, inline))),
        emit=ignore,
        token=CancelToken(),
    )
    content = server.requests[0]["messages"][1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    assert content[1]["image_url"]["url"] == picture["url"]
    assert content[2]["image_url"]["url"] == inline["url"]


def result(name: str, **outcome: Any) -> LoggedMessage:
    part = {
        "type": "tool_result",
        "toolCallId": f"minted-{name}",
        "providerCallId": f"own-{name}",
        "toolName": "look",
        "private": False,
        "errorCode": None,
        "note": None,
        **outcome,
    }
    return LoggedMessage("tool", (part,), tool_call_id=f"minted-{name}")
