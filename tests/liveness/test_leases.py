"""Leases: judged by others only, renewed by the holder only, and never the fence of a write (liveness section 9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import OperationalError

from helix import conf
from helix.models import Message, Run, RunLease
from helix.pulse import Pulse
from helix.services.advance import advance_run, driver
from helix.services.leases import renew_leases
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, Worker, another_process, working
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import T0, World, current_run, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"days": 3650}


@pytest.fixture
def held_model(world: World, agent: AgentMaker) -> tuple[ModelGate, ScriptedModel, UUID]:
    """A started conversation whose model will be held in its first reply."""
    gate = ModelGate()
    model = ScriptedModel(["first", gate.hold()], ["second"])
    session_id = world.start(agent(model))
    world.drop_hints()
    return gate, model, session_id


def redelivered(world: World, run_id: UUID) -> None:
    """The broker delivers the same message again."""
    assert advance_run(run_id, clock=world.clock) is False


def swept_here(world: World, run_id: UUID) -> None:
    """The takeover sweep runs in the holder's process, and its hint is delivered there."""
    world.sweep()
    assert world.hints == [run_id]
    assert world.drain() == 0


def entered_again(world: World, run_id: UUID) -> None:
    """The driver is entered again by whoever else works in this process."""
    worker = [advance_run(run_id, clock=world.clock) for _ in range(3)]
    assert worker == [False] * 3


@pytest.mark.parametrize("judge", [redelivered, swept_here, entered_again])
def test_a_process_never_judges_the_lease_of_a_run_that_it_holds(
    world: World, held_model: tuple[ModelGate, ScriptedModel, UUID], judge: Callable[[World, UUID], None]
) -> None:
    """L-6, Q-45: however far the clock has gone and although nobody renewed; the control is the same lease judged
    by a stranger."""
    gate, model, session_id = held_model
    run_id = current_run(session_id).id
    with working(world, run_id, gate) as worker:
        epoch = current_run(session_id).epoch
        world.tick(**LONG)
        judge(world, run_id)
        assert (model.asked, current_run(session_id).epoch) == (1, epoch)
        assert RunLease.objects.get().expires_at < world.now
        gate.release()
        assert worker.end() is True
    assert session_of(session_id).status == "idle" and model.asked == 1


def test_a_stranger_judges_the_same_lease(world: World, held_model: tuple[ModelGate, ScriptedModel, UUID]) -> None:
    """L-5, L-6, L-8, Q-42, Q-48: the control. Another process takes the run over; the loser's reply writes nothing."""
    gate, model, session_id = held_model
    run_id = current_run(session_id).id
    with working(world, run_id, gate) as worker:
        epoch = current_run(session_id).epoch
        world.tick(**LONG)
        with another_process():
            assert advance_run(run_id, clock=world.clock) is True
        assert current_run(session_id).epoch == epoch + 1 and session_of(session_id).status == "idle"
        before = list(Message.objects.values_list("id", "parts"))
        gate.release()
        worker.end()
    assert list(Message.objects.values_list("id", "parts")) == before
    said = Message.objects.get(session_id=session_id, role="assistant").parts
    assert said[0]["text"] == "second" and model.asked == 2


def test_an_expired_lease_that_nobody_took_is_still_good(
    world: World, held_model: tuple[ModelGate, ScriptedModel, UUID]
) -> None:
    """L-7: the fence is the epoch. The other half is the test above."""
    gate, model, session_id = held_model
    with working(world, current_run(session_id).id, gate) as worker:
        world.tick(**LONG)
        gate.release()
        worker.end()
    assert Message.objects.get(session_id=session_id, role="assistant").parts[0]["text"] == "first"
    assert not RunLease.objects.exists() and model.asked == 1


def test_of_two_rivals_the_first_recorded_result_counts(
    world: World, held_model: tuple[ModelGate, ScriptedModel, UUID]
) -> None:
    """Q-48, L-7: the other order. The holder finishes first; whoever comes to take over finds nothing to take."""
    gate, model, session_id = held_model
    run_id = current_run(session_id).id
    with working(world, run_id, gate) as worker:
        world.tick(**LONG)
        gate.release()
        worker.end()
        with another_process():
            assert advance_run(run_id, clock=world.clock) is False
    assert Message.objects.get(session_id=session_id, role="assistant").parts[0]["text"] == "first"
    assert model.asked == 1


def test_the_pulse_renews_what_this_process_works_on(
    world: World, held_model: tuple[ModelGate, ScriptedModel, UUID]
) -> None:
    """L-3, Q-39, Q-50: `renewed_at` measures silence and moves; `started_at` measures age and does not."""
    gate, _, session_id = held_model
    pulse = Pulse(world.clock)
    with working(world, current_run(session_id).id, gate):
        pulse.beat()
        for seconds in (9, 10, 25, 40):
            world.now = T0 + timedelta(seconds=seconds)
            pulse.beat()
        lease = RunLease.objects.get()
        assert lease.renewed_at == T0 + timedelta(seconds=40)
        assert lease.expires_at == lease.renewed_at + timedelta(seconds=conf.get("HELIX_LEASE_SECONDS"))
        assert current_run(session_id).started_at == T0


def test_only_the_holder_renews(world: World, held_model: tuple[ModelGate, ScriptedModel, UUID]) -> None:
    """Q-39, Q-47: neither a stranger nor a superseded holder keeps a lease fresh."""
    gate, _, session_id = held_model
    with working(world, current_run(session_id).id, gate):
        world.tick(seconds=20)
        with another_process():
            assert renew_leases(now=world.now) == 0
        assert RunLease.objects.get().renewed_at == T0
        Run.objects.filter(pk=current_run(session_id).pk).update(epoch=7)
        assert renew_leases(now=world.now) == 0
        assert RunLease.objects.get().renewed_at == T0


def test_the_rounds_of_a_turn_renew_its_lease_when_the_pulse_starves(world: World, agent: AgentMaker) -> None:
    """L-4, Q-37, Q-51: before each body and with each record, in commits that happen anyway."""
    gates = [BodyGate(), BodyGate()]
    model = ScriptedModel([call("one", "s1"), call("two", "s2")], ["done"])
    session_id = world.start(agent(model, tools=[gates[0].tool("one"), gates[1].tool("two")]))
    world.drop_hints()
    with working(world, current_run(session_id).id, *gates):
        assert RunLease.objects.get().renewed_at == T0
        world.tick(seconds=20)
        gates[0].release()
        gates[1].entered.wait()
        assert RunLease.objects.get().renewed_at == world.now


def test_the_chunks_of_a_reply_renew_its_lease(world: World, agent: AgentMaker) -> None:
    """L-4: a long reply keeps its lease by being written."""
    first, second = ModelGate(), ModelGate()
    model = ScriptedModel([first.hold(), "long", second.hold()])
    session_id = world.start(agent(model))
    world.drop_hints()
    with working(world, current_run(session_id).id, first, second):
        world.tick(seconds=20)
        first.release()
        second.entered.wait()
        assert RunLease.objects.get().renewed_at == world.now


def test_a_young_lease_is_left_alone(world: World, agent: AgentMaker) -> None:
    """L-4: the control. Nothing is written while the lease is young."""
    gate = BodyGate()
    session_id = world.start(agent(ScriptedModel([call("hold", "s1")], ["done"]), tools=[gate.tool()]))
    world.drop_hints()
    world.tick(seconds=1)
    with working(world, current_run(session_id).id, gate):
        claimed_at = RunLease.objects.get().renewed_at
        world.tick(seconds=9)
        gate.release()
    assert claimed_at == T0 + timedelta(seconds=1) and not RunLease.objects.exists()


def test_a_turn_that_broke_off_is_not_renewed_by_its_process(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-40, L-7, L-8: the database was away at the record. The process lives on and works on another run, and the
    broken one is taken over all the same."""
    gate = ModelGate()
    broken = world.start(agent(ScriptedModel(["lost"], ["found"])))
    busy = world.start(agent(ScriptedModel(["busy", gate.hold()])))
    world.drop_hints()

    def away(*_: object, **__: object) -> None:
        raise OperationalError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(driver.finish, "commit_reply", away)
        with pytest.raises(OperationalError):
            advance_run(current_run(broken).id, clock=world.clock)
    with working(world, current_run(busy).id, gate):
        for _ in range(4):
            world.tick(seconds=10)
            renew_leases(now=world.now)
        assert RunLease.objects.get(run__session_id=busy).renewed_at == world.now
        world.sweep()
        assert world.drain() == 1
    assert session_of(broken).status == "idle"


def test_a_suspended_or_queued_run_has_no_lease(world: World, agent: AgentMaker) -> None:
    """L-11, T-3: ten years of takeover sweeps do nothing, and the answer works."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.start(agent(model, tools=[locate], client_tool_timeout_ms=None))
    assert current_run(session_id).status == "queued" and not RunLease.objects.exists()
    world.drain()
    assert not RunLease.objects.exists()
    epoch = current_run(session_id).epoch
    world.wait(**LONG)
    assert world.drain() == 0 and current_run(session_id).epoch == epoch
    world.submit(session_id, "c1", result="here")
    world.drain()
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_a_takeover_shows_no_idle_state(world: World, agent: AgentMaker) -> None:
    """Q-49, L-8, Q-46: the event that tells of the takeover carries the new epoch, and no status lies between."""
    gate = BodyGate()
    bodies = Bodies()
    model = ScriptedModel([call("hold", "s1"), call("count", "s2", number=2)], ["done"])
    session_id = world.start(agent(model, tools=[gate.tool(), bodies.tool("count")]))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate):
        statuses = session_of(session_id).events.filter(type="session_status").count()
        world.tick(seconds=31)
        with another_process():
            world.sweep()
            assert world.drain() == 1
        assert gate.arrivals == 1 and bodies.ran == [("count", 2)]
        assert results(session_id)["s1"]["errorCode"] == "interrupted"
        shown = list(session_of(session_id).events.filter(type="session_status").order_by("sequence"))[statuses:]
        assert [event.payload["status"] for event in shown] == ["idle"]


def test_a_loser_writes_nothing_while_the_winner_is_at_work(world: World, agent: AgentMaker) -> None:
    """L-2, L-7, Q-18, Q-48: the run is running again, under another epoch, and that is what the write looks at."""
    gates = [ModelGate(), ModelGate()]
    model = ScriptedModel(["lost", gates[0].hold()], ["found", gates[1].hold()])
    session_id = world.start(agent(model))
    run_id = current_run(session_id).id
    world.drop_hints()
    with working(world, run_id, gates[0]) as loser:
        world.tick(seconds=31)
        with another_process():
            winner = Worker(lambda: advance_run(run_id, clock=world.clock))
            gates[1].entered.wait()
        gates[0].release()
        loser.end()
        assert current_run(session_id).status == "running"
        assert not Message.objects.filter(session_id=session_id, role="assistant").exists()
        gates[1].release()
        winner.end()
    assert Message.objects.get(session_id=session_id, role="assistant").parts[0]["text"] == "found"
