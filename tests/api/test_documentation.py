"""The OpenAPI description says what the routes do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from helix import schemas
from helix.api.documentation import OPERATIONS
from helix.operations import OPERATIONS as PERFORMED
from tests.api.conftest import Door, body_of
from tests.kit.world import World, call_named

pytestmark = pytest.mark.django_db


def strict(schema: Any) -> Any:
    """OpenAPI 3.0 as JSON Schema: ``nullable`` becomes a type, and an object holds no undescribed needs."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: strict(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain


def test_every_operation_is_described() -> None:
    assert set(OPERATIONS) == set(PERFORMED)


def test_the_description_has_every_route(owner: Door, nobody: Door) -> None:
    assert nobody.get("schema").status_code == 401
    described = body_of(owner.get("schema"))
    operations = {one["operationId"]: one for path in described["paths"].values() for one in path.values()}
    assert {*PERFORMED, "chat-submit-tool-result"} <= set(operations)
    assert operations["start"]["security"] == [{"token": []}, {"login": []}]
    assert set(described["components"]["securitySchemes"]) == {"token", "login"}


def test_answers_are_as_described(owner: Door, world: World, waiting: UUID) -> None:
    session = {"sessionId": str(waiting)}
    point = body_of(owner.get(f"sessions/{waiting}/checkpoints"))["checkpoints"][0]["checkpointId"]
    agent_type = call_named(waiting, "locate").session.agent_type
    asked = {
        "status": owner.get("status", **session),
        "session": owner.get(f"sessions/{waiting}"),
        "events": owner.get(f"sessions/{waiting}/events"),
        "calls": owner.get(f"sessions/{waiting}/calls"),
        "checkpoints": owner.get(f"sessions/{waiting}/checkpoints"),
        "checkpoint": owner.get(f"sessions/{waiting}/checkpoints/{point}"),
        "sessions-list": owner.get("sessions"),
        "claim": owner.post(f"sessions/{waiting}/calls/c1/claim", {"claimant": "tab"}),
        "submit-tool-result": owner.post("submit-tool-result", {**session, "toolCallId": "c1", "error": "no"}),
        "resume": owner.post("resume", session),
        "interrupt": owner.post("interrupt", session),
        "messages": owner.post(f"sessions/{waiting}/messages", {"message": "again"}),
        "abort": owner.post("abort", session),
        "sessions-create": owner.post("sessions", {"agentType": agent_type}),
        "start": owner.post("start", {"agentType": agent_type, "message": "hello"}),
    }
    assert set(PERFORMED) - set(asked) == {"retry"}  # answers like resume
    for operation, response in asked.items():
        said = OPERATIONS[operation]
        assert response.status_code == said.status, operation
        assert schemas.violations(strict(said.gives), body_of(response)) == [], operation
