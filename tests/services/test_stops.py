"""Stops: one durable record, honoured at every depth, and nothing after it (5.N)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db.models import Q

from helix.agents import Agent, Hooks, ToolContext, tool
from helix.errors import AlreadyRunning, NotResumable, UnknownToolCall, ValidationFailed
from helix.loop.scripted import Call, Thinking
from helix.models import Message, PendingCall, Run, Session, UsageRecord
from helix.rows.runs import LostFence
from helix.services import stops
from helix.services.advance import advance_run, finish
from helix.services.advance.claim import Claim, claim_run
from helix.services.retry import retry_run
from helix.statuses import CALL_OPEN, RUN_FINAL, StopKind
from tests.fixtures import AgentMaker
from tests.kit.models import ModelGate, ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OWNER, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db

BOTH = pytest.mark.parametrize("kind", list(StopKind))


def claimed(session_id: UUID, world: World) -> Claim:
    """A worker took the run and then is silent, as if it were far away."""
    claim = claim_run(current_run(session_id).id, now=world.now)
    assert claim is not None
    world.drop_hints()
    return claim


def said_by(session_id: UUID) -> list[Any]:
    rows = Message.objects.filter(session_id=session_id, role="assistant")
    return [(row.parts, row.interrupted) for row in rows]


# -- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "code"), [("interrupt", "interrupted", None), ("abort", "failed", "framework_cancelled")]
)
def test_a_stop_is_a_record_that_the_holder_of_the_run_honours(
    world: World, agent: AgentMaker, kind: str, status: str, code: str | None
) -> None:
    """R-410, R-411, R-412, R-425, Q-13, Q-18: anybody writes it; no write of the holder passes it."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    claim = claimed(session_id, world)
    assert world.stop(session_id, StopKind(kind), reason="enough").outcome == "recorded"
    assert session_of(session_id).status == "stopping" and current_run(session_id).status == "running"
    finish.stop_run(claim, None, None, [], world.now)
    run = current_run(session_id)
    assert (run.status, run.error_code, session_of(session_id).status) == (status, code, status)
    assert (run.stop_requested_by, run.stop_reason, run.output) == ("owner", "enough", None)
    ends = [told["type"] for told in events(session_id) if told["type"].startswith("run_")]
    assert ends[-1] == ("run_interrupted" if kind == "interrupt" else "run_failed") and "run_completed" not in ends
    if kind == "abort":
        assert run.error_detail == {"code": "framework_cancelled", "message": "enough", "retryable": False}


def test_a_stop_at_rest_changes_nothing(world: World, agent: AgentMaker) -> None:
    """R-424: no row, no event; the control is the stop of a turn."""
    session_id = world.started(agent(ScriptedModel(["done"])))
    before = (session_of(session_id).stream_sequence, current_run(session_id).status)
    assert world.stop(session_id) == stops.Stopped(None, "interrupt", "nothing_to_stop")
    assert (session_of(session_id).stream_sequence, current_run(session_id).status) == before
    world.send(session_id, "more")
    assert world.stop(session_id).outcome == "resolved"


@BOTH
def test_a_queued_run_that_is_stopped_never_starts(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-16, R-426: no model call, and the message that was accepted stays in the conversation."""
    model = ScriptedModel(["never"])
    session_id = world.start(agent(model))
    assert world.stop(session_id, kind).outcome == "resolved"
    assert world.drain() == 0 and model.asked == 0
    world.wait(minutes=5)
    assert world.drain() == 0 and model.asked == 0
    assert [row.parts[0]["text"] for row in session_of(session_id).messages.all()] == ["hello"]


def test_an_interrupt_never_weakens_an_abort(world: World, agent: AgentMaker) -> None:
    """R-427: and a repeated abort ends the stop itself, with a new epoch; the holder's writes meet the fence (Q-43)."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    claim = claimed(session_id, world)
    world.stop(session_id, StopKind.ABORT, reason="first")
    assert world.stop(session_id, StopKind.INTERRUPT, reason="second").outcome == "recorded"
    run = current_run(session_id)
    assert (run.stop_kind, run.stop_reason, run.status) == ("abort", "first", "running")
    assert world.stop(session_id, StopKind.ABORT).outcome == "resolved"
    assert current_run(session_id).status == "failed" and current_run(session_id).epoch == claim.epoch + 1
    with pytest.raises(LostFence):
        finish.stop_run(claim, None, None, [], world.now)


def test_a_delegated_session_is_stopped_by_its_delegation(world: World, agent: AgentMaker) -> None:
    """R-363: the control names it."""
    session_id = world.start(agent(ScriptedModel(["done"])), delegation_id="d-1")
    with pytest.raises(ValidationFailed):
        world.stop(session_id)
    named = {"principal": OWNER, "session_id": str(session_id), "kind": StopKind.INTERRUPT, "now": world.now}
    assert stops.stop_session(**named, delegation_id="d-1").outcome == "resolved"  # type: ignore[arg-type]


# -- the reply that was being written ----------------------------------------------------------------------------------


def cut_reply(world: World, agent: AgentMaker, kind: StopKind, *pieces: Any, **options: Any) -> UUID:
    """A turn whose model is stopped after these pieces, in the middle of its reply."""

    def reply(request: Any) -> Iterator[Any]:
        yield from pieces
        world.stop(session_id, kind)
        world.commit()  # the record's commit fires the token of this very process
        yield "never"

    session_id = world.start(agent(ScriptedModel(reply, ["next"]), **options))
    world.drain()
    return session_id


def test_an_interrupt_keeps_text_and_calls_but_no_reasoning(world: World, agent: AgentMaker) -> None:
    """R-419, B-38: flagged, its calls paired as not executed, and the next request is well formed (R-418)."""
    bodies = Bodies()
    pay = bodies.tool("pay")
    session_id = cut_reply(
        world, agent, StopKind.INTERRUPT, Thinking("hm"), "I will ", call("pay", "p1", number=1), tools=[pay, locate]
    )
    ((parts, interrupted),) = said_by(session_id)
    assert [part["type"] for part in parts] == ["text", "tool_call"] and interrupted
    assert parts[0]["text"] == "I will " and bodies.ran == []
    assert results(session_id)["p1"]["errorCode"] == "run_stopped" and pending(session_id) == []
    world.send(session_id, "go on")
    world.drain()
    assert session_of(session_id).status == "idle"


def test_a_call_that_was_cut_in_the_middle_is_kept_as_it_is(world: World, agent: AgentMaker) -> None:
    """R-419, Q-15: half of its arguments is no reason to judge it, and nobody is asked whether it needs approval."""
    asked: list[Any] = []

    @tool(require_approval=lambda request: bool(asked.append(request)) or True)
    def pay(cents: int) -> str:
        """Pay somebody."""
        raise AssertionError("it must not run")

    session_id = cut_reply(world, agent, StopKind.INTERRUPT, Call("pay", '{"cen', "p1"), tools=[pay])
    ((parts, _),) = said_by(session_id)
    assert parts[0]["argumentsJson"] == '{"cen' and asked == []
    assert results(session_id)["p1"]["errorCode"] == "run_stopped"


@pytest.mark.parametrize(("kind", "pieces"), [(StopKind.INTERRUPT, []), (StopKind.ABORT, ["half"])])
def test_an_empty_reply_and_an_aborted_one_keep_no_row(
    world: World, agent: AgentMaker, kind: StopKind, pieces: list[str]
) -> None:
    """R-419, R-411."""
    session_id = cut_reply(world, agent, kind, *pieces)
    assert said_by(session_id) == [] and current_run(session_id).status in RUN_FINAL


def test_a_whole_reply_that_meets_the_stop_at_its_commit_is_kept(world: World, agent: AgentMaker) -> None:
    """R-419, R-426: it was written to its end; its calls do not run, and the run ends all the same."""
    bodies = Bodies()

    def reply(request: Any) -> Iterator[Any]:
        yield "whole"
        yield call("pay", "p1", number=1)
        world.stop(session_id)

    session_id = world.start(agent(ScriptedModel(reply), tools=[bodies.tool("pay")]))
    world.drain()
    ((parts, interrupted),) = said_by(session_id)
    assert [part["type"] for part in parts] == ["text", "tool_call"] and interrupted and bodies.ran == []
    assert session_of(session_id).status == "interrupted" and results(session_id)["p1"]["errorCode"] == "run_stopped"


def test_a_stopped_step_commits_no_state_write_and_no_error(world: World, agent: AgentMaker) -> None:
    """R-420, Q-14, Q-17: the body's late result meets the record; the calls behind it never start (Q-15)."""
    ran: list[str] = []

    @tool
    def note(where: ToolContext) -> str:
        """Write a note."""
        where.set_state("noted", True)
        ran.append("note")
        return "noted"

    @tool
    def after() -> str:
        """Come after it."""
        ran.append("after")
        return "after"

    model = ScriptedModel([call("note", "n1"), call("after", "a1")], ["never"])
    stopping = Hooks(after_tool=lambda told: world.stop(session_id))
    session_id = world.start(agent(model, tools=[note, after], hooks=[stopping]))
    world.drain()
    assert ran == ["note"] and model.asked == 1 and session_of(session_id).state == {}
    codes = {name: part["errorCode"] for name, part in results(session_id).items()}
    assert codes == {"n1": "aborted", "a1": "run_stopped"}
    assert events(session_id, "state_patch", "error") == []


# -- calls of a stopped run --------------------------------------------------------------------------------------------


@BOTH
def test_calls_of_a_stopped_run_answer_so_for_good(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """R-413, R-415, R-416, R-417: stored answers are discarded too; a later message changes nothing about it."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["fine"])
    session_id = world.started(agent(model, tools=[locate]))
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"
    world.stop(session_id, kind)
    world.send(session_id, "something else")
    world.drain()
    for name in ("c1", "c2"):
        with pytest.raises(UnknownToolCall) as refused:
            world.submit(session_id, name, result=2)
        assert refused.value.fields["reason"] == "run_stopped"
    assert not Run.objects.filter(cause="continuation").exists()
    read = model.results_seen()
    assert set(read) == {"c1", "c2"} and "1" not in read.values()


def test_an_answer_that_meets_an_unresolved_stop_resolves_it_first(world: World, agent: AgentMaker) -> None:
    """R-414: as a record whose writer died before it settled the suspended run."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["never"]), tools=[locate]))
    Run.objects.filter(session_id=session_id).update(
        stop_kind=StopKind.INTERRUPT, stop_requested_at=world.now, stop_requested_by="owner"
    )
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c1", result=1)
    assert refused.value.fields["reason"] == "run_stopped"
    assert session_of(session_id).status == "interrupted" and call_named(session_id, "locate").answer_json is None


def test_each_waiting_call_that_a_stop_closes_is_counted_once(
    world: World, agent: AgentMaker, caplog: pytest.LogCaptureFixture
) -> None:
    """R-423: the answered one is not counted, nor is anything by a second stop."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2"), call("locate", "c3")], ["never"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c2", result=1)
    for _ in range(2):
        world.stop(session_id)
    logged = [record for record in caplog.records if record.message == "client_tool.aborted"]
    assert sorted(record.toolCallId for record in logged) == ["c1", "c3"]  # type: ignore[attr-defined]
    assert UsageRecord.objects.filter(source_type="client_tool_abort").count() == 2


# -- trees -------------------------------------------------------------------------------------------------------------


def deep(agent: AgentMaker, bottom: ScriptedModel) -> tuple[Agent, list[ScriptedModel]]:
    """A root over a child over a grandchild."""
    models = [ScriptedModel([call(f"subagent__{name}", f"to-{name}", task="go")], ["never"]) for name in ("b", "c")]
    below = child_agent("c", bottom, tools=[locate])
    return agent(models[0], sub_agents=[child_agent("b", models[1], sub_agents=[below])]), models


@BOTH
def test_a_queued_child_of_a_stopped_tree_never_starts(world: World, agent: AgentMaker, kind: StopKind) -> None:
    """Q-16, R-422, R-426: resolved in the transaction of the stop, without a worker."""
    bottom = ScriptedModel(["never"])
    root, _ = deep(agent, bottom)
    session_id = world.start(root)
    for _ in range(2):
        advance_run(world.hints.pop(0), clock=world.clock) if world.hints else world.commit()
    world.commit()
    advance_run(world.hints.pop(0), clock=world.clock)
    assert Session.objects.count() == 3
    assert world.stop(session_id, kind).outcome == "resolved"
    world.drain()
    assert bottom.asked == 0 and not Run.objects.exclude(status__in=RUN_FINAL).exists()


@BOTH
def test_a_held_grandchild_is_cut_and_all_come_to_rest_at_the_same_instant(
    world: World, agent: AgentMaker, kind: StopKind
) -> None:
    """Q-19, Q-20, Q-21, B-38, R-212, R-422: while it winds down the session is stopping and takes no message."""
    seen: list[str] = []
    gate = ModelGate()

    def reply(request: Any) -> Iterator[Any]:
        yield "half"
        world.stop(session_id, kind)
        seen.append(session_of(session_id).status)
        for verb in (lambda: world.send(session_id, "busy?"), lambda: world.resume(session_id)):
            with pytest.raises(AlreadyRunning):
                verb()
        world.commit()  # the record's commit fires the token of this very process
        yield gate.hold()
        yield "never"

    root, models = deep(agent, ScriptedModel(reply))
    session_id = world.start(root)
    world.drain()
    assert seen == ["stopping"] and gate.cancellations == 1
    assert not Run.objects.exclude(status__in=RUN_FINAL).exists() and session_of(session_id).status != "stopping"
    assert [model.asked for model in models] == [1, 1]
    assert not PendingCall.objects.filter(state__in=CALL_OPEN).exists()
    ended = Run.objects.exclude(Q(ended_at=world.now)).count()
    assert ended == 0 and not world.hints
    world.send(session_id, "again")


def test_a_stop_leaves_every_session_of_the_tree_paired(world: World, agent: AgentMaker) -> None:
    """R-418, R-417, R-205: deepest first; each delegating call is cut off, not failed."""
    root, _ = deep(agent, ScriptedModel([call("locate", "c1")]))
    session_id = world.started(root)
    world.stop(session_id)
    codes = dict(PendingCall.objects.values_list("tool_call_id", "error_code"))
    assert codes == {"c1": "run_stopped", "to-c": "aborted", "to-b": "aborted"}
    order = [
        told["agentId"] if "agentId" in told else told["agentType"] for told in events(session_id, "run_interrupted")
    ]
    assert order[:2] == ["c", "b"]
    for row in Message.objects.filter(role="assistant"):
        asked = {part["toolCallId"] for part in row.parts if part["type"] == "tool_call"}
        assert asked == set(results(row.session_id))


def test_no_retry_follows_an_abort_and_a_message_does(world: World, agent: AgentMaker) -> None:
    """R-412, R-495: the commit of an abort is no place to go on from."""
    model = ScriptedModel([call("locate", "c1")], ["fine"])
    session_id = world.started(agent(model, tools=[locate]))
    world.stop(session_id, StopKind.ABORT)
    for message in (None, [{"type": "text", "text": "on"}]):
        with pytest.raises(NotResumable):
            retry_run(principal=OWNER, session_id=str(session_id), now=world.now, message=message)
    world.send(session_id, "on")
    world.drain()
    assert session_of(session_id).status == "idle" and model.asked == 2
