"""Verdicts that change arguments, and who may give any: what runs is exactly what was decided (5.F)."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from helix import jsontext
from helix.errors import ArgumentsChanged, Forbidden, UnknownToolCall, ValidationFailed
from helix.models import CallAudit, Message, PendingCall
from helix.principals import Principal
from helix.statuses import CallState
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.policy import DECIDER, DECIDERS_DECIDE
from tests.kit.tools import Bodies, locate
from tests.kit.world import (
    OPERATOR,
    OWNER,
    REVIEWER,
    STRANGER,
    World,
    call_named,
    current_run,
    events,
    pending,
    results,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([call("pay", "p1", number=5)], ["done"])


@pytest.fixture
def asked(world: World, agent: AgentMaker, bodies: Bodies, model: ScriptedModel) -> PendingCall:
    """A payment of 5 that waits for a verdict."""
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    return call_named(session_id, "pay")


def still_pending(asked: PendingCall) -> bool:
    asked.refresh_from_db()
    return asked.state == CallState.AWAITING and asked.answer_kind is None and not CallAudit.objects.exists()


# -- edited arguments --------------------------------------------------------------------------------------------------


def test_the_body_gets_the_edit_and_the_model_is_told(
    world: World, asked: PendingCall, bodies: Bodies, model: ScriptedModel
) -> None:
    """R-177, R-178, R-181, C-022: the note begins the result and holds the new text; the call in the log stays."""
    answer = world.decide(asked, editedArguments={"number": 3}, reason="half is enough")
    assert answer["status"] == "accepted"
    world.drain()
    assert bodies.ran == [("pay", 3)]
    seen = model.results_seen()["p1"]
    assert seen.startswith("A reviewer changed the arguments") and '{"number":3}' in seen and seen.endswith("pay 3")
    (assistant, *_) = Message.objects.filter(session_id=asked.session_id, role="assistant").order_by("position")
    assert [part["argumentsJson"] for part in assistant.parts if part["type"] == "tool_call"] == ['{"number":5}']
    assert model.asked == 2, "the model does not ask for the same again"


def test_an_edit_is_one_story_in_the_row_the_stream_and_the_audit(world: World, asked: PendingCall) -> None:
    """R-178, C-023: before and after are kept; the verdict in the stream says that it was edited."""
    world.decide(asked, editedArguments={"number": 3}, reason="half")
    (row,) = CallAudit.objects.all()
    assert row.action == "approve_edited" and row.actor == "operator"
    assert row.before == {"argumentsJson": '{"number":5}'}
    assert row.after == {"argumentsJson": '{"number":3}', "reason": "half"}
    asked.refresh_from_db()
    assert (asked.arguments_json, asked.edited_arguments_json) == ('{"number":5}', '{"number":3}')
    (told,) = events(asked.root_id, "call_answered")
    assert (told["approved"], told["edited"], told["approvalId"]) == (True, True, asked.approval_id)


@pytest.mark.parametrize("edited", [{"number": "three"}, {"number": None}])
def test_an_edit_obeys_the_schema(world: World, asked: PendingCall, edited: dict[str, Any]) -> None:
    """R-177: a violation stores nothing; the plain approval is accepted afterwards."""
    with pytest.raises(ValidationFailed) as refused:
        world.decide(asked, editedArguments=edited)
    assert refused.value.fields["cause"] == "edited_arguments"
    assert still_pending(asked)
    assert world.decide(asked)["status"] == "accepted"


def test_an_edit_obeys_the_schema_also_where_the_models_arguments_need_not(
    world: World, agent: AgentMaker, bodies: Bodies, model: ScriptedModel
) -> None:
    """R-177, R-020."""
    tool = bodies.tool("pay", require_approval=True, validate_arguments=False)
    asked = call_named(world.started(agent(model, tools=[tool])), "pay")
    with pytest.raises(ValidationFailed):
        world.decide(asked, editedArguments={"number": "three"})
    assert world.decide(asked, editedArguments={"number": 3})["status"] == "accepted"


@pytest.mark.parametrize(
    "body",
    [
        {"approved": False, "editedArguments": {"number": 3}},
        {"approved": True, "editedArguments": "number=3"},
        {"approved": True, "editedArguments": [3]},
    ],
)
def test_an_edit_is_an_object_beside_an_approval(world: World, asked: PendingCall, body: dict[str, Any]) -> None:
    """R-177: with a denial, or of another shape, it is refused and the call stays pending."""
    with pytest.raises(ValidationFailed):
        world.submit(asked.root_id, "p1", kind="approval-response", approvalId=asked.approval_id, **body)
    assert still_pending(asked)


def test_no_verdict_names_another_tool(world: World, agent: AgentMaker, bodies: Bodies, model: ScriptedModel) -> None:
    """R-177, R-085, C-021: a name in the body changes nothing; the tool that was asked about runs."""
    tools = [bodies.tool("pay", require_approval=True), bodies.tool("wipe")]
    asked = call_named(world.started(agent(model, tools=tools)), "pay")
    world.decide(asked, toolName="wipe", editedArguments={"number": 3}, role="system", status="completed")
    world.drain()
    assert bodies.ran == [("pay", 3)]


# -- the digest --------------------------------------------------------------------------------------------------------


def test_a_verdict_on_other_arguments_than_those_shown_is_refused(
    world: World, asked: PendingCall, bodies: Bodies
) -> None:
    """R-179, R-181, C-020, C-028: nothing is stored, the digest in force is told, and with it the verdict counts."""
    with pytest.raises(ArgumentsChanged) as refused:
        world.decide(asked, argumentsDigest=jsontext.digest('{"number":50}'))
    assert refused.value.fields["argumentsDigest"] == asked.arguments_digest
    assert still_pending(asked)
    assert world.decide(asked, argumentsDigest=asked.arguments_digest)["status"] == "accepted"
    world.drain()
    assert bodies.ran == [("pay", 5)]


def test_the_digest_is_of_the_exact_text_that_the_model_wrote(asked: PendingCall) -> None:
    """R-179, R-053: SHA-256 of its UTF-8 bytes."""
    assert asked.arguments_digest == jsontext.digest(asked.arguments_json) and len(asked.arguments_digest) == 64


# -- the right to decide -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [STRANGER, REVIEWER])
def test_out_of_reach_looks_like_a_missing_call(world: World, asked: PendingCall, who: Principal) -> None:
    """R-180: the same body as for a call that never was, without a reason; its owner may decide it."""
    with pytest.raises(UnknownToolCall) as refused:
        world.decide(asked, principal=who)
    with pytest.raises(UnknownToolCall) as missing:
        world.submit(asked.root_id, "nothing", principal=who, kind="approval-response", approvalId="x", approved=True)
    assert refused.value.as_body() == missing.value.as_body()
    assert "reason" not in refused.value.as_body() and still_pending(asked)
    assert world.decide(asked, principal=OWNER)["status"] == "accepted"


def test_in_reach_but_not_entitled_is_forbidden(world: World, asked: PendingCall, settings: Settings) -> None:
    """R-180: cause not_permitted, nothing stored; somebody entitled decides the same call."""
    settings.HELIX_APPROVAL_POLICY = DECIDERS_DECIDE
    for principal in (REVIEWER, OWNER):
        with pytest.raises(Forbidden) as refused:
            world.decide(asked, principal=principal)
        assert refused.value.fields["cause"] == "not_permitted" and still_pending(asked)
    assert world.decide(asked, principal=DECIDER)["status"] == "accepted"


def test_a_right_that_is_gone_when_the_verdict_comes_does_not_count(
    world: World, asked: PendingCall, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-180, C-026: it is asked inside the deciding transaction, not when the call was found."""
    settings.HELIX_APPROVAL_POLICY = DECIDERS_DECIDE
    monkeypatch.setattr("tests.kit.policy.DecidersDecide.may_decide", lambda self, principal, call: False)
    with pytest.raises(Forbidden):
        world.decide(asked, principal=DECIDER)
    assert still_pending(asked)


def test_a_reviewer_reaches_approvals_and_no_client_call(world: World, agent: AgentMaker, settings: Settings) -> None:
    """R-180, R-398: what was not exposed to a reviewer looks missing."""
    settings.HELIX_APPROVAL_POLICY = DECIDERS_DECIDE
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    with pytest.raises(UnknownToolCall):
        world.submit(session_id, "c1", principal=DECIDER, result=1)
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"


def test_whoever_started_the_turn_may_be_barred_from_deciding_it(
    world: World, agent: AgentMaker, bodies: Bodies, model: ScriptedModel
) -> None:
    """R-023, R-180: cause self_approval, nothing stored; another entitled principal decides."""
    tool = bodies.tool("pay", require_approval=True, forbid_self_approval=True)
    asked = call_named(world.started(agent(model, tools=[tool])), "pay")
    for approved in (True, False):
        with pytest.raises(Forbidden) as refused:
            world.decide(asked, principal=OWNER, approved=approved)
        assert refused.value.fields["cause"] == "self_approval" and still_pending(asked)
    assert world.decide(asked, principal=OPERATOR)["status"] == "accepted"


def test_the_ban_follows_the_turn_and_not_the_owner(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-023: an operator who wrote the message is barred; the owner of the conversation is not."""
    model = ScriptedModel(["hello"], [call("pay", "p1", number=5)], ["done"])
    tool = bodies.tool("pay", require_approval=True, forbid_self_approval=True)
    session_id = world.started(agent(model, tools=[tool]))
    world.send(session_id, "pay it", principal=OPERATOR)
    world.drain()
    (asked,) = pending(session_id)
    with pytest.raises(Forbidden):
        world.decide(asked, principal=OPERATOR)
    assert world.decide(asked, principal=OWNER)["status"] == "accepted"


def test_the_ban_survives_a_change_of_the_declaration(
    world: World, agent: AgentMaker, bodies: Bodies, model: ScriptedModel
) -> None:
    """R-023, B-36: it is a column of the call, copied when the call was registered."""
    tool = bodies.tool("pay", require_approval=True, forbid_self_approval=True)
    asked = call_named(world.started(agent(model, tools=[tool])), "pay")
    object.__setattr__(tool, "forbid_self_approval", False)
    with pytest.raises(Forbidden):
        world.decide(asked, principal=OWNER)
    assert asked.forbid_self_approval


# -- the order of refusals ---------------------------------------------------------------------------------------------


def test_refusals_come_in_the_order_of_the_contract(world: World, asked: PendingCall, settings: Settings) -> None:
    """R-323, R-168: kind, approval id, right, digest, schema; each hides the next and none stores anything."""
    settings.HELIX_APPROVAL_POLICY = DECIDERS_DECIDE
    wrong: dict[str, Any] = {
        "kind": "approval-response",
        "approvalId": "another",
        "approved": True,
        "editedArguments": {"number": "three"},
        "argumentsDigest": "0" * 64,
    }

    def refused(principal: Principal, **body: Any) -> tuple[str, Any]:
        with pytest.raises((ValidationFailed, Forbidden, ArgumentsChanged)) as refusal:
            world.submit(asked.root_id, "p1", principal=principal, **body)
        assert still_pending(asked)
        return refusal.value.code, refusal.value.fields.get("cause")

    assert refused(OWNER, result=1) == ("validation_error", "kind")
    assert refused(REVIEWER, **wrong) == ("validation_error", "approval_id")
    wrong["approvalId"] = asked.approval_id
    assert refused(REVIEWER, **wrong) == ("transport_forbidden", "not_permitted")
    assert refused(DECIDER, **wrong) == ("state_arguments_changed", None)
    del wrong["argumentsDigest"]
    assert refused(DECIDER, **wrong) == ("validation_error", "edited_arguments")


def test_a_verdict_after_the_stop_of_its_run_gets_a_typed_answer(
    world: World, asked: PendingCall, bodies: Bodies
) -> None:
    """C-033, R-413: the run is over; nothing is stored, the body never runs, the log says why."""
    world.stop(asked.root_id)
    with pytest.raises(UnknownToolCall) as refused:
        world.decide(asked)
    assert refused.value.fields["reason"] == "run_stopped"
    assert current_run(asked.root_id).status == "interrupted"
    assert results(asked.root_id)["p1"]["errorCode"] == "run_stopped" and bodies.ran == []
