"""R-323: of all that is wrong with a submit, the first step's refusal is answered.

Each request is wrong in the step that it proves and in the steps after it, as far as one request can be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from pytest_django.fixtures import Settings

from helix.agents import client_tool
from helix.models import CallAudit, PendingCall, Run, Session
from tests.api.conftest import Door, body_of, locate
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World

pytestmark = pytest.mark.django_db

LIMIT = 64
CAP = 4 * LIMIT
GOOD = {"toolCallId": "c1", "result": {"city": "Bern"}}
WRONG_KIND = {"kind": "approval-response", "toolCallId": "c1", "approvalId": "x", "approved": True}
TOO_LARGE = {"toolCallId": "c1", "result": "x" * LIMIT}
WRONG_RESULT = {"toolCallId": "c1", "result": {"town": 1}}


@pytest.fixture(autouse=True)
def small_limits(settings: Settings) -> None:
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    settings.HELIX_SUBMITS_PER_MINUTE = 3


def submit(door: Door, session_id: UUID, body: Any) -> tuple[int, dict[str, Any]]:
    response = door.raw(f"chat/{session_id}/submit-tool-result", body if isinstance(body, str) else json.dumps(body))
    return response.status_code, body_of(response)


def use_up_the_rate(door: Door, session_id: UUID) -> None:
    for _ in range(3):
        assert submit(door, session_id, TOO_LARGE)[0] == 413


def rows() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Session, Run, PendingCall, CallAudit)]


def test_step_1_nobody_learns_that_the_body_is_too_large(nobody: Door, waiting: UUID) -> None:
    status, body = submit(nobody, waiting, "{" * (CAP + 1))
    assert (status, body["code"]) == (401, "transport_unauthorized")


def test_step_2_a_body_over_the_cap_is_not_parsed(owner: Door, waiting: UUID) -> None:
    status, body = submit(owner, waiting, "{" * (CAP + 1))
    assert (status, body["cause"], body["limitBytes"], body["sizeBytes"]) == (413, "request_body", CAP, CAP + 1)


def test_step_3_a_malformed_body_does_not_count(owner: Door, waiting: UUID) -> None:
    use_up_the_rate(owner, waiting)
    status, body = submit(owner, waiting, {"toolCallId": "c1"})
    assert (status, body["code"]) == (400, "validation_error")


def test_step_4_the_rate_comes_before_the_result_and_before_the_session(owner: Door, world: World) -> None:
    """Nothing before step 6 reads a conversation's rows: the session need not even exist."""
    missing = uuid4()
    use_up_the_rate(owner, missing)
    status, body = submit(owner, missing, TOO_LARGE)
    assert (status, body["code"]) == (429, "rate_limited")


def test_step_5_the_result_is_measured_before_the_session_is_looked_for(owner: Door, world: World) -> None:
    """R-292."""
    status, body = submit(owner, uuid4(), TOO_LARGE)
    assert (status, body["cause"], body["limitBytes"], body["sizeBytes"]) == (413, "tool_result", LIMIT, LIMIT + 2)


def test_step_6_a_foreign_session_hides_everything_about_its_call(stranger: Door, waiting: UUID) -> None:
    assert submit(stranger, waiting, WRONG_KIND)[0] == 404


def test_step_7_a_consumed_call_is_over_whatever_is_wrong_with_the_answer(
    owner: Door, world: World, waiting: UUID
) -> None:
    assert submit(owner, waiting, GOOD)[0] == 200
    world.drain()
    status, body = submit(owner, waiting, WRONG_KIND)
    assert (status, body["status"], body["continuation"]["kind"]) == (200, "already_completed", "consumed")


def test_step_8_a_stop_comes_before_the_kind(owner: Door, world: World, waiting: UUID) -> None:
    """R-413."""
    world.stop(waiting)
    status, body = submit(owner, waiting, WRONG_KIND)
    assert (status, body["status"], body["reason"]) == (404, "unknown_tool_call", "run_stopped")


def test_step_9_a_stored_answer_comes_before_the_kind(owner: Door, waiting: UUID) -> None:
    assert submit(owner, waiting, GOOD)[0] == 200
    status, body = submit(owner, waiting, WRONG_KIND)
    assert (status, body["status"]) == (200, "already_completed")


def test_step_10_a_held_call_comes_before_the_kind(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-051."""
    model = ScriptedModel([call("locate", "c0"), call("locate", "c1")], ["ok"])
    session_id = world.started(agent(model, tools=[locate], max_open_calls=1))
    status, body = submit(owner, session_id, WRONG_KIND)
    assert (status, body["code"], body["retryable"]) == (409, "state_call_not_exposed", True)


def test_step_11_the_kind_comes_before_the_agent(owner: Door, waiting: UUID) -> None:
    Session.objects.filter(pk=waiting).update(agent_type="gone")
    status, body = submit(owner, waiting, WRONG_KIND)
    assert (status, body["code"]) == (400, "validation_error")


def test_step_12_the_agent_comes_before_the_schema(owner: Door, waiting: UUID) -> None:
    """R-074."""
    Session.objects.filter(pk=waiting).update(agent_type="gone")
    status, body = submit(owner, waiting, WRONG_RESULT)
    assert (status, body["code"]) == (404, "framework_agent_not_found")


def test_step_12_the_schema_comes_before_the_fence(owner: Door, waiting: UUID) -> None:
    """R-317."""
    status, body = submit(owner, waiting, {**WRONG_RESULT, "runId": str(uuid4())})
    assert (status, body["code"]) == (400, "INVALID_RESULT")
    assert (body["toolName"], body["toolCallId"]) == ("locate", "c1")


def test_step_13_a_run_that_the_call_never_had_is_refused(owner: Door, waiting: UUID) -> None:
    """R-068. Control: without the name, the same answer is stored."""
    status, body = submit(owner, waiting, {**GOOD, "runId": str(uuid4())})
    assert (status, body["code"]) == (409, "state_run_superseded")
    assert submit(owner, waiting, GOOD)[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        "{" * (CAP + 1),
        "{",
        json.dumps(TOO_LARGE),
        json.dumps(WRONG_KIND),
        json.dumps(WRONG_RESULT),
        json.dumps({**GOOD, "runId": "elsewhere"}),
    ],
)
def test_a_refused_submit_leaves_every_row_as_it_was(owner: Door, waiting: UUID, body: str) -> None:
    """R-292, R-317, R-321. Control: a corrected submit is accepted."""
    before = rows()
    assert submit(owner, waiting, body)[0] >= 400
    assert rows() == before
    assert submit(owner, waiting, GOOD)[1]["status"] == "accepted"


def test_an_unregistered_schema_accepts_any_json(
    owner: Door, world: World, agent: AgentMaker, settings: Settings
) -> None:
    """R-319, R-073: falsy results pass unchanged."""
    settings.HELIX_SUBMITS_PER_MINUTE = 60
    free = client_tool("free", description="Anything.", input_schema={"type": "object"})
    for value in (None, 0, "", False, [], {}):
        session_id = world.started(agent(ScriptedModel([call("free", "c1")], ["ok"]), tools=[free]))
        assert submit(owner, session_id, {"toolCallId": "c1", "result": value})[1]["status"] == "accepted"
        assert json.loads(PendingCall.objects.get(root_id=session_id).answer_json or "?") == value


Names = Callable[[UUID], dict[str, str]]


def test_a_session_named_twice_is_named_alike(owner: Door, waiting: UUID) -> None:
    """R-064. Control: the body may repeat the path."""
    assert submit(owner, waiting, {**GOOD, "sessionId": str(uuid4())})[1]["code"] == "validation_error"
    assert submit(owner, waiting, {**GOOD, "sessionId": str(waiting)})[1]["status"] == "accepted"
