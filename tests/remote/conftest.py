"""A world with a peer in it, and the crew of most tests: a parent here, a helper there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helix.agents import Agent
from helix.peers import http
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World
from tests.remote.peers import Peers, remote

Crew = Callable[..., Agent]


@pytest.fixture
def peers(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peers]:
    peers = Peers(world)
    monkeypatch.setattr(http, "open_exchange", peers.open)
    return peers


@pytest.fixture
def crew(agent: AgentMaker) -> Crew:
    """``crew(helper_model, tools=[...])``: the helper at the peer; returns the parent that delegates to it once."""

    def make(
        helper: ScriptedModel,
        *,
        parent: ScriptedModel | None = None,
        declared: dict[str, Any] | None = None,
        parent_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Agent:
        agent(helper, name="helper", output_schema={"type": "object"}, **options)
        model = parent or ScriptedModel([call("subagent__helper", "d1", task="Look it up.")], ["done"])
        return agent(model, name="parent", sub_agents=[remote("helper", **(declared or {}))], **(parent_options or {}))

    return make
