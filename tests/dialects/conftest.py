"""A world whose commits reach the streams of the test, and pages that talk to its agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest
from pytest_django import Settings

from helix import nudges, wakes
from helix.agents import client_tool, tool
from helix.principals import Principal
from tests.dialects.page import ChatPage
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel
from tests.kit.world import OPERATOR, OWNER, REVIEWER, STRANGER, World

CAST = {each.id: each for each in (OWNER, STRANGER, REVIEWER, OPERATOR)}

locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object"},
    output_schema={"type": "string"},
)
pick = client_tool("pick", description="Something that the user picks.", input_schema={"type": "object"})


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


@tool
def look_up(order: str) -> dict[str, str]:
    """Look an order up."""
    return {"order": order}


def says_who(operation: str, request: HttpRequest) -> Principal | None:
    """The hook of these tests: ``Authorization: Bearer owner`` is the owner; ``bound`` is held to the chat ``mine``."""
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if name == "bound":
        return Principal(id="owner", session_id="mine")
    return CAST.get(name)


@pytest.fixture
def chat_world(transactional_db: None, world: World, settings: Settings) -> Iterator[World]:
    """Commits are real, and their wakes go where those of a server go."""
    settings.HELIX_AUTHENTICATE = says_who
    settings.HELIX_APPROVAL_POLICY = "helix.policy.OwnerDecides"
    recorded = nudges.send_to_readers
    nudges.send_to_readers = wakes.publish
    yield world
    nudges.send_to_readers = recorded


PageMaker = Callable[..., ChatPage]


@pytest.fixture
def page(chat_world: World, agent: AgentMaker) -> PageMaker:
    """``page([call("locate", "c1")], ["done"])``: a tab with a new chat whose model answers in these steps."""

    def make(*steps: Any, chat: str = "mine", **options: Any) -> ChatPage:
        options.setdefault("tools", [locate, pick, pay, look_up])
        made = agent(ScriptedModel(*steps), **options)
        return ChatPage(chat_world, chat, agent_type=made.name)

    return make
