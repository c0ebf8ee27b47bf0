"""Deadlines of outside parties: resolved once, visible, lapsing without a request, and never for our own work (5.H)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction
from pytest_django import Settings

from helix import selectors, wire
from helix.agents import Agent
from helix.errors import Forbidden, UnknownToolCall
from helix.models import CallAudit, PendingCall
from helix.services import deadlines
from helix.statuses import CallState
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, client_tool, locate
from tests.kit.world import (
    OPERATOR,
    OWNER,
    STRANGER,
    T0,
    World,
    call_named,
    current_run,
    events,
    pending,
)

pytestmark = pytest.mark.django_db


def asking(*ids: str) -> ScriptedModel:
    return ScriptedModel([call("locate", one) for one in ids], ["done"])


def in_seconds(row: PendingCall) -> float | None:
    return None if row.deadline_at is None else (row.deadline_at - T0).total_seconds()


# -- resolved once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_tool", "on_agent", "seconds", "level"),
    [
        ({"client_tool_timeout_ms": 1000}, {"client_tool_timeout_ms": 2000}, 1, "tool"),
        ({}, {"client_tool_timeout_ms": 2000}, 2, "agent"),
        ({}, {}, 300, "setting"),
        ({"client_tool_timeout_ms": None}, {"client_tool_timeout_ms": 2000}, None, "tool"),
        ({}, {"client_tool_timeout_ms": None}, None, "agent"),
    ],
)
def test_a_client_call_waits_as_long_as_the_first_level_that_speaks_says(
    world: World, agent: AgentMaker, on_tool: Any, on_agent: Any, seconds: float | None, level: str
) -> None:
    """R-230, R-231, T-1: the decision is stored with its level; None speaks too."""
    session_id = world.started(agent(asking_for("measure"), tools=[client_tool("measure", **on_tool)], **on_agent))
    row = call_named(session_id, "measure")
    assert (in_seconds(row), row.wait_from) == (seconds, level)
    assert row.wait_ms == (None if seconds is None else seconds * 1000)


def asking_for(tool_name: str) -> ScriptedModel:
    return ScriptedModel([call(tool_name, "c1", timeout_ms=1, deadlineAt="2026-03-01T12:00:01Z")], ["done"])


@pytest.mark.parametrize(
    ("on_tool", "on_agent", "seconds", "level"),
    [
        ({"approval_timeout_ms": 1000}, {"approval_timeout_ms": 2000}, 1, "tool"),
        ({"client_tool_timeout_ms": 1000}, {"approval_timeout_ms": 2000}, 2, "agent"),
        ({}, {"client_tool_timeout_ms": 2000}, 604_800, "setting"),
        ({"approval_timeout_ms": None}, {"approval_timeout_ms": 2000}, None, "tool"),
        ({}, {"approval_timeout_ms": None}, None, "agent"),
    ],
)
def test_an_approval_has_a_policy_of_its_own(
    world: World, agent: AgentMaker, on_tool: Any, on_agent: Any, seconds: float | None, level: str
) -> None:
    """R-175, R-231, T-1."""
    tool = Bodies().tool("pay", require_approval=True, **on_tool)
    row = call_named(world.started(agent(ScriptedModel([call("pay", "p1")]), tools=[tool], **on_agent)), "pay")
    assert (in_seconds(row), row.wait_from) == (seconds, level)


def test_a_setting_of_none_means_no_deadline(world: World, agent: AgentMaker, settings: Settings) -> None:
    """R-175, R-230, C-039: weeks and years later both still wait, and both can be answered."""
    settings.HELIX_CLIENT_TOOL_TIMEOUT_MS = settings.HELIX_APPROVAL_TIMEOUT_MS = None
    model = ScriptedModel([call("locate", "c1"), call("pay", "p1")], ["done"])
    session_id = world.started(agent(model, tools=[locate, Bodies().tool("pay", require_approval=True)]))
    for days in (21, 3650):
        world.wait(days=days)
        assert [row.tool_call_id for row in pending(session_id)] == ["c1", "p1"]
    world.submit(session_id, "c1", result=1)
    assert world.decide(call_named(session_id, "pay"))["continuation"]["kind"] == "new_run"


def test_later_configuration_moves_neither_policy_nor_deadline(
    world: World, agent: AgentMaker, settings: Settings
) -> None:
    """R-231, B-36: what is in force is what was in force at registration; a later call gets the new policy."""
    model = ScriptedModel([call("locate", "c1")], [call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    settings.HELIX_CLIENT_TOOL_TIMEOUT_MS = 1000
    world.wait(seconds=299)
    assert [row.tool_call_id for row in pending(session_id)] == ["c1"]
    world.submit(session_id, "c1", result=1)
    world.drain()
    (second,) = pending(session_id)
    assert (second.deadline_at, second.wait_ms) == (world.tick(seconds=1), 1000)


def test_schema_and_retention_in_force_are_those_of_the_registration(
    world: World, agent: AgentMaker, settings: Settings
) -> None:
    """B-36, R-264: another declaration under the same name changes nothing for the call that waits."""
    numbers = client_tool("locate", output_schema={"type": "integer"})
    texts = client_tool("locate", output_schema={"type": "string"})
    declared = agent(asking("c1"), tools=[numbers], completed_tombstone_retention_ms=5000)
    session_id = world.started(declared)
    changed = Agent(declared.name, model=declared.model, tools=[texts], completed_tombstone_retention_ms=0)
    settings.HELIX_AGENTS = {declared.name: changed}
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"
    world.drain()
    world.tick(milliseconds=4999)
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"
    world.tick(milliseconds=1)
    with pytest.raises(UnknownToolCall):
        world.submit(session_id, "c1", result=1)


def test_a_deadline_is_an_absolute_instant_that_every_reader_sees(world: World, agent: AgentMaker) -> None:
    """R-231, R-528, C-037, T-6: in the pending tool, in the event of its exposure, and unchanged by time."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    world.tick(seconds=200)
    rows = selectors.snapshot_rows(OWNER, str(session_id))
    (shown,) = [wire.pending_tool(row, rows.paths[row.session_id]) for row in rows.pending]
    (started,) = events(session_id, "tool_start")
    assert shown["deadlineAt"] == started["deadlineAt"] == "2026-03-01T12:05:00Z"


def test_the_wait_begins_when_the_call_is_shown(world: World, agent: AgentMaker) -> None:
    """R-231, P-03, T-1: a held call never lapses; its whole wait begins at its exposure."""
    session_id = world.started(agent(asking("c1", "c2"), tools=[locate], max_open_calls=1))
    second = PendingCall.objects.get(tool_call_id="c2")
    assert second.deadline_at is None and second.wait_ms == 300_000
    world.wait(seconds=300)
    second.refresh_from_db()
    assert second.state == CallState.AWAITING and in_seconds(second) == 600
    assert current_run(session_id).status == "suspended_client_tool"


# -- none on our own work ----------------------------------------------------------------------------------------------


def test_the_database_refuses_a_deadline_on_our_own_work(world: World, agent: AgentMaker) -> None:
    """T-2: for server and sub-agent rows; a client row takes one."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    row = call_named(session_id, "locate")
    for kind in ("server", "subagent"):
        with pytest.raises(IntegrityError), transaction.atomic():
            PendingCall.objects.filter(pk=row.pk).update(kind=kind, deadline_at=T0)
    assert PendingCall.objects.filter(pk=row.pk).update(deadline_at=datetime(2030, 1, 1, tzinfo=UTC)) == 1


# -- moved by hand -----------------------------------------------------------------------------------------------------


def move(world: World, session_id: UUID, to: datetime | None, principal: Any = OPERATOR) -> None:
    deadlines.move_deadline(
        principal=principal, session_id=str(session_id), tool_call_id="c1", deadline_at=to, now=world.now, door="test"
    )


def test_an_operator_moves_a_deadline_or_removes_it(world: World, agent: AgentMaker) -> None:
    """R-241, T-6, B-31: audited, told to every reader, and in force."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    move(world, session_id, datetime(2026, 3, 1, 13, 0, tzinfo=UTC))
    world.wait(seconds=3599)
    assert len(pending(session_id)) == 1
    move(world, session_id, None)
    world.wait(days=3650)
    assert len(pending(session_id)) == 1
    told = [event["deadlineAt"] for event in events(session_id, "deadline_changed")]
    assert told == ["2026-03-01T13:00:00Z", None]
    first, second = CallAudit.objects.order_by("id")
    assert (first.action, first.actor, first.before, first.after) == (
        "move_deadline",
        "operator",
        {"deadlineAt": "2026-03-01T12:05:00Z"},
        {"deadlineAt": "2026-03-01T13:00:00Z"},
    )
    assert second.after == {"deadlineAt": None}


def test_nobody_else_moves_a_deadline_and_no_closed_call_has_one(world: World, agent: AgentMaker) -> None:
    """R-241, F-8: an owner is forbidden to, for a stranger the call is not there."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    with pytest.raises(Forbidden):
        move(world, session_id, None, OWNER)
    with pytest.raises(UnknownToolCall):
        move(world, session_id, None, STRANGER)
    world.submit(session_id, "c1", result=1)
    with pytest.raises(UnknownToolCall):
        move(world, session_id, None)
    assert not events(session_id, "deadline_changed")
