"""What the outside sees of a batch: each call by itself, results only after answers, reviewers only what is gated."""

from __future__ import annotations

import pytest

from helix import selectors
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import OPERATOR, World, events, pending

pytestmark = pytest.mark.django_db


def test_parallel_client_calls_are_told_one_by_one_and_end_only_when_answered(world: World, agent: AgentMaker) -> None:
    """C-007: three `tool_start`, and no `tool_end` before somebody submitted."""
    model = ScriptedModel([call("locate", f"c{n}") for n in range(3)], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    assert [event["toolCallId"] for event in events(session_id, "tool_start")] == ["c0", "c1", "c2"]
    assert events(session_id, "tool_end") == []
    for name in ("c2", "c0", "c1"):
        world.submit(session_id, name, result=name)
    world.drain()
    assert {event["toolCallId"]: event["result"] for event in events(session_id, "tool_end")} == {
        name: name for name in ("c0", "c1", "c2")
    }


def test_only_gated_calls_of_a_mixed_step_reach_a_reviewer(world: World, agent: AgentMaker) -> None:
    """C-013: neither the open client call nor the server call that ran beside it; the owner's page sees both open."""
    bodies = Bodies()
    tools = [locate, bodies.tool("count"), bodies.tool("pay", require_approval=True)]
    model = ScriptedModel([call("locate", "c1"), call("count", "s1"), call("pay", "p1")], ["done"])
    session_id = world.started(agent(model, tools=tools))
    assert [row.tool_call_id for row in selectors.reviewable_calls(OPERATOR)] == ["p1"]
    assert [row.tool_call_id for row in pending(session_id)] == ["c1", "p1"]


def test_nothing_is_remembered_from_one_decision_to_its_siblings(world: World, agent: AgentMaker) -> None:
    """C-015: a decision is for one call; there is no rule that could be applied to some of the siblings only."""
    bodies = Bodies()
    model = ScriptedModel([call("pay", "p1", number=1), call("pay", "p2", number=1)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    first, _ = pending(session_id)
    world.decide(first)
    world.drain()
    assert [row.tool_call_id for row in pending(session_id)] == ["p2"] and bodies.ran == []
