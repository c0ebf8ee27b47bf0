"""Reviewers with logins, and requests that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Assignment
from helix.agents import tool
from helix.models import PendingCall
from helix.principals import Principal, principal_of
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, call_named


class Person:
    """A login and the principal that it gives."""

    def __init__(self, username: str) -> None:
        self.user = User.objects.create_user(username, password=None)

    @property
    def principal(self) -> Principal:
        return principal_of(User.objects.get(pk=self.user.pk))

    def assigned(self, **scope: Any) -> Person:
        Assignment.objects.create(reviewer=self.user, **scope)
        return self

    def member_of(self, name: str) -> Group:
        group, _ = Group.objects.get_or_create(name=name)
        self.user.groups.add(group)
        return group


@pytest.fixture
def owner(db: None) -> Person:
    return Person("owner")


@pytest.fixture
def reviewer(db: None) -> Person:
    return Person("reviewer")


@pytest.fixture
def stranger(db: None) -> Person:
    return Person("stranger")


@tool(require_approval=True, summary="Pay {cents} to {who}: {unknown}")
def pay(cents: int, who: str) -> str:
    return f"paid {cents} to {who}"


@tool(require_approval=True, forbid_self_approval=True)
def wire_money(cents: int) -> str:
    return f"wired {cents}"


AskForApproval = Callable[..., PendingCall]


@pytest.fixture
def ask(world: World, agent: AgentMaker, owner: Person) -> AskForApproval:
    """``ask()``: a conversation of the owner's that waits for a verdict on a call of ``pay``; the call."""

    def asked(
        tool_name: str = "pay", *, by: Person | None = None, name: str | None = None, **arguments: Any
    ) -> PendingCall:
        arguments = arguments or ({"cents": 5, "who": "Ada"} if tool_name == "pay" else {"cents": 5})
        model = ScriptedModel([call(tool_name, **arguments)], ["done"])
        declared = agent(model, name=name, tools=[pay, wire_money])
        session_id = world.started(declared, principal=(by or owner).principal)
        return call_named(session_id, tool_name)

    return asked
