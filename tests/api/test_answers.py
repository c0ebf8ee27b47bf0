"""Each answer to a submit in the table of 5.L, and the typed refusals of the other entries (F-9)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pytest_django.fixtures import Settings

from helix.models import PendingCall, Run, Session
from tests.api.conftest import Door, body_of, locate
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, pending, session_of, sweeping_since

pytestmark = pytest.mark.django_db

GOOD = {"toolCallId": "c1", "result": {"city": "Bern"}}


def submit(door: Door, session_id: UUID, **body: Any) -> tuple[int, dict[str, Any]]:
    response = door.post(f"chat/{session_id}/submit-tool-result", {**GOOD, **body})
    return response.status_code, body_of(response)


def test_a_stored_answer_is_accepted_and_its_repeat_is_not_new(owner: Door, waiting: UUID) -> None:
    """R-335, R-336, R-066: both carry the continuation."""
    status, first = submit(owner, waiting)
    assert (status, first["status"], first["continuation"]["kind"]) == (200, "accepted", "new_run")
    status, second = submit(owner, waiting, result={"city": "Basel"})
    assert (status, second) == (200, {**first, "status": "already_completed"})


def test_an_answer_after_a_consumed_timeout_is_late(owner: Door, world: World, waiting: UUID) -> None:
    """R-337."""
    sweeping_since(world.tick(minutes=6))
    world.sweep()
    world.drain()
    assert submit(owner, waiting) == (200, {"status": "late_answer_after_timeout"})


def test_each_kind_of_unknown_call_says_why_to_its_owner(
    owner: Door, world: World, agent: AgentMaker, waiting: UUID
) -> None:
    """R-338, R-339, R-353, B-26: `never_existed`, `run_stopped`, `expired`."""

    def reason(session_id: UUID, tool_call_id: str = "c1") -> str:
        status, body = submit(owner, session_id, toolCallId=tool_call_id)
        assert (status, body["status"], body["code"]) == (404, "unknown_tool_call", "unknown_tool_call")
        return body["reason"]

    assert reason(waiting, "c9") == "never_existed"
    world.stop(waiting)
    assert reason(waiting) == "run_stopped"

    other = world.started(agent(ScriptedModel([call("locate", "c1")], ["ok"]), tools=[locate]))
    assert submit(owner, other)[0] == 200
    world.drain()
    world.tick(days=2)
    assert reason(other) == "expired"


def test_a_call_whose_run_was_replaced_is_refused(owner: Door, world: World, waiting: UUID) -> None:
    """R-341: nothing is stored. The call stands on a run that is not its session's current one."""
    current = session_of(waiting).current_run
    assert current is not None
    before = Run.objects.create(
        session_id=waiting,
        number=99,
        turn=9,
        cause="execute",
        started_by="owner",
        status="completed",
        ended_at=world.now,
    )
    PendingCall.objects.update(run=before)
    status, body = submit(owner, waiting)
    assert (status, body["code"], body["retryable"]) == (409, "state_run_superseded", False)
    assert PendingCall.objects.get().state == "awaiting"
    PendingCall.objects.update(run=current)
    assert submit(owner, waiting)[0] == 200


def test_an_approval_id_of_another_request_is_a_validation_error(owner: Door, reviewed: UUID) -> None:
    """R-342, R-163. Control: its own id is accepted."""
    (call_,) = pending(reviewed)
    verdict = {"kind": "approval-response", "toolCallId": "p1", "approved": True}
    route = f"chat/{reviewed}/submit-tool-result"
    refused = owner.post(route, {**verdict, "approvalId": f"{call_.run_id}::p2"})
    assert (refused.status_code, body_of(refused)["code"]) == (400, "validation_error")
    assert owner.post(route, {**verdict, "approvalId": call_.approval_id}).status_code == 200


def test_a_result_that_violates_the_schema_names_its_tool(owner: Door, waiting: UUID) -> None:
    """R-343: the text is fixed, and reveals no schema."""
    status, body = submit(owner, waiting, result={"city": 7})
    assert (status, body) == (
        400,
        {
            "error": "The result does not fit the tool's output schema.",
            "code": "INVALID_RESULT",
            "retryable": False,
            "toolName": "locate",
            "toolCallId": "c1",
        },
    )


def test_a_result_that_is_too_large_names_both_sizes(owner: Door, waiting: UUID, settings: Settings) -> None:
    """R-345."""
    settings.HELIX_MAX_RESULT_BYTES = 30
    status, body = submit(owner, waiting, result={"city": "x" * 30})
    assert status == 413
    assert {key: body[key] for key in ("code", "retryable", "cause", "limitBytes", "sizeBytes")} == {
        "code": "validation_payload_too_large",
        "retryable": False,
        "cause": "tool_result",
        "limitBytes": 30,
        "sizeBytes": 41,
    }


def test_an_agent_that_is_gone_and_one_that_cannot_be_found_now(owner: Door, waiting: UUID, settings: Settings) -> None:
    """R-351, R-350, R-074: neither stores anything, and the call stays pending."""

    def unreachable(agent_type: str) -> None:
        raise ConnectionError("canary-lookup")

    agents = settings.HELIX_AGENTS if hasattr(settings, "HELIX_AGENTS") else None
    settings.HELIX_AGENTS = unreachable
    status, body = submit(owner, waiting)
    assert (status, body["code"], body["retryable"]) == (503, "framework_agent_resolution_failed", True)
    assert "canary" not in str(body)
    settings.HELIX_AGENTS = agents
    name = session_of(waiting).agent_type
    Session.objects.update(agent_type="gone")
    status, body = submit(owner, waiting)
    assert (status, body["code"], body["retryable"]) == (404, "framework_agent_not_found", False)
    Session.objects.update(agent_type=name)
    assert submit(owner, waiting)[0] == 200


def test_a_state_refusal_is_a_typed_conflict(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-352."""
    model = ScriptedModel([call("locate", "c0"), call("locate", "c1")], ["ok"])
    session_id = world.started(agent(model, tools=[locate], max_open_calls=1))
    status, body = submit(owner, session_id)
    assert (status, body["code"], body["retryable"]) == (409, "state_call_not_exposed", True)


def test_a_resume_with_nothing_to_do_names_the_last_run(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-360."""
    session_id = world.started(agent(ScriptedModel(["Good day."])))
    refused = owner.post("resume", {"sessionId": str(session_id)})
    assert (refused.status_code, body_of(refused)["code"]) == (409, "ALREADY_COMPLETED")
    assert body_of(refused)["runId"] == str(session_of(session_id).current_run_id)


def test_a_resume_of_a_partial_batch_names_what_is_missing(owner: Door, waiting: UUID) -> None:
    """R-101, R-102."""
    for more in ({}, {"message": "go on"}):
        refused = owner.post("resume", {"sessionId": str(waiting), **more})
        assert (refused.status_code, body_of(refused)["code"]) == (409, "state_not_resumable")
        assert (body_of(refused)["retryable"], body_of(refused)["toolCallIds"]) == (True, ["c1"])


def test_a_delegated_session_is_stopped_by_its_delegation_only(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-363."""
    name = agent(ScriptedModel([call("locate", "c1")], ["ok"]), tools=[locate]).name
    started = body_of(owner.post("start", {"agentType": name, "message": "hello", "delegationId": "d1"}))
    named = {"sessionId": started["sessionId"]}
    for route in ("interrupt", "abort"):
        assert owner.post(route, named).status_code == 400
        assert owner.post(route, {**named, "delegationId": "d2"}).status_code == 400
    assert owner.post("interrupt", {**named, "delegationId": "d1"}).status_code == 200


def test_a_scrubber_changes_the_error_before_it_is_stored(owner: Door, waiting: UUID, settings: Settings) -> None:
    """R-390, B-20: without one the error passes as given (R-072)."""
    settings.HELIX_SCRUB = lambda text: text.replace("canary", "…")
    response = owner.post(f"chat/{waiting}/submit-tool-result", {"toolCallId": "c1", "error": "lost the canary"})
    assert response.status_code == 200
    assert PendingCall.objects.get().answer_error == "lost the …"
