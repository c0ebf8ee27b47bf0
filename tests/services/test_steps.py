"""Steps of a turn: the approval question, bodies, results, and how many steps there may be (5.A at run time)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helix.agents import ApprovalRequest, StepContext, tool
from helix.errors import Forbidden
from helix.models import PendingCall
from helix.services import retry
from helix.services.advance import bodies as execution
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import (
    OPERATOR,
    OWNER,
    World,
    call_named,
    current_run,
    events,
    pending,
    results,
    session_of,
    sweeping_since,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


# -- the approval question ---------------------------------------------------------------------------------------------


def test_the_approval_question_is_asked_once_and_its_answer_is_stored(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-008: per call, with its arguments, at registration; a changed mind later does not matter."""
    asked: list[ApprovalRequest] = []

    def is_large(request: ApprovalRequest) -> bool:
        asked.append(request)
        return bool(request.arguments["number"] > 10 and len(asked) < 3)

    model = ScriptedModel([call("pay", "p1", number=5), call("pay", "p2", number=50)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=is_large)]))
    assert [p.tool_call_id for p in pending(session_id)] == ["p2"] and bodies.ran == [("pay", 5)]
    assert [(a.tool_name, a.arguments_json, a.session_id, a.owner) for a in asked] == [
        ("pay", text, str(session_id), "owner") for text in ('{"number":5}', '{"number":50}')
    ]
    world.decide(pending(session_id)[0])
    world.drain()
    assert bodies.ran == [("pay", 5), ("pay", 50)] and len(asked) == 2


def test_a_question_that_raises_counts_as_approval_needed(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-008: the body does not run before a verdict; where the question says no, it does."""

    def broken(request: ApprovalRequest) -> bool:
        raise RuntimeError("no rule")

    tools = [
        bodies.tool("pay", require_approval=broken),
        bodies.tool("add", require_approval=lambda request: False),
    ]
    session_id = world.started(agent(ScriptedModel([call("pay", "p1"), call("add", "s1")]), tools=tools))
    assert [(p.tool_call_id, p.kind) for p in pending(session_id)] == [("p1", "approval")]
    assert bodies.ran == [("add", 0)]


def test_whoever_started_the_turn_may_be_barred_from_deciding(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-023: another principal decides; without the option the starter may."""
    barred = bodies.tool("pay", require_approval=True, forbid_self_approval=True)
    open_to_all = bodies.tool("add", require_approval=True)
    model = ScriptedModel([call("pay", "p1"), call("add", "s1")], ["done"])
    session_id = world.started(agent(model, tools=[barred, open_to_all]))
    with pytest.raises(Forbidden) as refusal:
        world.decide(call_named(session_id, "pay"), principal=OWNER)
    assert refusal.value.fields["cause"] == "self_approval" and call_named(session_id, "pay").state == "awaiting"
    world.decide(call_named(session_id, "add"), principal=OWNER)
    world.decide(call_named(session_id, "pay"), principal=OPERATOR)
    world.drain()
    assert bodies.ran == [("pay", 0), ("add", 0)]


# -- bodies and their results ------------------------------------------------------------------------------------------


def test_a_gated_body_is_suspended_whole(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-010: nothing of it ran before the verdict; afterwards it runs from start to result in one go."""
    model = ScriptedModel([call("pay", "p1", number=3)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    row = call_named(session_id, "pay")
    assert bodies.ran == [] and (row.body_attempts, row.body_started_at) == (0, None)
    world.decide(row)
    world.drain()
    row.refresh_from_db()
    assert bodies.ran == [("pay", 3)] and (row.state, row.body_attempts) == ("consumed", 1)


@pytest.mark.parametrize(
    ("value", "part", "text"),
    [
        ('{"looks":"like JSON"}', {"text": '{"looks":"like JSON"}'}, '{"looks":"like JSON"}'),
        ("", {"text": ""}, ""),
        ({"b": [1, None]}, {"value": {"b": [1, None]}}, '{"b":[1,null]}'),
        (None, {"value": None}, "null"),
    ],
)
def test_a_string_result_is_kept_verbatim_and_marked_as_text(
    world: World, agent: AgentMaker, value: Any, part: dict[str, Any], text: str
) -> None:
    """R-017: of a body and of a client alike; everything else is JSON."""

    @tool
    def answer() -> Any:
        """Give it back."""
        return value

    model = ScriptedModel([call("answer", "s1"), call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[answer, locate]))
    world.submit(session_id, "c1", result=value)
    world.drain()
    for number in ("s1", "c1"):
        stored = results(session_id)[number]
        assert {key: stored[key] for key in ("text", "value") if key in stored} == part
        assert model.results_seen()[number] == text


@pytest.mark.parametrize(("replay", "ran"), [("never", 1), ("safe", 2)])
def test_only_a_replay_safe_body_runs_again_after_a_lost_worker(
    world: World, agent: AgentMaker, bodies: Bodies, replay: str, ran: int
) -> None:
    """R-016: the other one is closed as interrupted and the turn goes on."""
    model = ScriptedModel([call("add", "s1")], ["done"])
    session_id = world.start(agent(model, tools=[bodies.tool("add", replay=replay)]))
    with worker_dies_in(execution, "_record_body"):
        world.drain()
    lose_the_worker(world)
    world.drain()
    assert len(bodies.ran) == ran
    assert results(session_id)["s1"]["errorCode"] == (None if replay == "safe" else "interrupted")
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_a_replay_safe_body_runs_three_times_at_most(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-016: then its call is closed like that of any other body."""
    model = ScriptedModel([call("add", "s1")], ["done"])
    session_id = world.start(agent(model, tools=[bodies.tool("add", replay="safe")]))
    for _ in range(3):
        with worker_dies_in(execution, "_record_body"):
            world.drain()
        lose_the_worker(world)
    world.drain()
    assert len(bodies.ran) == 3 and PendingCall.objects.get().body_attempts == 3
    assert results(session_id)["s1"]["errorCode"] == "interrupted" and model.asked == 2


def lose_the_worker(world: World) -> None:
    """Let the lease go stale, and the sweep hint again; its hints come with pauses."""
    for _ in range(3):
        sweeping_since(world.tick(seconds=31))
        world.sweep()


# -- how many steps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "steps"), [(None, 50), (3, 3)])
def test_a_turn_that_reaches_its_steps_fails_by_that_name(
    world: World, agent: AgentMaker, bodies: Bodies, limit: int | None, steps: int
) -> None:
    """R-013, R-014: unset means 50."""
    model = ScriptedModel([call("add")])
    session_id = world.started(agent(model, tools=[bodies.tool("add")], max_steps=limit))
    run = current_run(session_id)
    assert (run.status, run.error_code, model.asked) == ("failed", "framework_max_steps_exceeded", steps)
    assert events(session_id, "run_failed")[0]["error"]["code"] == "framework_max_steps_exceeded"


def test_infinity_is_written_out_and_then_meant(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-013: with the control above that without it the fiftieth step is the last."""
    model = ScriptedModel(*[[call("add")]] * 60, ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("add")], max_steps=math.inf))
    assert session_of(session_id).status == "idle" and model.asked == 61


def test_steps_are_counted_over_the_turn_and_not_per_run(world: World, agent: AgentMaker) -> None:
    """R-013, R-014: a continuation does not renew the budget; the next turn does."""
    model = ScriptedModel([call("locate", "c1")], [call("locate", "c2")], [call("locate", "c3")], ["One more turn."])
    session_id = world.started(agent(model, tools=[locate], max_steps=2))
    for number in ("c1", "c2"):
        world.submit(session_id, number, result=1)
        world.drain()
    assert current_run(session_id).error_code == "framework_max_steps_exceeded" and model.asked == 2
    world.send(session_id, "again")
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["c3"]


@pytest.mark.parametrize("stops", [True, False])
def test_the_stop_condition_is_asked_before_the_cap(
    world: World, agent: AgentMaker, bodies: Bodies, stops: bool
) -> None:
    """R-014: it sees the step's text and calls; its yes completes the run, after its no the cap fails it."""
    asked: list[tuple[int, str, tuple[str, ...]]] = []

    def enough(context: StepContext) -> bool:
        asked.append((context.step, context.text, context.tool_names))
        return stops and context.step == 2

    model = ScriptedModel(["Adding. ", call("add")], [call("add"), call("add")])
    session_id = world.started(agent(model, tools=[bodies.tool("add")], max_steps=2, stop_when=enough))
    assert asked == [(1, "Adding. ", ("add",)), (2, "", ("add", "add"))] and model.asked == 2
    assert current_run(session_id).status == ("completed" if stops else "failed")


def test_a_retry_has_a_fresh_budget(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-014: as many steps again, and then the same end."""
    model = ScriptedModel([call("add")])
    session_id = world.started(agent(model, tools=[bodies.tool("add")], max_steps=2))
    assert model.asked == 2
    message = [{"type": "text", "text": "go on"}]
    retry.retry_run(principal=OWNER, session_id=str(session_id), now=world.now, message=message)
    world.drain()
    assert model.asked == 4 and current_run(session_id).error_code == "framework_max_steps_exceeded"
