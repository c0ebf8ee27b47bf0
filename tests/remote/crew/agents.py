"""Two agents that need no provider: what the model says follows from what stands in its request."""

from __future__ import annotations

import os
from collections.abc import Iterator

from helix.agents import Agent, SubAgent, client_tool, register, tool
from helix.loop import ModelRequest, result_text
from helix.loop.scripted import Call, Piece, script
from tests.remote.crew import PEER


def results_of(request: ModelRequest) -> dict[str, str]:
    return {
        message.parts[0]["toolName"]: result_text(message.parts[0])
        for message in request.messages
        if message.role == "tool"
    }


@script("remote-helper")
def help_out(request: ModelRequest) -> Iterator[Piece]:
    """A client tool, then an approved body, then the answer."""
    seen = results_of(request)
    if "locate" not in seen:
        yield Call("locate", {}, provider_call_id="c1")
    elif "book" not in seen:
        yield Call("book", {"city": seen["locate"]}, provider_call_id="p1")
    else:
        yield Call("__finish__", {"booked": seen["book"]})


@script("remote-parent")
def delegate(request: ModelRequest) -> Iterator[Piece]:
    seen = results_of(request)
    if "subagent__helper" in seen:
        yield f"The helper says {seen['subagent__helper']}"
    else:
        yield Call("subagent__helper", {"task": "Book a room."}, provider_call_id="d1")


@tool(require_approval=True)
def book(city: str) -> str:
    """Book a room."""
    return f"a room in {city}"


locate = client_tool("locate", input_schema={"type": "object"}, client_tool_timeout_ms=None)

if PEER in os.environ:
    register(
        Agent(
            "parent",
            model="scripted:remote-parent",
            sub_agents=[
                SubAgent(
                    "helper",
                    remote=os.environ[PEER],
                    output_schema={"type": "object", "required": ["booked"]},
                    headers=lambda: {"X-Crew": "delegate"},
                )
            ],
        )
    )
else:
    register(Agent("helper", model="scripted:remote-helper", tools=[locate, book], output_schema={"type": "object"}))
