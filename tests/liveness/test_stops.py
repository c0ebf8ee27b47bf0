"""A stop reaches the work: models, bodies, subprocesses, children in flight and children in the queue (liveness 3)."""

from __future__ import annotations

import os
import sys
from typing import Any
from uuid import UUID

import pytest
from django.conf import LazySettings

from helix.agents import FINISH_TOOL_NAME, Agent, ToolContext, registered, tool
from helix.loop.registry import REGISTRY
from helix.loop.subprocesses import run_subprocess
from helix.models import Message, PendingCall, Run, Session
from helix.rows.holdings import HOLDINGS
from helix.services import leases
from helix.services.advance import advance_run
from helix.services.barrier import Settled, settled_for
from helix.statuses import RUN_FINAL, StopKind
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, another_process, working
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import World, current_run, results, session_of
from tests.provider_server import Gate, ProviderServer, text

pytestmark = pytest.mark.django_db(transaction=True)

BOTH_KINDS = pytest.mark.parametrize("kind", list(StopKind))
OUTCOMES = {StopKind.INTERRUPT: ("interrupted", None), StopKind.ABORT: ("failed", "framework_cancelled")}


def ended_by(session_id: UUID, kind: StopKind) -> bool:
    run = current_run(session_id)
    return (run.status, run.error_code) == OUTCOMES[kind]


@BOTH_KINDS
def test_a_stop_cuts_a_model_between_two_chunks(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-21, B-38, Q-19: the held stream observes it; nothing else moves the clock. What came before is kept by an
    interrupt."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["kept ", gate.hold(), "never written"])))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        before = world.now
        assert world.stop(session_id, kind).outcome == "recorded"
        worker.end()
        assert gate.cancellations == 1 and world.now == before
        assert ended_by(session_id, kind)
    said = [m.parts[0]["text"] for m in Message.objects.filter(session_id=session_id, role="assistant")]
    assert said == (["kept "] if kind == StopKind.INTERRUPT else [])


def test_a_stop_closes_the_connection_to_a_real_provider(world: World, settings: LazySettings) -> None:
    """B-38, Q-21, Q-58: an endless wait is ended by a stop, as seen from the provider's end of the connection."""
    outside = Agent("outside", model="openai:test")
    with ProviderServer() as provider, registered(outside):
        settings.HELIX_MODEL_BASE_URL, settings.HELIX_MODEL_API_KEY = provider.base_url, "none"
        gate = Gate()
        provider.answer(text("kept"), gate)
        session_id = world.start(outside)
        world.drop_hints()
        with working(world, current_run(session_id).id, gate) as worker:
            world.stop(session_id)
            worker.end()
            provider.hung_up.wait()
        assert current_run(session_id).status == "interrupted" and gate.arrivals == 1


@BOTH_KINDS
def test_a_body_that_ignores_the_stop_is_waited_for_by_nobody(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-14, Q-61, Q-20: three assertions. The turn is over at once and the session takes a message; the late result
    meets the fence; the registry lists the body until it returns."""
    gate = BodyGate(ignores_stops=True)
    model = ScriptedModel([call("hold", "s1")], ["second turn"])
    session_id = world.start(agent(model, tools=[gate.tool()]))
    run_id = current_run(session_id).id
    world.drop_hints()
    with working(world, run_id, gate) as worker:
        world.stop(session_id, kind)
        worker.end()
        assert ended_by(session_id, kind) and results(session_id)["s1"]["errorCode"] == "aborted"
        world.send(session_id, "go on")
        world.drain()
        assert session_of(session_id).status == "idle"

        assert [body.run_id for body in REGISTRY.executing()] == [str(run_id)]
        before = list(Message.objects.values_list("id", "parts"))
        gate.release()
        assert REGISTRY.wait_until_quiet()

        assert list(Message.objects.values_list("id", "parts")) == before and HOLDINGS.all() == ()


def test_calls_that_the_stop_found_waiting_never_start(world: World, agent: AgentMaker) -> None:
    """Q-15: the first body is cut; the second has no side effect and gets a not-executed result in the same commit.
    The control is the same reply without a stop."""
    for is_stopped in (True, False):
        gate, bodies = BodyGate(), Bodies()
        model = ScriptedModel([call("hold", "s1"), call("count", "s2", number=2)], ["done"])
        session_id = world.start(agent(model, tools=[gate.tool(), bodies.tool("count")]))
        world.drop_hints()
        with working(world, current_run(session_id).id, gate) as worker:
            if is_stopped:
                world.stop(session_id)
            gate.release()
            worker.end()
        codes = {key: part["errorCode"] for key, part in results(session_id).items()}
        assert codes == ({"s1": "aborted", "s2": "run_stopped"} if is_stopped else {"s1": None, "s2": None})
        assert bodies.ran == ([] if is_stopped else [("count", 2)])


def three_generations(agent: AgentMaker, bottom: ScriptedModel, **options: Any) -> Any:
    below = child_agent("grandchild", bottom, **options)
    middle = ScriptedModel([call("subagent__grandchild", "d2", task="dig")], ["never asked"])
    top = ScriptedModel([call("subagent__child", "d1", task="go")], ["never asked"])
    return agent(top, sub_agents=[child_agent("child", middle, sub_agents=[below])])


def walked(world: World, deliveries: int) -> None:
    """That many deliveries; further hints are lost."""
    for _ in range(deliveries):
        world.commit()
        advance_run(world.hints.pop(0), clock=world.clock)
    world.drop_hints()


def chain(session_id: UUID) -> list[Run]:
    """The current runs from the root down to the deepest child."""
    found, here = [], Session.objects.get(pk=session_id)
    while True:
        found.append(current_run(here.id))
        below = Session.objects.filter(parent_id=here.id).first()
        if below is None:
            return found
        here = below


@BOTH_KINDS
def test_the_stop_of_a_root_cuts_a_grandchilds_model(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-21, Q-19: transitive. The fake observes its cancellation; releasing it afterwards changes no row."""
    gate = ModelGate()
    session_id = world.start(
        three_generations(agent, ScriptedModel(["deep", gate.hold(), call(FINISH_TOOL_NAME, n=1)]))
    )
    walked(world, 2)
    with working(world, chain(session_id)[-1].id, gate) as worker:
        world.stop(session_id, kind)
        worker.end()
        assert gate.cancellations == 1
        world.drain()
        assert {run.status for run in chain(session_id)} == {OUTCOMES[kind][0]}
        rows = list(Run.objects.values_list("id", "status", "epoch"))
        gate.release()
        world.drain()
        assert list(Run.objects.values_list("id", "status", "epoch")) == rows
    assert settled_for(chain(session_id)[0].id) is Settled.FINISHED


def test_a_queued_child_of_a_stopped_root_never_starts(world: World, agent: AgentMaker) -> None:
    """Q-16, Q-59: it waits for a worker, shown as queued, and a stop helps. Model counter 0, also when the hint is
    delivered afterwards; the control is the test above."""
    bottom = ScriptedModel([call(FINISH_TOOL_NAME, n=1)])
    session_id = world.start(three_generations(agent, bottom))
    walked(world, 2)
    queued = chain(session_id)[-1]
    assert queued.status == "queued"
    world.stop(session_id)
    assert advance_run(queued.id, clock=world.clock) is False
    world.sweep()
    world.drain()
    assert bottom.asked == 0 and {run.status for run in chain(session_id)} == {"interrupted"}
    assert not PendingCall.objects.filter(state__in=("held", "executing", "awaiting")).exists()


def test_a_stop_from_another_host_reaches_the_holder(world: World, agent: AgentMaker) -> None:
    """Q-13, Q-21, Q-41: the stop is a row, and the holder's process reads it at each beat."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["written", gate.hold()])))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        with another_process():
            world.stop(session_id)
        assert gate.cancellations == 0 and session_of(session_id).status == "stopping"
        assert leases.cut_stopped_work() == 1
        worker.end()
    assert current_run(session_id).status == "interrupted"


def test_a_turn_that_lost_its_epoch_is_cut(world: World, agent: AgentMaker) -> None:
    """Q-13, Q-41, Q-18: judged by the row. The superseded turn leaves quietly and writes nothing."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["lost", gate.hold()], ["found"])))
    run_id = current_run(session_id).id
    world.drop_hints()
    with working(world, run_id, gate) as worker:
        world.tick(seconds=31)
        with another_process():
            assert advance_run(run_id, clock=world.clock)
        assert leases.cut_stopped_work() == 1 and leases.cut_stopped_work() == 0
        assert worker.end() is True
    said = Message.objects.get(session_id=session_id, role="assistant").parts
    assert said[0]["text"] == "found" and gate.cancellations == 1


def test_a_removed_conversation_cuts_its_work(world: World, agent: AgentMaker) -> None:
    """Q-13, R-048: no row is no epoch."""
    gate = ModelGate()
    session_id = world.start(agent(ScriptedModel(["lost", gate.hold()])))
    world.drop_hints()
    with working(world, current_run(session_id).id, gate) as worker:
        Session.objects.filter(pk=session_id).update(current_run=None)
        Session.objects.filter(pk=session_id).delete()
        assert leases.cut_stopped_work() == 1
        worker.end()
    assert not Run.objects.exists()


@BOTH_KINDS
def test_a_stop_ends_a_subprocess_with_everything_that_it_started(
    world: World, agent: AgentMaker, kind: StopKind, tmp_path: Any
) -> None:
    """Q-21, Q-58: the group of the process is ended, its own child included."""
    path = tmp_path / "alive"
    os.mkfifo(path)
    endless = (
        "import os, signal; "
        f"pipe = os.open({str(path)!r}, os.O_WRONLY); os.fork(); os.write(pipe, b'x'); signal.pause()"
    )

    @tool
    def compute(context: ToolContext) -> str:
        """Compute for ever."""
        run_subprocess(context, [sys.executable, "-c", endless])
        return "never"

    session_id = world.start(agent(ScriptedModel([call("compute", "s1")], ["done"]), tools=[compute]))
    run_id = current_run(session_id).id
    world.drop_hints()
    with working(world, run_id) as worker, path.open("rb", buffering=0) as pipe:
        alive = pipe.read(1) + pipe.read(1)
        world.stop(session_id, kind)
        worker.end()
        # It ends when the last process that had it is gone.
        assert (alive, pipe.read(1)) == (b"xx", b"")
        assert REGISTRY.wait_until_quiet() and ended_by(session_id, kind)


def test_a_stopped_wait_for_somebody_is_over_at_once(world: World, agent: AgentMaker) -> None:
    """Q-19, P-07: no worker is needed, the clock stands still, and the answer comes too late."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    before = world.now
    assert world.stop(session_id).outcome == "resolved"
    assert world.drain() == 0 and world.now == before
    assert all(run.status in RUN_FINAL for run in chain(session_id))
