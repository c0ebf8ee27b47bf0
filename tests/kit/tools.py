"""Tools that many tests share: what a client runs, and server tools that write down every body they run (D-7)."""

from __future__ import annotations

from typing import Any

from helix.agents import Agent, SubAgent, Tool, client_tool, tool
from tests.kit.models import ScriptedModel

locate = client_tool("locate", description="Where the user is.", input_schema={"type": "object"})

measure = client_tool(
    "measure",
    description="Measure a distance.",
    input_schema={
        "type": "object",
        "properties": {"metres": {"type": "integer"}},
        "required": ["metres"],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]},
)


class Bodies:
    """``bodies.tool("pay", require_approval=True)`` makes a server tool; ``ran`` is what its bodies did, in order."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def tool(self, name: str, **options: Any) -> Tool:
        def body(number: int = 0) -> str:
            """Write down that it ran."""
            self.ran.append((name, number))
            return f"{name} {number}"

        return tool(name=name, **options)(body)


def child_agent(name: str, model: ScriptedModel, **options: Any) -> SubAgent:
    """A sub-agent that finishes with any object; the parent's model calls it as ``subagent__<name>``."""
    return SubAgent(Agent(name, model=model.name, output_schema={"type": "object"}, **options))
