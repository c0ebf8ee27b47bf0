"""What is past its age goes: expired conversations, old events; and what is left keeps its shape."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from helix import selectors, tasks
from helix.agents import Agent
from helix.errors import CursorTooOld, NotFound
from helix.models import CallOwnership, Message, PendingCall, Run, Session, StreamEvent, UsageRecord
from helix.services import reap, retention
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import child_agent, locate
from tests.kit.world import OWNER, T0, World, events, session_of

pytestmark = pytest.mark.django_db


def expire(session_id: UUID) -> None:
    Session.objects.filter(pk=session_id).update(expires_at=T0 + timedelta(days=1))


def test_an_expired_conversation_is_stopped_and_every_row_of_it_removed(world: World, agent: AgentMaker) -> None:
    """R-048: with its children, and beside one that lives on."""
    expired, kept = (world.started(waiting_parent(agent, name)) for name in ("one", "other"))
    assert {row.tool_call_id for row in PendingCall.objects.filter(root_id=expired)} >= {"c1", "deep"}
    expire(expired)
    world.tick(days=2)
    world.sweep()
    of_tree = ((Session, "root"), (Run, "session__root"), (Message, "session__root"), (PendingCall, "root"))
    for table, path in of_tree:
        assert not table._default_manager.filter(**{path: expired}).exists()
        assert table._default_manager.filter(**{path: kept}).exists()
    assert not CallOwnership.objects.filter(root_id=expired).exists()
    with pytest.raises(NotFound):
        selectors.session_for(OWNER, str(expired))


def waiting_parent(agent: AgentMaker, name: str) -> Agent:
    """An agent that waits for a client call of its own and for one of its child."""
    child = child_agent(f"{name}-helper", ScriptedModel([call("locate", "deep")]), tools=[locate])
    model = ScriptedModel([call("locate", "c1"), call(f"subagent__{name}-helper", "s1", task="look")])
    return agent(model, name=name, tools=[locate], sub_agents=[child])


def test_a_conversation_is_kept_until_its_instant_and_for_ever_without_one(world: World, agent: AgentMaker) -> None:
    """R-048: the control."""
    model = ScriptedModel(["hi"])
    mortal, eternal = world.started(agent(model)), world.started(agent(model))
    expire(mortal)
    world.tick(days=1, seconds=-1)
    call_command("helix_reap", verbosity=0)
    assert Session.objects.count() == 2
    world.tick(seconds=1)
    call_command("helix_reap", verbosity=0)
    assert list(Session.objects.values_list("id", flat=True)) == [eternal]


def test_a_conversation_whose_life_was_lengthened_meanwhile_is_kept(world: World, agent: AgentMaker) -> None:
    """R-048: the sweep found it expired; what counts is what the row says under the lock. Control: it expires again."""
    session_id = world.started(agent(ScriptedModel(["hi"])))
    expire(session_id)
    world.tick(days=2)
    assert [found for found, _ in reap.expired_roots(now=world.now)] == [session_id]
    Session.objects.filter(pk=session_id).update(expires_at=world.now + timedelta(days=1))
    assert reap.reap_batch(root_id=session_id, now=world.now) == 0
    assert events(session_id) != []
    world.tick(days=1)
    while reap.reap_batch(root_id=session_id, now=world.now):
        pass
    assert not Session.objects.exists()
    assert reap.reap_batch(root_id=session_id, now=world.now) == 0


def test_a_conversation_may_be_given_its_life_when_it_begins(world: World, agent: AgentMaker) -> None:
    """R-048: created or started; a repeated start gives no new life."""
    model = ScriptedModel(["hi"])
    created = world.create(agent(model), expires_after=timedelta(hours=1))
    declared = agent(model)
    started = world.start(declared, session_id="desk", expires_after=timedelta(hours=2))
    world.start(declared, session_id="desk", expires_after=timedelta(days=1))
    lives = dict(Session.objects.values_list("id", "expires_at"))
    assert lives == {created: T0 + timedelta(hours=1), started: T0 + timedelta(hours=2)}


def test_old_usage_goes_in_batches_and_what_is_younger_stays(
    world: World, agent: AgentMaker, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HELIX_USAGE_RETENTION_DAYS, exact to the millisecond; without it usage is kept for ever."""
    monkeypatch.setattr(retention, "BATCH", 2)
    session_id = world.started(agent(ScriptedModel(["hi"])))
    now = int(T0.timestamp() * 1000)
    UsageRecord.objects.all().delete()
    UsageRecord.objects.bulk_create(
        UsageRecord(root_id=session_id, session_id=session_id, timestamp=now + at, kind="custom", source_type=str(at))
        for at in (-3, -2, -1, 0, 1)
    )
    world.tick(days=7)
    assert tasks.sweep_usage(world.now) == 0
    settings.HELIX_USAGE_RETENTION_DAYS = 7
    assert tasks.run_sweeps(world.clock)["sweep_usage"] == 3
    assert sorted(UsageRecord.objects.values_list("source_type", flat=True)) == ["0", "1"]
    assert tasks.sweep_usage(world.now) == 0


def test_old_events_go_from_the_beginning_and_the_stream_goes_on_without_a_gap(
    world: World, agent: AgentMaker, settings: Any
) -> None:
    """R-368, R-518: a cursor below the floor is told so; one above it reads on."""
    settings.HELIX_EVENT_RETENTION_DAYS = 7
    session_id = world.started(agent(ScriptedModel(["one"], ["two"])))
    last_old = session_of(session_id).stream_sequence
    world.tick(days=8)
    world.sweep()
    assert events(session_id) == []
    world.send(session_id, "again")
    world.drain()
    rows = StreamEvent.objects.filter(root_id=session_id).order_by("sequence")
    assert rows[0].sequence == last_old + 1
    with pytest.raises(CursorTooOld) as refused:
        selectors.events_after(session_id, last_old - 1)
    assert refused.value.fields == {"floorSequence": last_old + 1}
    assert selectors.events_after(session_id, last_old)[0].sequence == last_old + 1


def test_without_a_setting_events_are_kept(world: World, agent: AgentMaker) -> None:
    """The control."""
    session_id = world.started(agent(ScriptedModel(["one"])))
    before = len(events(session_id))
    world.tick(days=3650)
    world.sweep()
    assert len(events(session_id)) == before
