"""Sub-agents below sub-agents: each parent knows its direct child only, and is continued by that child's end alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from helix.agents import FINISH_TOOL_NAME, Agent
from helix.models import PendingCall, Run, Session
from helix.services.advance import advance_run
from helix.services.barrier import Settled, settled_for
from tests.fixtures import AgentMaker
from tests.kit.gates import working
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import child_agent, locate
from tests.kit.world import World, current_run, events, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)


def barrier(session_id: UUID) -> Settled:
    return settled_for(Run.objects.get(session_id=session_id, number=1).id)


def child_of(session_id: UUID) -> Session:
    return Session.objects.get(parent_id=session_id)


def family(agent: AgentMaker, grandchild: ScriptedModel, **options: Any) -> tuple[Agent, list[ScriptedModel]]:
    """Three generations: each asks the next once and then finishes with what it was told."""

    def passes_on(request: Any) -> list[Any]:
        return [call(FINISH_TOOL_NAME, said=request.messages[-1].parts[0]["value"])]

    below = child_agent("grandchild", grandchild, **options)
    middle = ScriptedModel([call("subagent__grandchild", "d2", task="dig")], passes_on)
    top = ScriptedModel([call("subagent__child", "d1", task="go")], ["done"])
    return agent(top, sub_agents=[child_agent("child", middle, sub_agents=[below])]), [top, middle, grandchild]


def test_a_held_grandchild_keeps_every_ancestor_open(world: World, agent: AgentMaker) -> None:
    """Q-29, Q-32, Q-34: what it has written so far is an event and no result. The next request of each parent comes
    after the child's end, and contains the child's value."""
    gate = ModelGate()
    declared, [top, middle, bottom] = family(
        agent, ScriptedModel(["so far", gate.hold(), call(FINISH_TOOL_NAME, deep=7)])
    )
    session_id = world.start(declared)
    for _ in range(2):
        world.commit()
        advance_run(world.hints.pop(0), clock=world.clock)
    child = child_of(session_id)
    last = child_of(child.id)
    world.drop_hints()
    with working(world, current_run(last.id).id, gate):
        assert [barrier(one) for one in (session_id, child.id, last.id)] == [Settled.WORKING] * 3
        assert [one["delta"] for one in events(session_id, "text_delta")] == ["so far"]
        assert set(PendingCall.objects.values_list("state", flat=True)) == {"executing"}
        assert (top.asked, middle.asked) == (1, 1)
    world.drain()
    assert (top.asked, middle.asked, bottom.asked) == (2, 2, 1)
    assert middle.results_seen() == {"d2": '{"deep":7}'} and top.results_seen() == {"d1": '{"said":{"deep":7}}'}
    assert barrier(session_id) is Settled.FINISHED


def test_a_waiting_grandchild_lets_every_ancestor_wait(world: World, agent: AgentMaker) -> None:
    """Q-29, T-4: the root shows the call, a submit at the root climbs level by level, and no parent has a timer."""
    bottom = ScriptedModel([call("locate", "below")], [call(FINISH_TOOL_NAME, deep=7)])
    declared, [top, _, _] = family(agent, bottom, tools=[locate])
    session_id = world.started(declared)
    child = child_of(session_id)
    assert [barrier(one) for one in (session_id, child.id, child_of(child.id).id)] == [Settled.WAITING] * 3
    assert session_of(session_id).status == "awaiting_client_tool"
    assert set(PendingCall.objects.filter(kind="subagent").values_list("deadline_at", flat=True)) == {None}
    world.submit(session_id, "below", result="here")
    assert barrier(session_id) is Settled.WORKING
    world.drain()
    assert barrier(session_id) is Settled.FINISHED and top.results_seen() == {"d1": '{"said":{"deep":7}}'}


def test_a_child_without_output_is_an_explicit_null(world: World, agent: AgentMaker) -> None:
    """Q-31, Q-30: it went quiet; no hang, no error, no timeout."""
    quiet = child_agent("quiet", ScriptedModel(["I looked around."]))
    model = ScriptedModel([call("subagent__quiet", "d1", task="look")], ["done"])
    session_id = world.started(agent(model, sub_agents=[quiet]))
    stored = results(session_id)["d1"]
    assert stored["value"] is None and stored["errorCode"] is None and model.results_seen() == {"d1": "null"}
