"""The scripted model: deterministic, offline, and as stoppable as a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import helix
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
    ToolSpec,
    Usage,
    complete_reply,
)
from helix.loop.scripted import Call, Hold, Piece, Thinking, script
from helix.loop.scripts import PipeGate, release
from tests.loop.conftest import said

Ask = Callable[..., ModelRequest]
RESULT = LoggedMessage("tool", ({"type": "tool_result", "toolCallId": "c1", "text": "seen"},), tool_call_id="c1")
NOTICE = LoggedMessage("notice", ({"type": "text", "text": "By the way."},))


def play(request: ModelRequest) -> Reply:
    return complete_reply(request, emit=lambda delta: None, token=CancelToken())


def test_every_kind_of_piece_becomes_a_delta_and_a_part_of_the_reply(ask: Ask) -> None:
    @script("all-pieces")
    def all_pieces(request: ModelRequest) -> Iterator[Piece]:
        yield Thinking("Hm.")
        yield "Well"
        yield Call("look", '{"a" : 1}', "own-1")
        yield Call("look", {"b": "é"})
        yield Usage(3, 4)

    deltas: list[object] = []
    reply = complete_reply(ask(model="scripted:all-pieces"), emit=deltas.append, token=CancelToken())
    assert deltas == [
        ThinkingDelta("Hm."),
        ThinkingDelta("", is_complete=True),
        TextDelta("Well"),
        ToolCallStarted(0, "own-1", "look"),
        ToolCallDelta(0, '{"a" : 1}'),
        ToolCallStarted(1, None, "look"),
        ToolCallDelta(1, '{"b":"é"}'),
    ]
    assert reply == Reply(
        text="Well",
        reasoning="Hm.",
        calls=(EmittedCall("own-1", "look", '{"a" : 1}'), EmittedCall(None, "look", '{"b":"é"}')),
        usage=Usage(3, 4),
    )


def test_echo_is_what_a_model_named_scripted_plays(ask: Ask) -> None:
    assert play(ask(said("Hello there"), model="scripted:echo")).text == "Hello there"
    assert play(ask(said("Hello there"), model="scripted")).text == "Hello there"


def test_bench_calls_first_and_talks_after_the_result(ask: Ask) -> None:
    asked = play(ask(model="scripted:bench"))
    assert [call.tool_name for call in asked.calls] == ["look"]
    assert len(asked.calls[0].arguments_json.encode()) == pytest.approx(100, abs=5)
    assert list(json.loads(asked.calls[0].arguments_json)) == ["thing"]
    told = play(ask(said("Hello"), RESULT, NOTICE, model="scripted:bench"))
    assert (len(told.text.encode()), told.calls) == (200, ())


def test_a_script_writes_the_same_for_the_same_step_and_else_not(ask: Ask) -> None:
    def at(step: int) -> str:
        return play(ask(said("x"), RESULT, model="scripted:bench", metadata={"sessionId": "s", "step": step})).text

    assert at(1) == at(1)
    assert at(1) != at(2)


def test_counted_scripts_write_as_much_as_they_are_told(ask: Ask) -> None:
    calls = play(ask(model="scripted:calls:10")).calls
    assert len({call.arguments_json for call in calls}) == 10
    deltas: list[object] = []
    complete_reply(ask(model="scripted:deltas:7"), emit=deltas.append, token=CancelToken())
    assert [len(delta.text) for delta in deltas if isinstance(delta, TextDelta)] == [20] * 7


def test_arguments_fit_a_schema_of_several_kinds(ask: Ask) -> None:
    kinds = {"n": {"type": "integer"}, "how": {"type": "string", "enum": ["slow", "fast"]}, "why": {"type": "string"}}
    spec = ToolSpec("move", "", {"type": "object", "properties": kinds, "required": ["n", "how"]})
    (call,) = play(ask(model="scripted:bench", tools=(spec,))).calls
    arguments = json.loads(call.arguments_json)
    assert (arguments["n"], arguments["how"]) == (1, "slow")
    assert arguments["why"]


@pytest.mark.parametrize("model", ["scripted:nobody", "scripted:calls:many"])
def test_a_script_that_cannot_be_played_is_a_lasting_model_error(ask: Ask, model: str) -> None:
    with pytest.raises(ModelError) as refused:
        play(ask(model=model))
    assert (refused.value.code, refused.value.retryable) == ("provider_error", False)


def test_a_script_may_fail_like_a_model(ask: Ask) -> None:
    @script("limited")
    def limited(request: ModelRequest) -> Iterator[Piece]:
        yield "So"
        raise ModelError("slow down", code="provider_rate_limited", retryable=True)

    with pytest.raises(ModelError, match="slow down") as failed:
        play(ask(model="scripted:limited"))
    assert failed.value.retryable
    assert failed.value.partial is not None and failed.value.partial.text == "So"


def test_a_stop_ends_a_held_script_and_keeps_what_was_written(ask: Ask, tmp_path: Path) -> None:
    """Q-21, R-419."""
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    token = CancelToken()

    @script("held")
    def held(request: ModelRequest) -> Iterator[Piece]:
        yield "So far"
        yield Hold(PipeGate(pipe))
        yield "never"

    reached = threading.Event()
    stopper = threading.Thread(target=lambda: (reached.wait(), token.cancel()))
    stopper.start()
    with pytest.raises(Cancelled) as cut:
        complete_reply(ask(model="scripted:held"), emit=lambda delta: reached.set(), token=token)
    stopper.join()
    assert cut.value.partial == Reply(text="So far", complete=False)
    assert token.watchers == 0


def test_a_blocked_script_goes_on_when_it_is_told(ask: Ask, tmp_path: Path) -> None:
    """W9: from another process, and for everyone who comes after."""
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    request = ask(model=f"scripted:block:{pipe}")
    replies: list[Reply] = []
    blocked = threading.Thread(target=lambda: replies.append(play(request)))
    blocked.start()
    # A writer can open the pipe only once a reader has: the announcement of the arrival.
    os.close(os.open(pipe, os.O_WRONLY))
    blocked.join()
    assert len(replies[0].calls) == 1
    release(pipe)
    assert len(play(request).calls) == 1


def test_a_scripted_run_loads_no_provider() -> None:
    """The provider library takes seconds to import."""
    code = (
        "import sys, django; django.setup();"
        "from helix.loop import *;"
        "said = LoggedMessage('user', ({'type': 'text', 'text': 'hi'},));"
        "complete_reply(ModelRequest('scripted', '', (said,)), emit=print, token=CancelToken());"
        "sys.exit('pydantic_ai' in sys.modules)"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_one_module_alone_imports_the_provider_library() -> None:
    root = Path(helix.__file__).parent
    pattern = re.compile(r"^\s*(import|from) pydantic_ai\b", re.MULTILINE)
    assert [path.relative_to(root) for path in root.rglob("*.py") if pattern.search(path.read_text())] == [
        Path("loop/providers.py")
    ]
