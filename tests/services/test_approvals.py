"""Approvals: asked before the body, bound to one call and one right, run once or not at all (5.F)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from helix import selectors, wire
from helix.agents import Agent, ApprovalRequest, Tool, ToolContext, tool
from helix.answers import MAX_REASON_BYTES
from helix.errors import AgentNotFound, UnknownToolCall, ValidationFailed
from helix.loop.execution import BodyResult
from helix.models import CallAudit, PendingCall
from helix.services.advance import bodies as body_service
from helix.statuses import AnswerKind, CallState
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import (
    OWNER,
    World,
    call_named,
    current_run,
    events,
    pending,
    results,
    session_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


def one_payment(number: int = 5) -> ScriptedModel:
    return ScriptedModel([call("pay", "p1", number=number)], ["done"])


def shown(session_id: UUID) -> dict[str, Any]:
    """The one pending call as a client or a reviewer reads it."""
    rows = selectors.snapshot_rows(OWNER, str(session_id))
    (one,) = [wire.pending_tool(waiting, rows.paths[waiting.session_id]) for waiting in rows.pending]
    return one


# -- the request -------------------------------------------------------------------------------------------------------


def test_a_gated_call_asks_before_its_body_and_tells_all_that_a_reviewer_needs(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-160, R-161."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    (request,) = events(session_id, "tool_approval_request")
    assert bodies.ran == []
    assert request["approvalId"] == f"{current_run(session_id).id}::p1" == asked.approval_id
    assert (request["toolCallId"], request["toolName"], request["input"]) == ("p1", "pay", {"number": 5})
    assert request["argumentsJson"] == '{"number":5}' and request["argumentsDigest"] == asked.arguments_digest
    assert request["deadlineAt"] == shown(session_id)["deadlineAt"] == "2026-03-08T12:00:00Z"


def test_invalid_arguments_are_never_asked_about(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-162: a reviewer sees only calls that could run; the valid sibling is asked about."""
    model = ScriptedModel([call("pay", "bad", number="five"), call("pay", "good", number=5)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    assert [request["toolCallId"] for request in events(session_id, "tool_approval_request")] == ["good"]
    assert results(session_id)["bad"]["errorCode"] == "validation_failed"


def test_the_question_is_asked_once_and_its_answer_is_stored(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-008, C-024: neither the decision nor the continuation asks the rule again."""
    asked: list[Any] = []

    def large(request: ApprovalRequest) -> bool:
        asked.append(request.arguments)
        return request.arguments["number"] > 3

    model = ScriptedModel([call("pay", "small", number=1), call("pay", "large", number=9)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=large)]))
    assert bodies.ran == [("pay", 1)] and [waiting.tool_call_id for waiting in pending(session_id)] == ["large"]
    world.decide(call_named(session_id, "pay"))
    world.drain()
    assert bodies.ran == [("pay", 1), ("pay", 9)]
    assert asked == [{"number": 1}, {"number": 9}]


def test_the_approval_id_survives_a_take_over_of_calls(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-161: the run changes, the id of what was asked does not."""
    declared = agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)], continue_on_submit=False)
    session_id = world.started(declared)
    before = call_named(session_id, "pay")
    world.decide(before)
    world.resume(session_id)
    after = call_named(session_id, "pay")
    assert after.run_id != before.run_id and after.approval_id == before.approval_id


# -- the binding -------------------------------------------------------------------------------------------------------


def test_a_verdict_is_bound_to_the_call_that_was_asked_about(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-163, R-164: another approval id stores nothing; the right one is accepted."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    with pytest.raises(ValidationFailed) as refused:
        world.submit(session_id, "p1", kind="approval-response", approvalId="another::p1", approved=True)
    assert refused.value.fields["cause"] == "approval_id"
    asked = call_named(session_id, "pay")
    assert asked.state == CallState.AWAITING and not CallAudit.objects.exists()
    assert world.decide(asked)["status"] == "accepted"


def test_nobody_can_tell_the_model_that_a_gated_tool_ran(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-165: a result for a pending approval is refused, and the approval still waits."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    with pytest.raises(ValidationFailed) as refused:
        world.submit(session_id, "p1", result="paid")
    assert refused.value.fields["cause"] == "kind"
    assert [waiting.tool_call_id for waiting in pending(session_id)] == ["p1"]
    assert world.decide(call_named(session_id, "pay"))["status"] == "accepted"


def test_an_error_alone_closes_an_approval_as_not_executed(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-166: the body never runs and the model reads why."""
    model = one_payment()
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    assert world.submit(session_id, "p1", error="the form was closed")["status"] == "accepted"
    world.drain()
    assert bodies.ran == []
    assert results(session_id)["p1"]["errorCode"] == "not_executed"
    assert "the form was closed" in model.results_seen()["p1"]


def test_a_verdict_does_not_fit_a_client_call(world: World, agent: AgentMaker) -> None:
    """R-167: refused, nothing stored; the result that the call waits for is accepted afterwards."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    with pytest.raises(ValidationFailed):
        world.submit(session_id, "c1", kind="approval-response", approvalId="any::c1", approved=True)
    assert [waiting.tool_call_id for waiting in pending(session_id)] == ["c1"]
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"


def test_a_verdict_without_its_fields_is_malformed(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-063: approvalId and approved are needed; what is optional may be left out."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    approval_id = call_named(session_id, "pay").approval_id
    for body in ({"approved": True}, {"approvalId": approval_id}, {"approvalId": approval_id, "approved": "yes"}):
        with pytest.raises(ValidationFailed):
            world.submit(session_id, "p1", kind="approval-response", **body)
    assert world.decide(call_named(session_id, "pay"))["status"] == "accepted"


def test_a_reason_holds_8192_bytes_and_not_one_more(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-176: UTF-8 bytes, so a two-byte letter counts twice."""
    model = one_payment()
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    longest = "é" * (MAX_REASON_BYTES // 2)
    with pytest.raises(ValidationFailed):
        world.decide(asked, approved=False, reason=longest + "x")
    assert world.decide(asked, approved=False, reason=longest)["status"] == "accepted"
    world.drain()
    assert longest in model.results_seen()["p1"]


# -- what a verdict does -----------------------------------------------------------------------------------------------


def test_approved_bodies_run_in_emission_order_before_the_model_is_asked(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-169: whatever the order of the verdicts."""
    model = ScriptedModel([call("pay", f"p{n}", number=n) for n in (1, 2, 3)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    for asked in reversed(pending(session_id)):
        world.decide(asked)
    assert bodies.ran == [] and model.asked == 1
    world.drain()
    assert bodies.ran == [("pay", 1), ("pay", 2), ("pay", 3)] and model.asked == 2
    assert list(model.results_seen()) == ["p1", "p2", "p3"]


def test_the_start_of_a_body_is_committed_before_its_first_instruction(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-169, P-13: seen from inside the body."""
    seen: list[tuple[str, bool]] = []

    @tool(require_approval=True)
    def pay(context: ToolContext) -> str:
        row = PendingCall.objects.get(tool_call_id=context.tool_call_id)
        seen.append((row.state, row.body_started_at is not None))
        return "paid"

    session_id = world.started(agent(ScriptedModel([call("pay", "p1")], ["done"]), tools=[pay]))
    world.decide(call_named(session_id, "pay"))
    # The body in this thread: the test's own transaction is not committed for any other.
    monkeypatch.setattr(body_service, "run_body", _run_here)
    world.drain()
    assert seen == [(CallState.EXECUTING, True)]


def _run_here(declared: Tool, arguments: dict[str, Any], context: ToolContext) -> BodyResult:
    assert declared.body is not None
    return BodyResult("result", value=declared.body(context=context, **arguments))


def test_a_denied_body_never_runs_and_the_turn_goes_on(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-170: the model reads the refusal with its reason; beside it the approved one ran."""
    model = ScriptedModel([call("pay", "no", number=1), call("pay", "yes", number=2)], ["I see."])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    denied, approved = pending(session_id)
    world.decide(denied, approved=False, reason="too dear")
    world.decide(approved)
    world.drain()
    assert bodies.ran == [("pay", 2)]
    assert results(session_id)["no"]["errorCode"] == "approval_denied"
    assert "too dear" in model.results_seen()["no"]
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_a_message_gives_pending_approvals_up_and_their_bodies_never_run(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-171, P-05: one model call reads the abandonment and then the message."""
    model = one_payment()
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    world.send(session_id, "never mind", abandon_pending=True)
    world.drain()
    assert bodies.ran == [] and model.asked == 2
    assert results(session_id)["p1"]["errorCode"] == "client_tool_abandoned"
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "tool", "user"]


def test_a_failed_run_keeps_what_was_decided_and_drops_what_was_not(
    world: World, agent: AgentMaker, bodies: Bodies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-172, R-565, P-09."""
    model = ScriptedModel([call("pay", "yes", number=1), call("pay", "open", number=2)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    decided, undecided = pending(session_id)
    world.decide(decided)
    # The lapse of the other call cannot be written: the run ends, and says why.
    monkeypatch.setattr("helix.services.deadlines.store_timeout", _broken)
    world.wait(days=8)
    decided.refresh_from_db()
    undecided.refresh_from_db()
    assert current_run(session_id).status == "failed"
    assert (decided.state, decided.answer_kind) == (CallState.ANSWERED, AnswerKind.APPROVED)
    assert (undecided.state, undecided.discard_reason) == (CallState.DISCARDED, "run_failed")
    with pytest.raises(UnknownToolCall) as refused:
        world.decide(undecided)
    assert refused.value.fields["reason"] == "run_failed" and bodies.ran == []


def _broken(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("cannot be written")


def test_a_message_waits_until_the_approved_body_has_its_result(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-173: results first, then the message, then one model call."""
    model = one_payment()
    declared = agent(model, tools=[bodies.tool("pay", require_approval=True)], continue_on_submit=False)
    session_id = world.started(declared)
    world.decide(call_named(session_id, "pay"))
    world.send(session_id, "and hurry")
    assert current_run(session_id).entry_message and bodies.ran == []
    world.drain()
    assert bodies.ran == [("pay", 5)] and model.asked == 2
    roles = [message.role for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "user"]


def test_a_vanished_tool_can_still_be_denied_but_not_approved(
    world: World, agent: AgentMaker, bodies: Bodies, settings: Settings
) -> None:
    """R-184: the approval is refused and the call stays pending; the denial ends it."""
    declared = agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)])
    session_id = world.started(declared)
    settings.HELIX_AGENTS = {declared.name: Agent(declared.name)}
    asked = call_named(session_id, "pay")
    with pytest.raises(AgentNotFound):
        world.decide(asked)
    assert call_named(session_id, "pay").state == CallState.AWAITING
    assert world.decide(asked, approved=False)["status"] == "accepted"
