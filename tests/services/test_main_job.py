"""The main job from message to end: server tools, client tools, approvals, one model call after a batch."""

from __future__ import annotations

import pytest

from helix.agents import client_tool, tool
from helix.models import CallOwnership, CallTombstone, PendingCall, RunLease
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db

locate = client_tool("locate", description="Where the user is.", input_schema={"type": "object"})


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    paid.append(cents)
    return f"paid {cents}"


paid: list[int] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def test_a_turn_without_tools_ends_idle_with_the_reply_in_the_log(world: World, agent: AgentMaker) -> None:
    model = ScriptedModel(["Good ", "day."])
    session_id = world.started(agent(model))
    session = session_of(session_id)
    assert (session.status, current_run(session_id).status) == ("idle", "completed")
    assert [m.parts[0]["text"] for m in session.messages.order_by("position")] == ["hello", "Good day."]


def test_a_server_tool_runs_and_its_result_is_in_the_next_request(world: World, agent: AgentMaker) -> None:
    model = ScriptedModel([call("add", left=2, right=3)], ["five"])
    session_id = world.started(agent(model, tools=[add]))
    assert list(model.results_seen().values()) == ["5"]
    assert session_of(session_id).status == "idle"


def test_a_client_call_suspends_durably_and_its_answer_continues(world: World, agent: AgentMaker) -> None:
    """R-030, R-037, R-054, R-060, R-141."""
    model = ScriptedModel([call("locate", "c1")], ["You are in Bern."])
    session_id = world.started(agent(model, tools=[locate]))
    assert session_of(session_id).status == "awaiting_client_tool"
    assert not RunLease.objects.exists() and not world.hints
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"]

    answer = world.submit(session_id, "c1", result={"city": "Bern"})
    assert answer["status"] == "accepted" and answer["continuation"]["kind"] == "new_run"
    world.drain()
    assert model.results_seen() == {"c1": '{"city":"Bern"}'}
    assert session_of(session_id).status == "idle"
    assert not CallOwnership.objects.exists() and CallTombstone.objects.count() == 1


def test_an_approved_body_runs_once_and_a_denied_one_never(world: World, agent: AgentMaker) -> None:
    """R-169, R-170."""
    model = ScriptedModel([call("pay", "p1", cents=5), call("pay", "p2", cents=7)], ["done"])
    session_id = world.started(agent(model, tools=[pay]))
    first, second = pending(session_id)
    assert world.decide(first)["continuation"]["kind"] == "awaiting_batch"
    assert world.decide(second, approved=False, reason="too much")["continuation"]["kind"] == "new_run"
    world.drain()
    assert paid == [5]
    seen = model.results_seen()
    assert seen["p1"] == "paid 5" and "too much" in seen["p2"]
    assert results(session_id)["p2"]["errorCode"] == "approval_denied"


def test_a_mixed_step_runs_server_tools_first_and_keeps_emission_order(world: World, agent: AgentMaker) -> None:
    """R-050, R-114, R-144."""
    model = ScriptedModel(
        [call("locate", "c1"), call("add", "s1", left=1, right=1), call("pay", "p1", cents=3)], ["done"]
    )
    session_id = world.started(agent(model, tools=[locate, add, pay]))
    assert results(session_id)["s1"]["value"] == 2
    world.decide(call_named(session_id, "pay"))
    world.submit(session_id, "c1", result="here")
    world.drain()
    assert list(model.results_seen().items()) == [("c1", "here"), ("s1", "2"), ("p1", "paid 3")]
    assert model.asked == 2


def test_one_pause_at_a_time_shows_one_call_after_another(world: World, agent: AgentMaker) -> None:
    """R-051, I-30, I-31."""
    model = ScriptedModel([call("locate", f"c{n}") for n in range(3)], ["done"])
    session_id = world.started(agent(model, tools=[locate], max_open_calls=1))
    for n in range(3):
        assert [p.tool_call_id for p in pending(session_id)] == [f"c{n}"]
        world.submit(session_id, f"c{n}", result=n)
    world.drain()
    assert model.asked == 2 and list(model.results_seen()) == ["c0", "c1", "c2"]


def test_events_are_gapless_and_every_call_starts_and_ends_once(world: World, agent: AgentMaker) -> None:
    """R-513, R-518."""
    model = ScriptedModel([call("locate", "c1"), call("add", "s1", left=1, right=1)], ["done"])
    session_id = world.started(agent(model, tools=[locate, add]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    numbers = list(session_of(session_id).events.order_by("sequence").values_list("sequence", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    assert [e["toolCallId"] for e in events(session_id, "tool_start")] == ["s1", "c1"]
    assert [e["toolCallId"] for e in events(session_id, "tool_end")] == ["s1", "c1"]
    assert PendingCall.objects.filter(state="consumed").count() == 2
