"""The console's cast as people who log in, and conversations with something to look at."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from helix.agents import client_tool, tool
from helix.models import PendingCall
from helix.rows.runs import LostFence
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, call_named

CANARY = "canary-7f3a"

locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object"},
    output_schema={"type": "object", "required": ["city"]},
)


@tool(private=True)
def look_up(secret: str) -> str:
    """Look something up that no client may see."""
    return f"found {secret}"


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


def staff(name: str, *permissions: str) -> Client:
    """A browser in which a member of staff with these permissions of the core is logged in."""
    user = User.objects.create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="helix", codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(world: World) -> Client:
    return staff("operator", "operate")


@pytest.fixture
def trusted_operator(world: World) -> Client:
    """An operator who may see the values of private tools."""
    return staff("trusted", "operate", "view_private_values")


@pytest.fixture
def spectator(world: World) -> Client:
    """Staff without the right to operate, who may look at calls and sessions."""
    return staff("spectator", "view_session", "view_pendingcall", "view_callaudit", "view_private_values")


@pytest.fixture
def stranger(world: World) -> Client:
    """Staff of another application."""
    return staff("stranger")


@pytest.fixture
def waiting(world: World, agent: AgentMaker) -> PendingCall:
    """A client call that waits for its answer."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    return call_named(session_id, "locate")


@pytest.fixture
def private(world: World, agent: AgentMaker) -> PendingCall:
    """A call of a private server tool that has run, with the canary in its arguments."""
    model = ScriptedModel([call("look_up", "p1", secret=CANARY)], ["done"])
    return call_named(world.started(agent(model, tools=[look_up])), "look_up")


@pytest.fixture
def executing(world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch) -> PendingCall:
    """A body whose worker vanished in the middle: the call executes, and the lease is fresh for 30 more seconds."""

    def vanish(*_: Any) -> NoReturn:
        raise LostFence("the process is gone")

    @tool
    def ponder() -> str:
        """Think for a long time."""
        return "thought"

    session_id = world.start(agent(ScriptedModel([call("ponder", "b1")], ["done"]), tools=[ponder]))
    with monkeypatch.context() as patched:
        patched.setattr("helix.services.advance.bodies.run_body", vanish)
        world.drain()
    found = call_named(session_id, "ponder")
    assert found.state == "executing"
    return found
