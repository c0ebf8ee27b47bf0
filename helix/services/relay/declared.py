"""Where a peer is and what may be told to it: read from the declaration at each errand, never from a row."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from helix.agents import Agent, SubAgent, lookup
from helix.errors import AgentNotFound, AgentResolutionFailed
from helix.peers import Address, Peer, PeerUnreachable, peer_at

log = logging.getLogger("helix.relay")


@dataclass(frozen=True)
class Declared:
    """One remote sub-agent as its parent declares it now."""

    agent: Agent
    sub_agent: SubAgent

    @property
    def silence_ms(self) -> int | None:
        return self.sub_agent.silence_ms

    @property
    def output_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.sub_agent.output_schema
        return schema

    def peer(self) -> Peer:
        """Raises: `PeerUnreachable` when the declared function has no headers to give."""
        try:
            headers = self.sub_agent.request_headers()
        except Exception as failure:
            log.exception("relay.headers_failed", extra={"agentType": self.agent.name})
            raise PeerUnreachable("no credentials") from failure
        return peer_at(Address(str(self.sub_agent.remote), headers))


def declared(agent_type: str, tool_name: str) -> Declared:
    """Raises: `PeerUnreachable` when the agent or its remote sub-agent is not declared (any more)."""
    try:
        agent = lookup(agent_type)
    except (AgentNotFound, AgentResolutionFailed) as gone:
        raise PeerUnreachable(gone.code) from gone
    tool = agent.tool(tool_name)
    if tool is None or tool.sub_agent is None or tool.sub_agent.remote is None:
        raise PeerUnreachable("the sub-agent is not declared any more")
    return Declared(agent, tool.sub_agent)
