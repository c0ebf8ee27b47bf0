"""Declaring agents and tools: the public face of Helix for Python developers.

An app's ``agents.py`` declares and registers; every mistake is refused while Django starts (R-024)::

    from helix.agents import Agent, client_tool, register, tool

    @tool(require_approval=True)
    def refund(order: str, cents: int) -> str:
        ...

    register(Agent("shop", instructions="…", tools=[refund, client_tool("locate", input_schema={})]))
"""

from helix.agents.agent import DEFAULT_MAX_STEPS, Agent, SubAgent
from helix.agents.arguments import ArgumentsRefused, call_arguments, check_arguments, read_arguments
from helix.agents.context import (
    ApprovalRequest,
    Hook,
    Hooks,
    StateWrite,
    StepContext,
    StopSignal,
    ToolContext,
    apply_state_writes,
)
from helix.agents.declaration import UNSET, DeclarationError, Unset, Wait
from helix.agents.registry import all_agents, check, discover, lookup, register, registered
from helix.agents.tools import (
    FINISH_TOOL_NAME,
    RESERVED_TOOL_NAME_PREFIXES,
    SUBAGENT_PREFIX,
    Tool,
    ToolKind,
    client_tool,
    tool,
)

__all__ = [
    "DEFAULT_MAX_STEPS",
    "FINISH_TOOL_NAME",
    "RESERVED_TOOL_NAME_PREFIXES",
    "SUBAGENT_PREFIX",
    "UNSET",
    "Agent",
    "ApprovalRequest",
    "ArgumentsRefused",
    "DeclarationError",
    "Hook",
    "Hooks",
    "StateWrite",
    "StepContext",
    "StopSignal",
    "SubAgent",
    "Tool",
    "ToolContext",
    "ToolKind",
    "Unset",
    "Wait",
    "all_agents",
    "apply_state_writes",
    "call_arguments",
    "check",
    "check_arguments",
    "client_tool",
    "discover",
    "lookup",
    "read_arguments",
    "register",
    "registered",
    "tool",
]
