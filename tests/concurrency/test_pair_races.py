"""Every two entries, stops and answers that can meet on one session, both orders each (5.N, 5.O, 5.P).

What each pair must come to is in the tests of its verbs; here is what holds of all of them: one order, nothing
half-written, at most one live run, every call paired, and the turn comes to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any
from uuid import UUID

import pytest

from helix.agents import FINISH_TOOL_NAME, Agent
from helix.errors import HelixError
from helix.loop import ModelError
from helix.models import Checkpoint, Run
from helix.rows.runs import Entered
from helix.services.retry import retry_run
from helix.services.rewind import rewind
from helix.statuses import StopKind
from tests.fixtures import AgentMaker
from tests.kit.interleave import BOTH_ORDERS, meet
from tests.kit.invariants import check_invariants
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import child_agent, locate
from tests.kit.world import OWNER, World, pending, said, session_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, BOTH_ORDERS]

Verb = Callable[[World, UUID], Any]
Beginning = Callable[[World, AgentMaker], UUID]

VERBS: dict[str, Verb] = {
    "send": lambda world, session_id: world.send(session_id, "more"),
    "give_up": lambda world, session_id: world.send(session_id, "never mind", abandon_pending=True),
    "resume": lambda world, session_id: world.resume(session_id),
    "resume_with": lambda world, session_id: world.resume(session_id, mode="with_message", message=said("on")),
    "retry": lambda world, session_id: retry_run(principal=OWNER, session_id=str(session_id), now=world.now),
    "rewind": lambda world, session_id: rewind(
        principal=OWNER,
        session_id=str(session_id),
        checkpoint_id=Checkpoint.objects.filter(session_id=session_id).earliest("pk").checkpoint_id,
        now=world.now,
    ),
    "interrupt": lambda world, session_id: world.stop(session_id),
    "abort": lambda world, session_id: world.stop(session_id, StopKind.ABORT),
    "submit": lambda world, session_id: world.submit(session_id, "c1", result=1),
}
BROKEN = ModelError("refused", code="provider_error", retryable=False)


def waiting(world: World, agent: AgentMaker) -> UUID:
    return world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))


def answered(world: World, agent: AgentMaker) -> UUID:
    """A complete batch that its caller resumes."""
    declared = agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate], continue_on_submit=False)
    session_id = world.started(declared)
    world.submit(session_id, "c1", result=1)
    return session_id


def waiting_below(world: World, agent: AgentMaker) -> UUID:
    """A child waits for ``c1``; the root waits for the child."""
    below = ScriptedModel([call("locate", "c1")], [call(FINISH_TOOL_NAME, n=1)])
    child = child_agent(f"scout-{below.id}", below, tools=[locate])
    model = ScriptedModel([call(child.tool_name, "to", task="go")], ["done"])
    return world.started(agent(model, sub_agents=[child]))


def failed(world: World, agent: AgentMaker) -> UUID:
    declared: Agent = agent(ScriptedModel(["hi"], BROKEN, ["done"]))
    session_id = world.started(declared)
    world.send(session_id, "again")
    world.drain()
    return session_id


def interrupted(world: World, agent: AgentMaker) -> UUID:
    session_id = waiting(world, agent)
    world.stop(session_id)
    return session_id


MEETINGS: dict[Beginning, tuple[str, ...]] = {
    waiting: ("submit", "give_up", "resume", "rewind", "interrupt", "abort"),
    answered: ("send", "resume", "resume_with", "rewind", "interrupt", "abort"),
    waiting_below: ("submit", "give_up", "resume", "interrupt", "abort"),
    failed: ("send", "retry", "rewind", "resume"),
    interrupted: ("send", "resume", "resume_with", "rewind", "submit"),
}


@pytest.mark.parametrize("begin", MEETINGS, ids=lambda begin: begin.__name__)
def test_two_verbs_that_meet_leave_one_order_and_a_session_that_comes_to_rest(
    world: World, agent: AgentMaker, begin: Beginning, swapped: bool
) -> None:
    """R-450, R-453, R-466, R-410, R-426, R-497, B-39, X-04, X-07, X-08, X-10, X-11."""
    for first, second in combinations_with_replacement(MEETINGS[begin], 2):
        try:
            let_meet(world, begin(world, agent), VERBS[first], VERBS[second], swapped)
        except BaseException as failure:
            failure.add_note(f"{first} meets {second} on a session that is {begin.__name__}")
            raise


def let_meet(world: World, session_id: UUID, first: Verb, second: Verb, swapped: bool) -> None:
    before = Run.objects.filter(session_id=session_id).count()
    outcomes = meet(lambda: first(world, session_id), lambda: second(world, session_id), swapped=swapped)
    check_invariants(session_id)
    begun = {one.run_id for one in outcomes if isinstance(one, Entered)}
    stored = Run.objects.filter(session_id=session_id)
    # Each entry that was accepted has its run, and no run came from an entry that was refused.
    assert begun <= {str(run.id) for run in stored}
    assert stored.count() - before <= 2 and sum(isinstance(one, HelixError) for one in outcomes) <= 2
    world.drain()
    check_invariants(session_id)
    if pending(session_id):
        # A rewind asks again; the answer is taken as if for the first time.
        assert world.submit(session_id, "c1", result=1)["status"] in ("accepted", "already_completed")
        world.drain()
    if session_of(session_id).status == "queued":
        world.resume(session_id)
        world.drain()
    assert session_of(session_id).status in ("idle", "interrupted", "failed")
    check_invariants(session_id)
