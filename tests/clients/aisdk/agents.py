"""Agents of the server that the real pages talk to; their models follow scripts that the pages' own words steer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helix.agents import Agent, client_tool, tool
from helix.loop import ModelError, ModelRequest, result_text
from helix.loop.scripted import Call, Hold, Piece, script
from helix.loop.scripts import PipeGate
from helix.principals import Principal

locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object", "properties": {"number": {"type": "integer"}}},
    output_schema={"type": "string"},
)


@tool(require_approval=True)
def pay(number: int) -> str:
    """Pay somebody."""
    return f"paid {number}"


@tool
def look_up(number: int) -> dict[str, int]:
    """Look something up on the server."""
    return {"found": number}


def said(request: ModelRequest) -> str:
    """The last words of the user: what steers a script."""
    return next(message.text for message in reversed(request.messages) if message.role == "user")


def results(request: ModelRequest) -> list[str]:
    """What the tools of this turn said."""
    found: list[str] = []
    for message in reversed(request.messages):
        if message.role == "user":
            break
        if message.role == "tool":
            found.insert(0, result_text(message.parts[0]))
    return found


@script("aisdk-steps")
def steps(request: ModelRequest, *steps: str) -> Iterator[Piece]:
    """``locate+pay:locate``: one argument a step, the calls of it joined by a plus; then a text with all results."""
    known = results(request)
    for step in steps:
        names = step.split("+")
        if not known:
            for number, name in enumerate(names, 1):
                yield Call(name, {"number": number})
            return
        known = known[len(names) :]
    yield "Results: "
    yield "; ".join(results(request))


@script("aisdk-story")
def story(request: ModelRequest, *steps: str) -> Iterator[Piece]:
    """Tells half a story, waits at the gate that the user names, and tells the rest; ``locate`` first, if asked."""
    if len(results(request)) < len(steps):
        yield Call(steps[0], {"number": 1})
        return
    yield "Once upon "
    yield Hold(PipeGate(Path(said(request))))
    yield "a time."


@script("aisdk-flaky")
def flaky(request: ModelRequest) -> Iterator[Piece]:
    """Fails for as long as the file that the user names is there."""
    yield "Well, "
    if Path(said(request)).exists():
        raise ModelError("The provider is away.")
    yield "here you are."


def believe(operation: str, request: Any) -> Principal:
    """The hook: everybody is the owner, since the pages of one machine talk to their own server."""
    return Principal(id="owner")


TOOLS = (locate, pay, look_up)
MODELS = {
    "talk": "aisdk-steps",
    "locate": "aisdk-steps:locate",
    "pair": "aisdk-steps:locate+locate",
    "chain": "aisdk-steps:look_up+locate:locate",
    "pay": "aisdk-steps:pay",
    "pays": "aisdk-steps:pay+pay",
    "mixed": "aisdk-steps:locate+pay",
    "story": "aisdk-story",
    "located-story": "aisdk-story:locate",
    "flaky": "aisdk-flaky",
}
AGENTS = {name: Agent(name, model=f"scripted:{model}", tools=TOOLS) for name, model in MODELS.items()}
