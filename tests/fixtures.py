"""Fixtures of the whole suite: the world, and agents that exist for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from helix.agents import Agent, registered
from tests.kit.models import ScriptedModel
from tests.kit.world import T0, World, new_world, sweeping_since

AgentMaker = Callable[..., Agent]


@pytest.fixture
def world(db: None) -> Iterator[World]:
    """Frozen time, hints in the hands of the test, and a deadline sweep that has just run."""
    with new_world() as made:
        sweeping_since(T0)
        yield made


@pytest.fixture
def agent() -> Iterator[AgentMaker]:
    """Make and register an agent for this test: ``agent(model, tools=[...])``. Names are unique."""
    made = 0
    with ExitStack() as stack:

        def make(model: ScriptedModel, *, name: str | None = None, **options: Any) -> Agent:
            nonlocal made
            made += 1
            declared = Agent(name or f"agent-{made}", model=model.name, **options)
            stack.enter_context(registered(declared))
            return declared

        yield make
