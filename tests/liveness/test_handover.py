"""A process that is asked to end hands its runs back (RT-06); nothing that was done is lost, and no turn ends by it.

`tests/recovery/test_shutdown.py` shows the same of a real worker and a real signal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from celery import signals

from helix import handover
from helix.loop.registry import REGISTRY
from helix.models import Run, RunLease
from helix.rows.holdings import HOLDINGS
from helix.services.advance import advance_run
from helix.services.advance.claim import claim_run
from helix.statuses import RunStatus, StopKind
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, another_process, working
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies
from tests.kit.world import World, current_run, events, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def staying() -> Iterator[None]:
    """Whatever the test asked of this process, it stays for the next one."""
    yield
    HOLDINGS._leaving = False


def another_goes_on(world: World) -> None:
    with another_process():
        world.drain()


def given_back(session_id: UUID) -> Run:
    run = current_run(session_id)
    assert run.status == RunStatus.SUSPENDED_STEP_PARTIAL and not RunLease.objects.filter(run=run).exists()
    assert session_of(session_id).status == "queued"
    return run


def test_a_model_request_is_cut_at_once_and_asked_again_elsewhere(world: World, agent: AgentMaker) -> None:
    """RT-06, RT-19, Q-05: given back without a lease, hinted at, and claimed under the next epoch."""
    gate = ModelGate()
    model = ScriptedModel(["half", gate.hold()], ["whole"])
    session_id = world.start(agent(model))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        assert handover.hand_back()
        worker.end()
        assert gate.cancellations == 1 and HOLDINGS.all() == ()
        run = given_back(session_id)
        assert world.hints == [run.id] and run.crash_count == 0
        another_goes_on(world)
    assert session_of(session_id).status == "idle" and current_run(session_id).epoch == 2 and model.asked == 2


def test_a_body_may_finish_and_its_result_is_recorded(world: World, agent: AgentMaker) -> None:
    """RT-06, Q-02, Q-01: no answer is lost, the step is kept, and the next step is another worker's."""
    gate = BodyGate()
    model = ScriptedModel([call("hold", "s1")], ["done"])
    session_id = world.start(agent(model, tools=[gate.tool()]))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        step_id = current_run(session_id).step_id
        HOLDINGS.leave()
        gate.release()
        worker.end()
        assert handover.hand_back()
        assert results(session_id)["s1"]["text"] == "held" and model.asked == 1
        assert given_back(session_id).step_id == step_id
        another_goes_on(world)
    assert model.results_seen() == {"s1": "held"} and gate.arrivals == 1


@pytest.mark.parametrize("replay", ["never", "safe"])
def test_a_body_that_does_not_finish_is_cut(world: World, agent: AgentMaker, replay: str) -> None:
    """RT-06, R-016, R-674: closed as interrupted, or run again where it may be. Never `runtime_restarted`."""
    gate = BodyGate()
    model = ScriptedModel([call("hold", "s1")], ["done"])
    session_id = world.start(agent(model, tools=[gate.tool(replay=replay)]))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        assert handover.hand_back(finish_seconds=0, give_back_seconds=60)
        worker.end()
        given_back(session_id)
        gate.release()
        another_goes_on(world)
    assert gate.arrivals == (2 if replay == "safe" else 1) and session_of(session_id).status == "idle"
    assert results(session_id)["s1"]["errorCode"] == (None if replay == "safe" else "interrupted")
    assert all("runtime_restarted" not in str(event) for event in events(session_id))


def test_a_body_that_ignores_everything_is_named_and_left(
    world: World, agent: AgentMaker, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-14, Q-61: the run is given back all the same; the process may end, and says what it leaves."""
    gate = BodyGate(ignores_stops=True)
    model = ScriptedModel([call("hold", "s1")], ["done"])
    session_id = world.start(agent(model, tools=[gate.tool()]))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate):
        assert handover.hand_back(finish_seconds=0) is False
        assert [(r.msg, r.toolCallId) for r in caplog.records if r.name == "helix.handover"] == [
            ("worker.body_left", "s1")
        ]
        given_back(session_id)
        another_goes_on(world)
        assert session_of(session_id).status == "idle"
    assert REGISTRY.executing() == () and results(session_id)["s1"]["errorCode"] == "interrupted"


def test_a_leaving_process_takes_nothing_new(world: World, agent: AgentMaker) -> None:
    """RT-06, Q-12: the row stays queued for somebody else; the control is the same hint in a process that stays."""
    model = ScriptedModel(["done"])
    session_id = world.start(agent(model))
    run_id = current_run(session_id).id
    assert handover.hand_back()
    assert advance_run(run_id, clock=world.clock) is False and current_run(session_id).status == "queued"
    another_goes_on(world)
    assert session_of(session_id).status == "idle" and model.asked == 1


def test_a_run_that_was_claimed_in_the_last_moment_is_given_straight_back(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RT-06: between the look and the mark the process was asked to end."""
    model = ScriptedModel(["done"])
    session_id = world.start(agent(model))
    monkeypatch.setattr(
        "helix.services.advance.driver.claim_run", lambda *a, **k: (HOLDINGS.leave(), claim_run(*a, **k))[1]
    )
    assert advance_run(current_run(session_id).id, clock=world.clock) is True
    given_back(session_id)
    assert model.asked == 0


@pytest.mark.parametrize("kind", list(StopKind))
def test_a_recorded_stop_outranks_the_handover(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-13, RT-07, RT-08: the stop of another host was not yet noticed here."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["half", gate.hold()])))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        with another_process():
            world.stop(session_id, kind)
        assert handover.hand_back()
        worker.end()
    assert current_run(session_id).status == ("interrupted" if kind == StopKind.INTERRUPT else "failed")


def test_bodies_run_beside_each_other_and_only_models_are_cut_first(world: World, agent: AgentMaker) -> None:
    """RT-06: two runs of one process; the model's is given back while the other's body still works."""
    body, model = BodyGate(), ModelGate()
    computing = world.start(agent(ScriptedModel([call("hold", "s1")], ["done"]), tools=[body.tool()]))
    thinking = world.start(agent(ScriptedModel(["half", model.hold()])))
    world.drop_hints()
    with (
        working(world, current_run(thinking).id, model) as worker,
        working(world, current_run(computing).id, body),
    ):
        HOLDINGS.leave()
        worker.end()
        given_back(thinking)
        assert current_run(computing).status == "running" and model.cancellations == 1 and body.arrivals == 1
    assert results(computing)["s1"]["text"] == "held"


def test_the_worker_hears_celerys_signal(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    """RT-06: a thread of its own hands back, since the signal interrupts whoever holds whatever lock."""
    asked = threading.Event()
    where: list[str] = []

    def hand_back() -> None:
        where.append(threading.current_thread().name)
        asked.set()

    monkeypatch.setattr(handover, "hand_back", hand_back)
    signals.worker_shutting_down.send(sender="worker", sig="SIGTERM", how="Warm", exitcode=0)
    asked.wait()
    assert where == ["helix-handover"]


def test_work_that_is_still_counted_is_waited_for(world: World, agent: AgentMaker) -> None:
    """Q-07, Q-30: nothing is at work, so nothing is waited for, and nothing was cut."""
    bodies = Bodies()
    session_id = world.started(
        agent(ScriptedModel([call("count", "s1", number=1)], ["done"]), tools=[bodies.tool("count")])
    )
    assert handover.hand_back() and session_of(session_id).status == "idle" and bodies.ran == [("count", 1)]
