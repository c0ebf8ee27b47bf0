"""What a stored answer causes: one continuation, told to every submitter, and one model call (5.E)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import Settings

from helix.agents import Agent, Hooks, registered
from helix.errors import AlreadyCompleted, AlreadyRunning, UnknownToolCall
from helix.loop import ModelRequest
from helix.models import Message, PendingCall, Run
from helix.services.advance import advance_run
from helix.services.advance.claim import claim_run
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import (
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

PARTIAL = {"kind": "awaiting_batch"}
CONSUMED = {"kind": "consumed"}
CALLER = {"kind": "caller_resumes"}


def waiting(world: World, agent: AgentMaker, *more: Any, **options: Any) -> tuple[UUID, ScriptedModel]:
    """A session whose one call `c1` waits."""
    model = ScriptedModel([call("locate", "c1")], *(more or (["done"],)))
    return world.started(agent(model, tools=[locate], **options)), model


def repeat(world: World, session_id: UUID, tool_call_id: str = "c1") -> dict[str, Any]:
    answer = world.submit(session_id, tool_call_id, result="again")
    assert answer["status"] == "already_completed"
    continuation: dict[str, Any] = answer["continuation"]
    return continuation


# -- the table ---------------------------------------------------------------------------------------------------------


def test_a_repeat_is_told_where_the_continuation_is_now(world: World, agent: AgentMaker) -> None:
    """R-120, R-121, R-131, R-133: queued, at work, over; it never waits for the run."""
    told: list[dict[str, Any]] = []

    def at_work(request: ModelRequest) -> list[str]:
        told.append(repeat(world, session_id))
        return ["done"]

    session_id, _ = waiting(world, agent, at_work)
    accepted = world.submit(session_id, "c1", result=1)["continuation"]
    run = current_run(session_id)
    assert accepted == {"kind": "new_run", "runId": str(run.id), "startSequence": run.start_sequence}
    assert repeat(world, session_id) == accepted
    claim_run(run.id, now=world.now)
    assert repeat(world, session_id) == {"kind": "deferred", "blockingRunId": str(run.id)}
    Run.objects.filter(pk=run.id).update(status="queued")
    world.drain()
    assert told == [CONSUMED] and repeat(world, session_id) == CONSUMED


def test_a_complete_batch_with_an_open_child_names_what_computes_or_waits(world: World, agent: AgentMaker) -> None:
    """R-120: deferred while a run of the tree computes, else the batch still waits."""
    child = child_agent("slow-child", ScriptedModel([call("locate", "k1")], [call("__finish__")]), tools=[locate])
    model = ScriptedModel([call("locate", "c1"), call("subagent__slow-child", task="t")], ["done"])
    session_id = world.start(agent(model, tools=[locate], sub_agents=[child]))
    world.drop_hints()
    advance_run(current_run(session_id).id, clock=world.clock)  # the child is queued and nobody has worked on it
    child_run = Run.objects.get(cause="child")
    deferred = world.submit(session_id, "c1", result=1)["continuation"]
    assert deferred == {"kind": "deferred", "blockingRunId": str(child_run.id)}
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["k1"] and repeat(world, session_id) == PARTIAL
    assert world.submit(session_id, "k1", result=1)["continuation"]["kind"] == "new_run"
    world.drain()
    assert repeat(world, session_id) == CONSUMED and model.asked == 2


def test_a_stop_and_an_answer_have_one_order(world: World, agent: AgentMaker) -> None:
    """R-122: accepted, then discarded by the stop; or refused. Never accepted as consumed."""
    first, _ = waiting(world, agent)
    assert world.submit(first, "c1", result=1)["continuation"]["kind"] == "new_run"
    world.stop(first)
    second, _ = waiting(world, agent)
    world.stop(second)
    for session_id in (first, second):
        with pytest.raises(UnknownToolCall) as refusal:
            world.submit(session_id, "c1", result=1)
        assert refusal.value.fields["reason"] == "run_stopped"
        world.drain()
        assert session_of(session_id).status == "interrupted"


# -- submit, then resume -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("continues", [True, False])
def test_submit_then_resume_works_for_every_agent(world: World, agent: AgentMaker, continues: bool) -> None:
    """R-123, R-139: the resume adopts the continuation; one run, one model call, then it is over."""
    session_id, model = waiting(world, agent, continue_on_submit=continues)
    told = world.submit(session_id, "c1", result=1)["continuation"]
    entered = world.resume(session_id)
    run = current_run(session_id)
    assert entered.run_id == str(run.id) == told.get("runId", str(run.id))
    assert world.resume(session_id) == entered
    world.drain()
    assert (model.asked, Run.objects.filter(session_id=session_id).count()) == (2, 2)
    with pytest.raises(AlreadyCompleted) as over:
        world.resume(session_id)
    assert over.value.fields == {"runId": str(run.id)}


def test_an_agent_may_leave_a_complete_batch_to_its_caller(world: World, agent: AgentMaker) -> None:
    """R-021, R-143, R-120: neither a submit, a repeat nor ten years of sweeps create the run; a resume does."""
    session_id, model = waiting(world, agent, continue_on_submit=False)
    assert world.submit(session_id, "c1", result=1)["continuation"] == CALLER == repeat(world, session_id)
    assert session_of(session_id).status == "queued"
    for _ in range(3):
        sweeping_since(world.tick(days=1200))
        world.sweep()
        world.drain()
    assert Run.objects.filter(session_id=session_id).count() == model.asked == 1
    world.resume(session_id)
    assert repeat(world, session_id)["kind"] == "new_run"
    world.drain()
    assert model.asked == 2


def test_a_message_after_the_last_answer_meets_a_live_turn(world: World, agent: AgentMaker) -> None:
    """R-126: refused, nothing stored; after the turn the same message is the next one."""
    session_id, model = waiting(world, agent)
    world.submit(session_id, "c1", result=1)
    with pytest.raises(AlreadyRunning):
        world.send(session_id, "and now?")
    assert not Message.objects.filter(session_id=session_id, role="user").exclude(position=1).exists()
    world.drain()
    world.send(session_id, "and now?")
    world.drain()
    assert model.asked == 3


# -- the continuation itself -------------------------------------------------------------------------------------------


def test_the_last_answer_queues_the_continuation_with_its_event(world: World, agent: AgentMaker) -> None:
    """R-141, R-134, R-138: `startSequence` is its `run_queued`; no second request is needed, no resync is told."""
    session_id, model = waiting(world, agent)
    told = world.submit(session_id, "c1", result=1)["continuation"]
    queued = session_of(session_id).events.get(sequence=told["startSequence"])
    assert (queued.type, str(queued.run_id), queued.payload["cause"]) == ("run_queued", told["runId"], "continuation")
    world.drain()
    assert session_of(session_id).status == "idle" and model.asked == 2
    assert not events(session_id, "stream_resync") and len(events(session_id, "run_resumed")) == 1


def test_the_database_refuses_a_second_continuation_of_a_run(world: World, agent: AgentMaker) -> None:
    """R-142."""
    session_id, _ = waiting(world, agent)
    world.submit(session_id, "c1", result=1)
    first = current_run(session_id)
    world.drain()
    twin = {"session_id": session_id, "turn": 1, "started_by": "owner", "continues_id": first.continues_id}
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(**twin, number=8, cause="continuation")
    Run.objects.create(**twin, number=9, cause="resume_with_message")  # the control: only continuations are unique


def test_one_model_call_follows_whatever_raced(world: World, agent: AgentMaker) -> None:
    """R-139, C-011: submits, repeats, resumes and sweeps in one heap, and every hint delivered twice."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    for number in ("c1", "c1", "c2", "c2"):
        world.submit(session_id, number, result=number)
        world.sweep()
    world.resume(session_id)
    world.commit()
    world.hints *= 2
    world.drain()
    world.sweep()
    world.drain()
    assert model.asked == 2 and model.results_seen() == {"c1": "c1", "c2": "c2"}
    assert PendingCall.objects.filter(state="consumed").count() == 2


def test_results_stand_behind_their_message_in_the_order_of_the_calls(world: World, agent: AgentMaker) -> None:
    """R-144, C-012, C-027: answered in another order, with a body beside them; one entry per call, then the rest."""
    bodies = Bodies()
    model = ScriptedModel(
        ["I need ", call("locate", "c1"), call("add", "s1"), call("locate", "c2")], [call("locate", "c3")], ["done"]
    )
    session_id = world.started(agent(model, tools=[locate, bodies.tool("add")]))
    for number in ("c2", "c1", "c3"):
        world.submit(session_id, number, result=number)
        world.drain()
    shape = [(m.role, m.tool_call_id) for m in model.requests[-1].messages]
    results_of_first = [("tool", "c1"), ("tool", "s1"), ("tool", "c2")]
    assert shape == [("user", None), ("assistant", None), *results_of_first, ("assistant", None), ("tool", "c3")]


def test_hooks_hear_drained_results_outside_a_transaction(world: World, agent: AgentMaker) -> None:
    """R-137, R-653: in the continuing run, once per result, before the one model call."""
    heard: list[tuple[str, str, bool]] = []

    def note(name: str) -> Any:
        return lambda told: heard.append((name, told["toolCallId"], depth < len(connection.savepoint_ids)))

    hooks = Hooks(after_tool=note("after_tool"), message=note("message"))
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate], hooks=[hooks]))
    depth = len(connection.savepoint_ids)
    for number in ("c1", "c2"):
        world.submit(session_id, number, result=number)
    world.drain()
    assert sorted(heard) == [(name, number, False) for name in ("after_tool", "message") for number in ("c1", "c2")]


def test_a_drain_starts_over_when_an_answer_changed_meanwhile(world: World, agent: AgentMaker) -> None:
    """R-137, R-082: a real answer comes while hooks look at the stored timeout; it is stored and is what is read."""
    heard: list[Any] = []
    late: list[dict[str, Any]] = []

    def watch(told: Any) -> None:
        heard.append(told["result"])
        if not late:
            late.append(world.submit(session_id, "c1", result="just in time"))

    model = ScriptedModel([call("hasty", "c1")], ["done"])
    hasty = replace(locate, name="hasty", client_tool_timeout_ms=1000)
    session_id = world.started(agent(model, tools=[hasty], hooks=[Hooks(after_tool=watch)]))
    sweeping_since(world.tick(seconds=1))
    world.sweep()
    run = current_run(session_id)
    world.drain()
    assert late[0]["continuation"] == {"kind": "deferred", "blockingRunId": str(run.id)}
    assert heard == [None, "just in time"] and model.results_seen() == {"c1": "just in time"}
    assert Message.objects.filter(role="tool").count() == 1 and model.asked == 2


# -- a continuation that cannot start ----------------------------------------------------------------------------------


def test_a_continuation_without_its_agent_fails_visibly(world: World) -> None:
    """R-132: not retryable, so the run fails with its typed detail and the session says so."""
    declared = Agent("leaves", model=ScriptedModel([call("locate", "c1")]).name, tools=[locate])
    with registered(declared):
        session_id = world.started(declared)
        world.submit(session_id, "c1", result=1)
    world.drain()
    run = current_run(session_id)
    assert (run.status, run.error_code, session_of(session_id).status) == (
        "failed",
        "framework_agent_not_found",
        "failed",
    )
    assert events(session_id, "run_failed")[0]["error"]["code"] == "framework_agent_not_found"
    assert call_named(session_id, "locate").answer_json == "1"


@pytest.mark.parametrize("recovers", [True, False])
def test_a_start_that_may_succeed_later_is_tried_under_the_crash_budget(
    world: World, settings: Settings, recovers: bool
) -> None:
    """R-132: three more tries at due times; then exhausted, with the last failure as cause."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    declared = Agent("flickers", model=model.name, tools=[locate])
    asked: list[str] = []

    def failing(name: str) -> Agent:
        asked.append(name)
        if recovers and len(asked) == 4:
            return declared
        raise LookupError(name)

    with registered(declared):
        session_id = world.started(declared)
        world.submit(session_id, "c1", result=1)
    settings.HELIX_AGENTS = failing
    for _ in range(12):
        world.sweep()
        world.drain()
        world.now += timedelta(seconds=30)
    assert len(asked) == 4
    run = current_run(session_id)
    if recovers:
        assert run.status == "completed" and results(session_id)["c1"]["value"] == 1
    else:
        assert run.error_code == "framework_auto_resume_exhausted" and run.error_detail is not None
        assert run.error_detail["cause"] == "framework_agent_resolution_failed"
