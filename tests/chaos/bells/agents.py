"""Agents whose model asks for whatever the last message lists, step by step, and whose bodies keep a ledger.

A message is JSON: a list of steps, each a list of ``[tool, argument]``. Models and bodies take their time, so that a
kill finds them at work.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helix import jsontext
from helix.agents import Agent, SubAgent, ToolContext, client_tool, register, tool
from helix.loop import CancelToken, ModelRequest
from helix.loop.scripted import Call, Hold, Piece, script
from tests.recovery.crew.watch import write_down

MODEL_SECONDS = 0.1
BODY_SECONDS = 0.3
LAPSES_AFTER_MS = 1500
# How an agent that another one called gives its answer.
FINISH = "__finish__"

ARGUMENTS = {"clerk": "task", "locate": "where", "whisper": "where"}


@dataclass(frozen=True)
class Pause:
    """As long as a quick model takes, or until a stop."""

    seconds: float

    def wait(self, token: CancelToken) -> None:
        cut = threading.Event()
        forget = token.on_cancel(cut.set)
        try:
            cut.wait(self.seconds)
        finally:
            forget()


@script("bells")
def asked_for(request: ModelRequest) -> Iterator[Piece]:
    """The next step of the last message's list; after the last step, a text."""
    done, steps = 0, []
    for message in request.messages:
        if message.role == "user":
            # A message whose run was lost stands before the next one, as a part of it.
            done, steps = 0, jsontext.loads(message.parts[-1]["text"])
        elif message.role == "assistant":
            done += 1
    yield "Let me "
    yield Hold(Pause(MODEL_SECONDS))
    if done >= len(steps):
        yield "rest: all is rung."
        if any(spec.name == FINISH for spec in request.tools):
            yield Call(FINISH, {"rung": done})
        return
    yield "ring."
    for name, argument in steps[done]:
        called = "subagent__clerk" if name == "clerk" else name
        yield Call(called, {ARGUMENTS.get(name, "bell"): argument})


def _ring(context: ToolContext, bell: str) -> str:
    write_down(f"{context.tool_call_id} {os.getpid()} {time.time():.3f} {bell}")
    threading.Event().wait(BODY_SECONDS)
    return f"rang {bell}"


@tool
def ring_once(context: ToolContext, bell: str) -> str:
    """Ring a bell that must not ring twice."""
    return _ring(context, bell)


@tool(replay="safe")
def ring_safely(context: ToolContext, bell: str) -> str:
    """Ring a bell that may ring again."""
    return _ring(context, bell)


@tool(require_approval=True)
def ring_loudly(context: ToolContext, bell: str) -> str:
    """Ring a bell that somebody has to allow."""
    return _ring(context, bell)


def _at_the_client(name: str, wait_ms: int | None) -> Any:
    schema = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
    return client_tool(name, description="Look there.", input_schema=schema, client_tool_timeout_ms=wait_ms)


LOOKS = [_at_the_client("locate", None), _at_the_client("whisper", LAPSES_AFTER_MS)]
_OPTIONS: dict[str, Any] = {
    "model": "scripted:bells",
    "tools": [*LOOKS, ring_once, ring_safely, ring_loudly],
    "approval_timeout_ms": None,
}

clerk = register(Agent("clerk", output_schema={"type": "object"}, **_OPTIONS))
register(Agent("ringer", sub_agents=[SubAgent(clerk)], **_OPTIONS))
register(Agent("one_by_one", sub_agents=[SubAgent(clerk)], max_open_calls=1, **_OPTIONS))
