"""Every kind of call, with a case for being held open, for a stop, and for what a client sees (D-10, Q-53).

The cases are keyed by the registry of kinds: a new kind without a case fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from helix import jsontext, selectors, wire
from helix.agents import FINISH_TOOL_NAME, Agent
from helix.models import PendingCall, Run, Session
from helix.services.advance import advance_run
from helix.services.barrier import Settled, settled_for
from helix.statuses import CALL_EXTERNAL, CALL_LOCAL, CallKind
from tests.fixtures import AgentMaker
from tests.kit.gates import BodyGate, working
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OWNER, World, current_run, results, session_of

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary-in-the-arguments"
SECRET = "canary-in-the-result"


@dataclass(frozen=True)
class Case:
    """make: an agent whose first reply asks one call of the kind, which stays open. settle: whoever owes it settles it.

    code: the result's code after a stop. shown: whether the owner sees the arguments; only our bodies can be private.
    """

    tool_name: str
    arguments: dict[str, Any]
    code: str
    shown: bool
    settle: Callable[[World, UUID], Any]


CASES: dict[CallKind, Case] = {
    CallKind.CLIENT: Case(
        "locate", {"note": CANARY}, "run_stopped", True, lambda world, root: world.submit(root, "k1", result=SECRET)
    ),
    CallKind.APPROVAL: Case(
        "pay", {"number": 1}, "run_stopped", True, lambda world, root: world.decide(PendingCall.objects.get())
    ),
    CallKind.SERVER: Case("hold", {"value": SECRET}, "aborted", False, lambda world, root: None),
    CallKind.SUBAGENT: Case("subagent__scout", {"task": CANARY}, "aborted", True, lambda world, root: None),
}


@pytest.mark.parametrize("table", [CASES], ids=["cases"])
def test_every_kind_has_its_case(table: dict[CallKind, Case]) -> None:
    """D-10, Q-53: a new kind without a held-open case, a stop case and a redaction decision fails."""
    assert set(table) == set(CallKind)


class Stage:
    """One call of the kind, held open: by a gate where it is ours, by nobody's answer where it is somebody else's."""

    def __init__(self, world: World, agent: AgentMaker, kind: CallKind) -> None:
        self.world, self.case, self.kind = world, CASES[kind], kind
        self.gate = BodyGate()
        self.bodies = Bodies()
        self.model = ScriptedModel([call(self.case.tool_name, "k1", **self.case.arguments)], ["done"])
        child = ScriptedModel(["deep ", self.gate.hold(), call(FINISH_TOOL_NAME, found=SECRET)])
        self.session_id = world.start(self.agent(agent, child))
        if kind == CallKind.SUBAGENT:
            advance_run(current_run(self.session_id).id, clock=world.clock)
        elif kind in CALL_EXTERNAL:
            world.drain()
        world.drop_hints()

    def agent(self, agent: AgentMaker, child: ScriptedModel) -> Agent:
        tools = [locate, self.gate.tool(private=True), self.bodies.tool("pay", require_approval=True)]
        return agent(self.model, tools=tools, sub_agents=[child_agent("scout", child)])

    @property
    def is_ours(self) -> bool:
        return self.kind in CALL_LOCAL

    def at_work(self) -> UUID:
        """The run that a worker has to hold for the call to stay open."""
        return current_run(
            (Session.objects.filter(parent_id=self.session_id).first() or session_of(self.session_id)).id
        ).id

    def barrier(self) -> Settled:
        return settled_for(Run.objects.get(session_id=self.session_id, number=1).id)

    def ends(self) -> None:
        self.case.settle(self.world, self.session_id)
        self.world.drain()


@pytest.mark.parametrize("kind", list(CallKind))
def test_a_held_call_keeps_the_run_from_being_finished(world: World, agent: AgentMaker, kind: CallKind) -> None:
    """D-10, Q-53, Q-24, Q-06, D-5, D-6: open while it is held, with a finished neighbour as control; final once it is
    released, with the value at the far end."""
    neighbour = world.started(agent(ScriptedModel(["done"])))
    stage = Stage(world, agent, kind)
    if stage.is_ours:
        with working(world, stage.at_work(), stage.gate):
            assert stage.barrier() is Settled.WORKING
            assert set(PendingCall.objects.filter(kind=kind).values_list("deadline_at", "wait_ms")) == {(None, None)}
    else:
        assert stage.barrier() is Settled.WAITING and PendingCall.objects.get().deadline_at is not None
    assert settled_for(current_run(neighbour).id) is Settled.FINISHED
    stage.ends()
    assert stage.barrier() is Settled.FINISHED and session_of(stage.session_id).status == "idle"
    seen = stage.model.results_seen()["k1"]
    assert ("pay 1" if kind == CallKind.APPROVAL else SECRET) in seen


@pytest.mark.parametrize("kind", list(CallKind))
def test_a_stop_ends_the_wait_for_a_call(world: World, agent: AgentMaker, kind: CallKind) -> None:
    """D-10, Q-14, Q-19, Q-57: an endless wait of each kind; the stop is run, and not only read."""
    stage = Stage(world, agent, kind)
    if stage.is_ours:
        with working(world, stage.at_work(), stage.gate) as worker:
            world.stop(stage.session_id)
            worker.end()
            assert stage.gate.cancellations == 1
    else:
        world.stop(stage.session_id)
    assert world.drain() == 0 and stage.barrier() is Settled.FINISHED
    assert results(stage.session_id)["k1"]["errorCode"] == stage.case.code
    assert session_of(stage.session_id).status == "interrupted" and stage.bodies.ran == [] and stage.model.asked == 1


@pytest.mark.parametrize("kind", list(CallKind))
def test_what_a_client_sees_of_a_call_was_decided(world: World, agent: AgentMaker, kind: CallKind) -> None:
    """D-10, D-5: a private body's arguments and result are in no byte for clients and in the model's next request."""
    stage = Stage(world, agent, kind)
    if stage.is_ours:
        with working(world, stage.at_work(), stage.gate):
            pass
    stage.ends()
    shown = jsontext.dumps(
        [
            wire.snapshot(selectors.snapshot_rows(OWNER, str(stage.session_id)), world.now),
            [wire.event(row) for row in session_of(stage.session_id).events.order_by("sequence")],
        ]
    )
    assert stage.case.tool_name in shown
    written = jsontext.dumps(stage.case.arguments)
    assert (written.strip("{}").replace('"', "") in shown.replace("\\", "").replace('"', "")) is stage.case.shown
    if not stage.case.shown:
        assert SECRET not in shown and SECRET in stage.model.results_seen()["k1"]
