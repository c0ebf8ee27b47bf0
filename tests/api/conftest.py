"""Doors for the cast: each client names its principal in a header that a hook of the tests believes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django.fixtures import Settings

from helix.agents import Agent, client_tool, tool
from helix.principals import Principal
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import OPERATOR, OWNER, REVIEWER, STRANGER, World

CAST = {principal.id: principal for principal in (OWNER, STRANGER, REVIEWER, OPERATOR)}
WHO = "X-Who"
CANARY = "canary-51c2"

locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object"},
    output_schema={"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
)


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


@tool(private=True)
def look_up(secret: str) -> str:
    """Look something up that no client may see."""
    return f"found {secret}"


def believe(operation: str, request: Any) -> Principal | None:
    """The hook of these tests."""
    return CAST.get(request.headers.get(WHO, ""))


class Door:
    """Short verbs over HTTP; ``who`` None is nobody. Paths are those of the contract, without the prefix."""

    def __init__(self, who: Principal | None, **defaults: Any) -> None:
        self.headers = {WHO: who.id} if who else {}
        self.client = Client(raise_request_exception=False, **defaults)

    def get(self, path: str, **query: Any) -> HttpResponse:
        return self.client.get(f"/api/{path}", query, headers=self.headers)

    def post(self, path: str, body: Any = None, **more: Any) -> HttpResponse:
        return self.raw(path, json.dumps({} if body is None else body), **more)

    def raw(self, path: str, text: str | bytes, *, content_type: str = "application/json", **more: Any) -> HttpResponse:
        return self.client.post(f"/api/{path}", text, content_type=content_type, headers=self.headers, **more)


def body_of(response: HttpResponse) -> dict[str, Any]:
    return json.loads(response.content)


@pytest.fixture(autouse=True)
def believed(settings: Settings) -> None:
    settings.HELIX_AUTHENTICATE = believe


@pytest.fixture
def owner() -> Door:
    return Door(OWNER)


@pytest.fixture
def stranger() -> Door:
    return Door(STRANGER)


@pytest.fixture
def operator() -> Door:
    return Door(OPERATOR)


@pytest.fixture
def nobody() -> Door:
    return Door(None)


@pytest.fixture
def waiting(world: World, agent: AgentMaker) -> UUID:
    """A conversation that waits for the client call ``c1``."""
    return world.started(agent(ScriptedModel([call("locate", "c1")], ["You are there."]), tools=[locate]))


@pytest.fixture
def reviewed(world: World, agent: AgentMaker) -> UUID:
    """A conversation that waits for a verdict on ``p1``."""
    return world.started(agent(ScriptedModel([call("pay", "p1", cents=5)], ["done"]), tools=[pay]))


@pytest.fixture
def talker(agent: AgentMaker) -> Callable[[], Agent]:
    """An agent that only talks."""
    return lambda: agent(ScriptedModel(["Good day."]))
