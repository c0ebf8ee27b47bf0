"""What people met after restarts and reloads elsewhere: here rows are enough, and nothing else is remembered."""

from __future__ import annotations

import pytest

from helix import jsontext, selectors
from helix.errors import NotResumable
from helix.models import Run, RunLease
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OPERATOR, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["submit", "decide", "resume", "message"])
def test_every_way_to_go_on_works_from_rows_alone(world: World, agent: AgentMaker, path: str) -> None:
    """C-046, C-047: what a list shows is enough to answer; hints are dropped, as if every process had ended."""
    bodies = Bodies()
    model = ScriptedModel([call("locate", "c1"), call("pay", "p1")], ["done"])
    tools = [locate, bodies.tool("pay", require_approval=True)]
    session_id = world.started(agent(model, tools=tools, continue_on_submit=path != "resume"))
    world.drop_hints()
    listed = {row.tool_call_id: row for row in selectors.pending_tools(session_of(session_id))}
    if path == "message":
        world.send(session_id, "never mind", abandon_pending=True)
    else:
        world.submit(session_id, listed["c1"].tool_call_id, result="here")
        world.decide(listed["p1"])
    if path == "resume":
        assert session_of(session_id).status == "queued"
        world.resume(session_id)
    world.drop_hints()
    world.sweep()
    world.drain()
    assert session_of(session_id).status == "idle" and model.asked == 2
    assert bodies.ran == ([] if path == "message" else [("pay", 0)])


def test_two_megabytes_of_arguments_are_decided_like_any(world: World, agent: AgentMaker) -> None:
    """C-048: shown in full, decided, and run as they are."""
    bodies = Bodies()
    text = "x" * 2_000_000
    model = ScriptedModel([call("pay", "p1", number=7, note=text)], ["done"])
    open_tool = bodies.tool("pay", require_approval=True, input_schema={"type": "object"})
    session_id = world.start(agent(model, tools=[open_tool]))
    world.drain()
    (shown,) = pending(session_id)
    assert jsontext.loads(shown.arguments_json)["note"] == text
    assert world.decide(shown, argumentsDigest=shown.arguments_digest)["status"] == "accepted"


def test_automatic_and_asked_calls_of_one_step_give_their_results_in_order(world: World, agent: AgentMaker) -> None:
    """C-049: auto, auto, ask, auto."""
    bodies = Bodies()
    auto, ask = bodies.tool("auto"), bodies.tool("ask", require_approval=True)
    names = ("auto", "auto", "ask", "auto")
    model = ScriptedModel([call(name, f"k{n}", number=n) for n, name in enumerate(names)], ["done"])
    session_id = world.started(agent(model, tools=[auto, ask]))
    world.decide(call_named(session_id, "ask"))
    world.drain()
    assert list(model.results_seen().values()) == ["auto 0", "auto 1", "ask 2", "auto 3"]


def test_a_nested_wait_goes_on_without_asking_any_model_again(world: World, agent: AgentMaker) -> None:
    """C-050, C-051, C-071: the approval is bound to the stored call; earlier steps are not run again."""
    bodies = Bodies()
    child_model = ScriptedModel([call("pay", "p1")], [call("__finish__", ok=True)])
    child = child_agent("teller", child_model, tools=[bodies.tool("pay", require_approval=True)])
    model = ScriptedModel([call("count", "s1")], [call("subagent__teller", "d1", task="pay")], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("count")], sub_agents=[child]))
    asked = (model.asked, child_model.asked)
    world.drop_hints()
    (approval,) = pending(session_id)
    world.decide(approval)
    assert (model.asked, child_model.asked) == asked == (2, 1)
    world.drain()
    assert (model.asked, child_model.asked) == (3, 2)
    assert bodies.ran == [("count", 0), ("pay", 0)] and session_of(session_id).status == "idle"


def test_whoever_waits_for_a_person_is_never_stuck_and_a_lost_body_always_is_settled(
    world: World, agent: AgentMaker
) -> None:
    """C-063, C-064: the sweeps leave a waiting run alone for a year; the control is a run whose worker was lost."""
    model = ScriptedModel([call("wait", "p1")], ["done"])
    gated = Bodies().tool("wait", require_approval=True, approval_timeout_ms=None)
    waiting = world.started(agent(model, tools=[gated]))
    lost = world.start(agent(ScriptedModel(["never heard"], ["done"])))
    run = current_run(lost)
    Run.objects.filter(pk=run.pk).update(status="running", epoch=1)
    RunLease.objects.create(run=run, holder="gone", epoch=1, renewed_at=world.now, expires_at=world.now)
    world.drop_hints()
    world.wait(days=365)
    world.drain()
    assert session_of(waiting).status == "awaiting_client_tool" and current_run(waiting).epoch == 1
    assert session_of(lost).status == "idle" and current_run(lost).epoch == 2


def test_a_message_beside_open_calls_is_refused_with_a_reason_and_the_approved_body_still_runs(
    world: World, agent: AgentMaker
) -> None:
    """C-068, C-066, C-067: refused without a trace; approve and deny go on together, each with its own end."""
    bodies = Bodies()
    pay = bodies.tool("pay", require_approval=True)
    model = ScriptedModel([call("pay", "p1", number=1), call("pay", "p2", number=2)], ["done"])
    session_id = world.started(agent(model, tools=[pay]))
    first, second = pending(session_id)
    world.decide(first)
    with pytest.raises(NotResumable) as refused:
        world.send(session_id, "and then?")
    assert refused.value.fields["toolCallIds"] == ["p2"]
    world.decide(second, approved=False)
    world.drain()
    assert bodies.ran == [("pay", 1)]
    assert results(session_id)["p2"]["errorCode"] == "approval_denied"
    ended = {event["toolCallId"]: event["settledAs"] for event in events(session_id, "tool_end")}
    assert ended == {"p1": "result", "p2": "denied"}
    assert [row.answer_kind for row in selectors.calls_page(session_of(session_id))] == ["approved", "denied"]
    assert selectors.reviewable_calls(OPERATOR).count() == 0
