"""A message while a turn is live: refused by the lease and not by a guess, and it reaches neither log nor model (5)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from uuid import UUID

import pytest

from helix.errors import AlreadyRunning, HelixError, NotResumable
from helix.loop import CancelToken
from helix.models import Message, Run
from helix.services.advance import advance_run
from helix.statuses import SESSION_AT_REST, SESSION_BUSY, SESSION_BUTTONS, SessionStatus, StopKind
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, another_process, working
from tests.kit.interleave import meet
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, current_run, session_of

pytestmark = pytest.mark.django_db(transaction=True)

LIFE = timedelta(seconds=30)
AGES = timedelta(days=3650)
Place = Callable[[], AbstractContextManager[None]]


def refused(world: World, session_id: UUID) -> None:
    """A message is refused, with nothing appended and nothing queued."""
    before = (Message.objects.count(), Run.objects.count())
    with pytest.raises(AlreadyRunning) as refusal:
        world.send(session_id, "meanwhile")
    assert (refusal.value.code, refusal.value.status) == ("state_already_running", 409)
    assert (Message.objects.count(), Run.objects.count()) == before


@pytest.mark.parametrize(
    ("where", "gone"),
    [(nullcontext, timedelta(0)), (nullcontext, AGES), (another_process, LIFE - timedelta(milliseconds=1))],
    ids=["own fresh", "own past the bound", "foreign within"],
)
def test_a_message_to_a_live_turn_is_refused(world: World, agent: AgentMaker, where: Place, gone: timedelta) -> None:
    """L-9, L-6, Q-36, Q-37, Q-38: judged by the lease where another process works, and never where we do."""
    gate = ModelGate()
    model = ScriptedModel(["first", gate.hold()], ["second"])
    session_id = world.start(agent(model))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate):
        world.now += gone
        with where():
            refused(world, session_id)
        assert model.asked == 1 and not world.hints
    world.send(session_id, "now")
    world.drain()
    assert model.asked == 2


def test_a_message_to_a_lost_turn_is_accepted(world: World, agent: AgentMaker) -> None:
    """L-9, L-8, RT-20, Q-38: foreign and past its lease. The lost run is interrupted, exactly one new one answers."""
    gate = ModelGate()
    model = ScriptedModel(["first", gate.hold()], ["second"])
    session_id = world.start(agent(model))
    lost = current_run(session_id)
    world.drop_hints()
    with working(world, lost.id, gate):
        world.now += LIFE
        with another_process():
            world.send(session_id, "is anybody there?")
            world.drain()
        assert Run.objects.get(pk=lost.id).status == "interrupted" and model.asked == 2
        assert session_of(session_id).status == "idle"
    said = Message.objects.filter(session_id=session_id).order_by("position")
    assert [m.parts[0]["text"] for m in said] == ["hello", "is anybody there?", "second"]


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_messages_to_a_lost_turn_one_is_accepted(world: World, agent: AgentMaker, swapped: bool) -> None:
    """L-9: they race for the lock."""
    gate = ModelGate()
    model = ScriptedModel(["first", gate.hold()], ["second"])
    session_id = world.start(agent(model))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate):
        world.now += LIFE
        with another_process():
            outcomes = meet(
                lambda: world.send(session_id, "left"), lambda: world.send(session_id, "right"), swapped=swapped
            )
            world.drain()
    loser, winner = outcomes if swapped else outcomes[::-1]
    assert isinstance(loser, AlreadyRunning) and not isinstance(winner, HelixError)
    said = Message.objects.filter(session_id=session_id, role="user").order_by("position")
    assert [m.parts[0]["text"] for m in said] == ["hello", "right" if swapped else "left"] and model.asked == 2


@pytest.mark.parametrize("kind", ["tool", "round of tools"])
def test_however_long_our_own_tools_take(world: World, agent: AgentMaker, kind: str) -> None:
    """Q-37, Q-01: a long tool, and a round of tools, with logical time far past the lease."""
    gates = [BodyGate(), BodyGate()]
    rounds = [call("hold", "s1")] if kind == "tool" else [call("hold", "s1"), call("other", "s2")]
    model = ScriptedModel(rounds, ["done"])
    session_id = world.start(agent(model, tools=[gates[0].tool(), gates[1].tool("other")]))
    world.drop_hints()
    with working(world, current_run(session_id).id, *gates):
        for gate in gates[: len(rounds)]:
            gate.entered.wait()
            world.now += AGES
            refused(world, session_id)
            gate.release()
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_a_message_to_a_queued_stopping_or_waiting_session_is_refused(world: World, agent: AgentMaker) -> None:
    """L-9, Q-36: queued and stopping are live; awaiting is told which calls are missing (R-463)."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["first", gate.hold()])))
    refused(world, session_id)
    world.drop_hints()
    with working(world, current_run(session_id).id, gate), another_process():
        world.stop(session_id)
        assert session_of(session_id).status == "stopping"
        refused(world, session_id)
    waiting = world.started(agent(ScriptedModel([call("locate", "c1")]), tools=[locate]))
    with pytest.raises(NotResumable) as refusal:
        world.send(waiting, "meanwhile")
    assert refusal.value.fields["toolCallIds"] == ["c1"]


class WedgedGate(ModelGate):
    """A transport that takes no cancellation."""

    def wait(self, token: CancelToken) -> None:
        super().wait(CancelToken())


def test_a_wedged_turn_is_resolved_from_outside(world: World, agent: AgentMaker) -> None:
    """Q-43, Q-62, R-427: visibly running; an interrupt is recorded and not honoured; an abort resolves it with a new
    epoch. The session takes a message, and a new turn completes while the old model is still held."""
    gate = WedgedGate()
    model = ScriptedModel(["wedged", gate.hold()], ["answered"])
    session_id = world.start(agent(model))
    run = current_run(session_id)
    world.drop_hints()
    with working(world, run.id, gate) as worker:
        world.tick(days=1)
        world.sweep()
        assert world.drain() == 0 and session_of(session_id).status == "running"
        assert world.stop(session_id).outcome == "recorded" and session_of(session_id).status == "stopping"
        assert world.stop(session_id, StopKind.ABORT).outcome == "resolved"
        assert Run.objects.get(pk=run.id).epoch == 2
        world.send(session_id, "go on")
        world.drain()
        assert session_of(session_id).status == "idle" and model.asked == 2 and not gate.opened.is_set()
        before = list(Message.objects.values_list("id", "parts"))
        gate.release()
        worker.end()
    assert list(Message.objects.values_list("id", "parts")) == before


def test_a_second_delivery_judges_by_the_row(world: World, agent: AgentMaker) -> None:
    """Q-41, Q-40, Q-51: the run that this process once held is over; what it thinks of itself does not matter."""
    model = ScriptedModel(["first"], ["second"])
    session_id = world.started(agent(model))
    over = current_run(session_id)
    world.send(session_id, "again")
    assert advance_run(over.id, clock=world.clock) is False and model.asked == 1
    world.drain()
    assert model.asked == 2


@pytest.mark.parametrize("status", list(SessionStatus))
def test_who_may_not_send_may_stop(status: SessionStatus) -> None:
    """Q-44: user interfaces offer one or the other; while a stop is on its way they offer neither."""
    can_send, can_cancel = SESSION_BUTTONS[status]
    assert can_send == (status in SESSION_AT_REST)
    assert can_cancel == (status in SESSION_BUSY and status != SessionStatus.STOPPING)
