"""Resuming what is not complete: a refusal that changes nothing, a rewind that waits again, a stop that wins (5.D)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from helix.errors import HelixError, NotResumable
from helix.models import Checkpoint, Message, PendingCall, Run, Session, StreamEvent
from helix.services import rewind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import OWNER, World, current_run, pending, results, said, session_of

pytestmark = pytest.mark.django_db


def batch_of(world: World, agent: AgentMaker, size: int) -> tuple[UUID, ScriptedModel]:
    """A session that waits for calls c0, c1 and so on."""
    model = ScriptedModel([call("locate", f"c{n}") for n in range(size)], ["done"])
    return world.started(agent(model, tools=[locate])), model


def rows_of(session_id: UUID) -> list[Any]:
    """Every row of the session, column by column."""
    tables = (
        Session.objects.filter(root_id=session_id),
        Run.objects.filter(session_id=session_id),
        PendingCall.objects.filter(root_id=session_id),
        Message.objects.filter(session_id=session_id),
        StreamEvent.objects.filter(root_id=session_id),
        Checkpoint.objects.filter(session_id=session_id),
    )
    return [list(table.order_by("pk").values()) for table in tables]


def refused(session_id: UUID, resume: Callable[[], Any]) -> HelixError:
    """The refusal, and that every row is as it was."""
    before = rows_of(session_id)
    with pytest.raises(NotResumable) as caught:
        resume()
    assert rows_of(session_id) == before
    return caught.value


@pytest.mark.parametrize("mode", ["continue", "with_message", "send"])
def test_a_resume_of_a_partial_batch_is_refused_and_changes_no_row(world: World, agent: AgentMaker, mode: str) -> None:
    """R-101, R-102, R-111, R-112: it names the missing calls; their real answers count afterwards."""
    session_id, model = batch_of(world, agent, 3)
    world.submit(session_id, "c1", result=1)
    entries: dict[str, Callable[[], Any]] = {
        "continue": lambda: world.resume(session_id),
        "with_message": lambda: world.resume(session_id, mode="with_message", message=said("go on")),
        "send": lambda: world.send(session_id, "go on"),
    }
    refusal = refused(session_id, entries[mode])
    assert refusal.retryable and refusal.fields["toolCallIds"] == ["c0", "c2"]
    world.drain()
    assert model.asked == 1
    world.submit(session_id, "c0", result=0)
    world.submit(session_id, "c2", result=2)
    world.drain()
    assert list(model.results_seen().values()) == ["0", "1", "2"]
    assert "runtime_restarted" not in {part["errorCode"] for part in results(session_id).values()}


def test_a_rewind_to_a_partial_batch_suspends_again_at_once(world: World, agent: AgentMaker) -> None:
    """R-103: a new run, no model call, no invented result; the batch is then answered as usual."""
    session_id, model = batch_of(world, agent, 2)
    world.submit(session_id, "c0", result="first")
    point = Checkpoint.objects.get().checkpoint_id
    old = current_run(session_id)
    rewind.rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=point, now=world.now)
    world.sweep()
    world.drain()
    new = current_run(session_id)
    assert new.id != old.id and new.status == "suspended_client_tool" and model.asked == 1
    assert [p.tool_call_id for p in pending(session_id)] == ["c0", "c1"] and not results(session_id)
    for number in ("c0", "c1"):
        world.submit(session_id, number, result="again")
    world.drain()
    assert model.results_seen() == {"c0": "again", "c1": "again"} and model.asked == 2


def test_a_rewind_to_before_the_calls_asks_the_model_as_usual(world: World, agent: AgentMaker) -> None:
    """R-104: the control of the one above."""
    model = ScriptedModel(["Hello."], [call("locate", "c1")], ["Hello again."])
    session_id = world.started(agent(model, tools=[locate]))
    point = Checkpoint.objects.get().checkpoint_id
    world.send(session_id, "where am I?")
    world.drain()
    rewind.rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=point, now=world.now)
    world.drain()
    assert model.asked == 3 and not pending(session_id) and session_of(session_id).status == "idle"


def test_a_resume_that_meets_a_recorded_stop_settles_the_run_by_it(world: World, agent: AgentMaker) -> None:
    """R-110: without a model call, and kept although the resume is refused."""
    session_id, model = batch_of(world, agent, 1)
    Run.objects.filter(session_id=session_id).update(stop_kind="interrupt", stop_requested_at=world.now)
    with pytest.raises(NotResumable) as refusal:
        world.resume(session_id)
    assert refusal.value.fields["cause"] == "run_stopped"
    world.drain()
    assert session_of(session_id).status == "interrupted" and model.asked == 1
    assert results(session_id)["c0"]["errorCode"] == "run_stopped"
