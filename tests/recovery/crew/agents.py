"""The agents of the fleet: a client tool, an approved body, and bodies that may or may not run twice."""

from __future__ import annotations

from helix.agents import Agent, client_tool, register, tool
from tests.recovery.crew.watch import BODY, passes, write_down


def _ring(bell: str) -> str:
    write_down(bell)
    passes(BODY)
    return f"rang {bell}"


@tool
def ring_once(bell: str) -> str:
    """Ring a bell that must not ring twice."""
    return _ring(bell)


@tool(replay="safe")
def ring_safely(bell: str) -> str:
    """Ring a bell that may ring again."""
    return _ring(bell)


@tool(require_approval=True)
def ring_loudly(bell: str) -> str:
    """Ring a bell that somebody has to allow."""
    return _ring(bell)


locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object", "properties": {"precise": {"type": "boolean"}}},
    client_tool_timeout_ms=None,
)

register(
    Agent(
        "crew",
        model="openai:test",
        instructions="You ring bells.",
        tools=[locate, ring_once, ring_safely, ring_loudly],
        approval_timeout_ms=None,
    )
)
