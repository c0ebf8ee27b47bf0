"""``ws/inbox/``: told once at the start, and again when what waits for this person changes (I-34, I-49)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from pytest_django import Settings

from helix.agents import tool
from helix.principals import Principal
from helix.streaming import inbox
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, call_named
from tests.streaming.conftest import aside, opened

pytestmark = pytest.mark.django_db(transaction=True)


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


@pytest.fixture(autouse=True)
def in_no_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "CALM_SECONDS", 0)


async def test_an_approval_appears_with_its_exposure_and_leaves_with_its_decision(
    streaming_world: World, agent: AgentMaker
) -> None:
    """I-34, I-50: for the owner of the conversation and for an operator; a stranger hears nothing of it."""
    asking = agent(ScriptedModel([call("pay", cents=5)], ["done"]), tools=[pay])
    async with (
        opened("/ws/inbox/") as owner,
        opened("/ws/inbox/", who="operator") as operator,
        opened("/ws/inbox/", who="stranger") as stranger,
    ):
        empty = {"type": "inbox", "approvals": 0, "conversations": 0}
        assert [await each.frame() for each in (owner, operator, stranger)] == [empty] * 3
        session_id = await aside(streaming_world.started, asking)
        assert (await owner.frame()) == {"type": "inbox", "approvals": 1, "conversations": 1}
        assert (await operator.frame())["approvals"] == 1
        await aside(streaming_world.decide, await aside(call_named, session_id, "pay"))
        assert (await owner.frame()) == empty
        assert (await operator.frame())["approvals"] == 0
        # The answer to a ping comes next: nothing was told in between.
        await stranger.send({"type": "ping", "requestId": "p"})
        assert (await stranger.frame())["requestId"] == "p"


async def test_a_moved_deadline_is_a_change_though_nothing_is_counted_anew() -> None:
    one = inbox.Waiting(approvals=(("id", "exposed", "noon"),), conversations=())
    other = inbox.Waiting(approvals=(("id", "exposed", "night"),), conversations=())
    assert one != other and one.text() == other.text()


async def test_a_burst_is_waited_out_and_a_lost_wake_is_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """F-1: the pause ends by itself, and at once when something stirs."""
    monkeypatch.setattr(inbox, "REREAD_SECONDS", 0)
    async with asyncio.timeout(5):
        await inbox.pause(asyncio.Event())
    monkeypatch.setattr(inbox, "REREAD_SECONDS", 3600)
    stirred = asyncio.Event()
    waiting = asyncio.ensure_future(inbox.pause(stirred))
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.01)
    assert not waiting.done()
    stirred.set()
    async with asyncio.timeout(5):
        await waiting


async def test_a_token_of_one_session_covers_no_list(streaming_world: World, settings: Settings) -> None:
    """R-385."""
    settings.HELIX_AUTHENTICATE = lambda operation, request: Principal(id="owner", session_id="one")
    async with opened("/ws/inbox/") as client:
        assert await client.closing() == (4403, "transport_forbidden")


@pytest.mark.parametrize("frame", ["not json", '{"type":"abort","requestId":"r"}'])
async def test_the_inbox_understands_pings_only(streaming_world: World, frame: str) -> None:
    async with opened("/ws/inbox/") as client:
        await client.frame()
        await client.send(frame)
        assert await client.closing() == (4400, "validation_error")
