"""The fake provider itself: its gate, its plans, and that it runs as a process of its own (D-1)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from helix.loop import CancelToken, complete_reply
from tests.loop.conftest import said
from tests.loop.test_providers import Ask, ignore
from tests.provider_server import Gate, planned


def conversation(*messages: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_a_gate_holds_until_it_is_released_and_counts() -> None:
    gate = Gate()
    here, there = socket.socketpair()
    ends: list[bool] = []
    with here, there:
        waiting = threading.Thread(target=lambda: ends.append(gate.hold(here)))
        waiting.start()
        gate.entered.wait()
        assert ends == []
        gate.release()
        waiting.join()
        assert gate.hold(here)
    assert ends == [True]
    assert gate.arrivals == 2


def test_a_gate_sees_who_hangs_up() -> None:
    gate = Gate()
    here, there = socket.socketpair()
    with here:
        there.close()
        assert not gate.hold(here)


def test_the_conversation_decides() -> None:
    called = planned(conversation(("user", 'call look {"a": 1}')))
    assert called.finish_reason == "tool_calls"
    assert called.pieces[-1] == {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}
    assert planned(conversation(("user", "hello"))).pieces == [{"content": "echo: hello"}]
    answered = planned(conversation(("user", "call look"), ("assistant", ""), ("tool", "seen")))
    assert answered.pieces == [{"content": "done: seen"}]


def test_a_plan_goes_step_by_step_and_begins_again_each_turn() -> None:
    plan = [{"calls": [{"name": "a"}, {"name": "b", "arguments": "{}"}]}, {"text": "end"}]
    one = [("user", "go")]
    two = [*one, ("assistant", ""), ("tool", "x"), ("tool", "y")]
    three = [*two, ("assistant", "end"), ("user", "again")]
    assert planned(conversation(*one), plan).finish_reason == "tool_calls"
    assert planned(conversation(*two), plan).pieces == [{"content": "end"}]
    assert planned(conversation(*three), plan).finish_reason == "tool_calls"


@pytest.mark.processes
def test_it_runs_as_a_process_of_its_own(tmp_path: Path, settings: LazySettings, ask: Ask) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"text": "from afar"}]))
    command = [sys.executable, "-m", "tests.provider_server", "--plan", str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            settings.HELIX_MODEL_BASE_URL = process.stdout.readline().strip()
            assert complete_reply(ask(said("Hello")), emit=ignore, token=CancelToken()).text == "from afar"
        finally:
            process.kill()
