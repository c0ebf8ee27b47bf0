"""No clock lies on our own work, and one lies on what somebody outside owes (liveness 1, 10 and the table of 13)."""

from __future__ import annotations

from typing import Any

import pytest

from helix.agents import FINISH_TOOL_NAME, client_tool
from helix.loop import ModelError
from helix.models import PendingCall, Run, RunLease, Session
from helix.pulse import Pulse
from helix.services.advance import advance_run
from helix.services.barrier import Settled, settled_for
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, working
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import World, current_run, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)

TEN_YEARS = {"days": 3653}


def ten_years_pass(world: World) -> None:
    """With every sweep and every beat that a running process would make (D-4)."""
    Pulse(world.clock).beat()
    world.wait(**TEN_YEARS)
    Pulse(world.clock).beat()
    world.drain()


@pytest.mark.parametrize("held", ["model", "server tool", "child"])
def test_ten_years_end_nothing_of_ours(world: World, agent: AgentMaker, held: str) -> None:
    """Q-01, Q-03, D-13: each is still open, the barrier says working although the lease is long stale, and the real
    result reaches the model."""
    gate = BodyGate()
    child = child_agent("scout", ScriptedModel([gate.hold(), call(FINISH_TOOL_NAME, n=7)]))
    first: dict[str, list[Any]] = {
        "model": [gate.hold(), call("count", "s1", number=7)],
        "server tool": [call("hold", "s1", value="7")],
        "child": [call("subagent__scout", "s1", task="go")],
    }
    model = ScriptedModel(first[held], ["done"])
    tools = [gate.tool(), Bodies().tool("count")]
    session_id = world.start(agent(model, tools=tools, sub_agents=[child]))
    if held == "child":
        advance_run(current_run(session_id).id, clock=world.clock)
    world.drop_hints()
    at_work = Run.objects.get(status="queued")
    with working(world, at_work.id, gate):
        ten_years_pass(world)
        stale = RunLease.objects.get()
        stale.expires_at = world.now
        stale.save()
        ten_years_pass(world)
        assert settled_for(Run.objects.get(session_id=session_id, number=1).id) is Settled.WORKING
        assert session_of(session_id).status == "running" and not results(session_id)
    world.drain()
    assert model.results_seen() == {"s1": {"model": "count 7", "server tool": "7", "child": '{"n":7}'}[held]}
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_the_same_tool_runs_on_for_us_and_times_out_for_a_client(world: World, agent: AgentMaker) -> None:
    """Q-01, T-1, T-3, T-5, D-5: one tool declared server and declared client, both held, ten years, one sweep."""
    gate = BodyGate()
    ours = ScriptedModel([call("hold", "s1")], ["done"])
    theirs = ScriptedModel([call("hold", "c1")], ["done"])
    outside = client_tool("hold", description="The same, elsewhere.", input_schema={"type": "object"})
    waiting = world.started(agent(theirs, tools=[outside]))
    working_on = world.start(agent(ours, tools=[gate.tool()]))
    world.drop_hints()
    with working(world, current_run(working_on).id, gate):
        ten_years_pass(world)
        assert results(waiting)["c1"]["errorCode"] == "client_tool_timeout"
        assert PendingCall.objects.get(tool_call_id="s1").state == "executing"
    assert results(working_on)["s1"]["text"] == "held"


def test_a_call_without_deadline_waits_for_ever(world: World, agent: AgentMaker) -> None:
    """T-1, T-9, D-5: policy none, ten years, still pending and still answerable; its sibling with a deadline lapsed."""
    patient = client_tool(
        "patient", description="No hurry.", input_schema={"type": "object"}, client_tool_timeout_ms=None
    )
    model = ScriptedModel([call("patient", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[patient, locate]))
    ten_years_pass(world)
    states = dict(PendingCall.objects.values_list("tool_call_id", "answer_kind"))
    assert states == {"c1": None, "c2": "timeout"}
    world.submit(session_id, "c1", result="finally")
    world.drain()
    assert model.results_seen()["c1"] == "finally" and session_of(session_id).status == "idle"


def test_a_body_in_a_child_outlives_the_lapse_beside_it(world: World, agent: AgentMaker) -> None:
    """T-2, T-4, T-5, Q-24: the parent's client call expires while the child computes; the child is untouched, and the
    parent goes on when both are closed."""
    gate = BodyGate()
    bottom = ScriptedModel([call("hold", "s1")], [call(FINISH_TOOL_NAME, n=7)])
    model = ScriptedModel([call("subagent__scout", "d1", task="go"), call("locate", "c1")], ["done"])
    scout = child_agent("scout", bottom, tools=[gate.tool()])
    session_id = world.start(agent(model, tools=[locate], sub_agents=[scout]))
    advance_run(current_run(session_id).id, clock=world.clock)
    world.drop_hints()
    child = Session.objects.get(parent_id=session_id)
    with working(world, current_run(child.id).id, gate):
        ten_years_pass(world)
        states = dict(PendingCall.objects.values_list("tool_call_id", "state"))
        assert states == {"d1": "executing", "c1": "answered", "s1": "executing"} and model.asked == 1
    world.drain()
    assert model.results_seen()["d1"] == '{"n":7}' and "client_tool_timeout" == results(session_id)["c1"]["errorCode"]


def test_a_child_that_waits_a_month_for_a_person_is_completed(world: World, agent: AgentMaker) -> None:
    """T-3, T-4, T-8, D-6: nothing expires and nobody polls; the root completes with the child's value."""
    bodies = Bodies()
    pay = bodies.tool("pay", require_approval=True, approval_timeout_ms=None)
    bottom = ScriptedModel([call("pay", "p1", number=5)], [call(FINISH_TOOL_NAME, paid=5)])
    model = ScriptedModel([call("subagent__clerk", "d1", task="pay")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child_agent("clerk", bottom, tools=[pay])]))
    for _ in range(30):
        world.wait(days=1)
        assert world.drain() == 0
    assert session_of(session_id).status == "awaiting_client_tool" and not RunLease.objects.exists()
    world.decide(PendingCall.objects.get(tool_call_id="p1"))
    world.drain()
    assert bodies.ran == [("pay", 5)] and model.results_seen() == {"d1": '{"paid":5}'}
    assert session_of(session_id).status == "idle"


def test_the_clock_of_a_test_stands_still(world: World, agent: AgentMaker) -> None:
    """D-4, D-13: a whole turn takes no time; only the test moves it."""
    before = world.now
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    instants = set(session_of(session_id).events.values_list("created_at", flat=True))
    assert instants == {before} and world.now == before


def test_a_model_that_was_asked_to_wait_is_due_by_its_row(world: World, agent: AgentMaker) -> None:
    """Q-02, T-10: firing early costs one repeated request; the due time is a column and no timer."""

    busy = ModelError("busy", code="provider_rate_limited", retryable=True)
    model = ScriptedModel(busy, ["done"])
    session_id = world.started(agent(model))
    assert current_run(session_id).status == "queued" and model.asked == 1
    for early in (True, False):
        world.tick(milliseconds=999 if early else 1)
        advance_run(current_run(session_id).id, clock=world.clock)
        assert model.asked == (1 if early else 2)
