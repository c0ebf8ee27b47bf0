"""Submitting an answer: what is stored once, what is refused, and in which order it is judged (5.C)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from helix import nudges
from helix.agents import Agent, registered
from helix.errors import (
    AgentNotFound,
    AgentResolutionFailed,
    HelixError,
    InvalidResult,
    RunSupersededError,
    UnknownToolCall,
)
from helix.models import CallAudit, CallTombstone, Checkpoint, PendingCall, Run, Session, StreamEvent
from helix.rows import runs
from helix.services import rewind
from helix.services.advance import bodies as execution
from helix.services.advance import finish
from helix.statuses import RunCause
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate, measure
from tests.kit.world import (
    OPERATOR,
    OWNER,
    STRANGER,
    T0,
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


def waiting(world: World, agent: AgentMaker, **options: Any) -> tuple[UUID, ScriptedModel]:
    """A session whose one call `c1` waits."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    return world.started(agent(model, tools=[locate], **options)), model


def stored(session_id: UUID) -> tuple[Any, ...]:
    """Everything that a submit may write."""
    calls = PendingCall.objects.filter(root_id=session_id).order_by("seq").values_list("state", "answer_json", "run_id")
    root = session_of(session_id)
    return (
        list(calls),
        (root.status, root.version, root.stream_sequence),
        Run.objects.filter(session__root_id=session_id).count(),
        StreamEvent.objects.filter(root_id=session_id).count(),
        CallAudit.objects.count(),
        CallTombstone.objects.count(),
    )


def refused(world: World, session_id: UUID, submit: Callable[[], Any], kind: type[HelixError]) -> HelixError:
    """The refusal of that kind, and nothing was stored."""
    before = stored(session_id)
    with pytest.raises(kind) as caught:
        submit()
    assert stored(session_id) == before
    return caught.value


def test_no_field_of_a_body_starts_or_names_anything(world: World, agent: AgentMaker) -> None:
    """R-085: a submit that also names a run to start, a tool, a role and a status stores the same answer."""
    session_id, model = waiting(world, agent)
    extras = {"startRun": True, "toolName": "pay", "role": "system", "status": "completed", "agentType": "other"}
    world.submit(session_id, "c1", result="here", **extras)
    assert current_run(session_id).cause == RunCause.CONTINUATION
    assert call_named(session_id, "locate").answer_json == '"here"'
    world.drain()
    assert results(session_id) == {"c1": results(session_id)["c1"]} and model.results_seen() == {"c1": "here"}


# -- the write ---------------------------------------------------------------------------------------------------------


def test_a_submit_is_a_durable_write_on_the_row_of_its_call(world: World, agent: AgentMaker) -> None:
    """R-060, R-065, R-078, R-133: the first answer wins, a repeat says that it is recorded and changes nothing."""
    session_id, _ = waiting(world, agent)
    first = world.submit(session_id, "c1", result={"city": "Bern"})
    row = call_named(session_id, "locate")
    assert (row.state, row.answer_json, row.answered_at) == ("answered", '{"city":"Bern"}', world.now)
    before = stored(session_id)
    world.tick(seconds=5)
    again = world.submit(session_id, "c1", result={"city": "Chur"})
    assert again == {"status": "already_completed", "continuation": first["continuation"]}
    assert stored(session_id) == before


def test_answer_audit_event_exposure_and_continuation_are_one_commit(world: World, agent: AgentMaker) -> None:
    """R-084: a death before the commit leaves nothing, for the last answer and for one before it; then all is there."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate], max_open_calls=1))
    for number, last_step in (("c1", (nudges, "nudge_readers")), ("c2", (runs, "take_over_calls"))):
        before = stored(session_id)
        with worker_dies_in(*last_step):
            world.submit(session_id, number, result=1)
        assert stored(session_id) == before
        world.submit(session_id, number, result=1)
    assert [row.door for row in CallAudit.objects.all()] == ["test", "test"]
    assert [e["toolCallId"] for e in events(session_id, "call_answered")] == ["c1", "c2"]
    assert current_run(session_id).status == "queued"


def test_a_stored_answer_always_carries_its_continuation(world: World, agent: AgentMaker) -> None:
    """R-066, R-067: worked out under the lock of the write; the run that it names is the session's current one."""
    session_id, _ = waiting(world, agent)
    answer = world.submit(session_id, "c1", result=1)
    run = current_run(session_id)
    told = {"kind": "new_run", "runId": str(run.id), "startSequence": run.start_sequence}
    assert answer == {"status": "accepted", "continuation": told}
    world.drain()
    again = world.submit(session_id, "c1", result=1)
    assert again == {"status": "already_completed", "continuation": {"kind": "consumed"}}


def test_a_lost_nudge_is_logged_and_the_answer_stands(
    world: World, agent: AgentMaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-080, B-24, B-08: accepted; the sweep finds the run."""
    session_id, model = waiting(world, agent)

    def broken(run_id: UUID) -> None:
        raise ConnectionError("the broker is away")

    with monkeypatch.context() as patch:
        patch.setattr(nudges, "send_to_worker", broken)
        patch.setattr(nudges, "_worker_breaker", nudges.Breaker())
        assert world.submit(session_id, "c1", result=1)["status"] == "accepted"
        world.commit()
    logged = [(record.levelname, record.message) for record in caplog.records if record.name == "helix.nudges"]
    assert logged == [("ERROR", "client_tool.send_event_failed")] and not world.hints
    world.sweep()
    world.drain()
    assert model.asked == 2


# -- results and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, "", False, 0.5, [], {}, "two\nlines"])
def test_empty_looking_values_are_valid_results(world: World, agent: AgentMaker, value: Any) -> None:
    """R-073, R-017: unchanged; a text stays a text, everything else is JSON."""
    session_id, _ = waiting(world, agent)
    assert world.submit(session_id, "c1", result=value)["status"] == "accepted"
    world.drain()
    part = results(session_id)["c1"]
    key = "text" if isinstance(value, str) else "value"
    assert part[key] == value and "error" not in part and {"text", "value"} & part.keys() == {key}


def test_the_output_schema_judges_results_and_never_errors(world: World, agent: AgentMaker) -> None:
    """R-071: a result that does not fit is refused and may be corrected; an error passes."""
    model = ScriptedModel([call("measure", "c1", metres=1), call("measure", "c2", metres=1)], ["done"])
    session_id = world.started(agent(model, tools=[measure]))
    refusal = refused(world, session_id, lambda: world.submit(session_id, "c1", result={"value": "x"}), InvalidResult)
    assert refusal.fields == {"toolName": "measure", "toolCallId": "c1"}
    world.submit(session_id, "c1", result={"value": 2})
    assert world.submit(session_id, "c2", error="no ruler")["status"] == "accepted"


def test_a_submitted_error_reaches_model_log_and_stream_as_given(world: World, agent: AgentMaker) -> None:
    """R-072: and a built-in code is a readable text beside its code."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", error="GPS: <off> & ünwilling")
    world.submit(session_id, "c2", error="disposed")
    world.drain()
    log, ended = results(session_id), {e["toolCallId"]: e for e in events(session_id, "tool_end")}
    texts = {model.results_seen()["c1"], log["c1"]["error"], ended["c1"]["error"]}
    assert texts == {"GPS: <off> & ünwilling"} and log["c1"]["errorCode"] is None
    assert log["c2"]["errorCode"] == ended["c2"]["errorCode"] == "disposed"
    assert log["c2"]["error"] == ended["c2"]["error"] == model.results_seen()["c2"] != "disposed"


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_an_unknown_call_says_why_to_its_owner_and_nothing_to_others(world: World, agent: AgentMaker) -> None:
    """R-075, R-064: foreign, missing and a child's session give a stranger one and the same body."""
    session_id, _ = waiting(world, agent)
    own = refused(world, session_id, lambda: world.submit(session_id, "nope", result=1), UnknownToolCall)
    assert own.as_body()["reason"] == "never_existed"
    foreign = refused(
        world, session_id, lambda: world.submit(session_id, "c1", principal=STRANGER, result=1), UnknownToolCall
    )
    missing = refused(world, session_id, lambda: world.submit(uuid4(), "c1", result=1), UnknownToolCall)
    assert foreign.as_body() == missing.as_body() and "reason" not in missing.as_body()
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"


def test_a_call_of_a_child_is_answered_at_the_root_only(world: World, agent: AgentMaker) -> None:
    """R-064: the session that a submit names is the root's."""
    child = child_agent("asking-child", ScriptedModel([call("locate", "k1")], [call("__finish__")]), tools=[locate])
    model = ScriptedModel([call("subagent__asking-child", task="t")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child]))
    child_id = Session.objects.exclude(pk=session_id).get().id
    refused(world, session_id, lambda: world.submit(child_id, "k1", result=1), UnknownToolCall)
    assert world.submit(session_id, "k1", result=1)["continuation"]["kind"] == "new_run"


def test_an_agent_that_cannot_be_resolved_stores_nothing(world: World, settings: Settings) -> None:
    """R-074: unknown and failing; the call stays pending and is answered when the agent is back."""
    declared = Agent("comes-and-goes", model=ScriptedModel([call("locate", "c1")]).name, tools=[locate])
    with registered(declared):
        session_id = world.started(declared)
    gone = refused(world, session_id, lambda: world.submit(session_id, "c1", result=1), AgentNotFound)
    assert (gone.status, gone.retryable) == (404, False)

    def failing(name: str) -> Agent:
        raise LookupError(name)

    settings.HELIX_AGENTS = failing
    away = refused(world, session_id, lambda: world.submit(session_id, "c1", result=1), AgentResolutionFailed)
    assert (away.status, away.retryable) == (503, True)
    settings.HELIX_AGENTS = {declared.name: declared}
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"


def test_a_run_that_was_replaced_without_its_calls_stores_nothing(world: World, agent: AgentMaker) -> None:
    """R-068: the fence is judged under the lock, against the session's current run."""
    session_id, _ = waiting(world, agent)
    old = current_run(session_id)
    other = Run.objects.create(
        session_id=session_id, number=9, turn=9, cause="execute", started_by="owner", status="completed", ended_at=T0
    )
    Session.objects.filter(pk=session_id).update(current_run=other)
    refusal = refused(world, session_id, lambda: world.submit(session_id, "c1", result=1), RunSupersededError)
    assert refusal.fields == {"runId": str(old.id)}
    Session.objects.filter(pk=session_id).update(current_run=old)
    assert world.submit(session_id, "c1", result=1)["status"] == "accepted"


def test_a_named_run_is_the_calls_or_one_that_it_was_taken_over_from(world: World, agent: AgentMaker) -> None:
    """R-068, R-069: a submit that meets a take-over lands on the new run, under the old run's name too."""
    session_id, model = waiting(world, agent)
    old = current_run(session_id)
    sweeping_since(world.tick(seconds=300))
    world.sweep()  # the timeout is stored and its continuation has taken the call over
    new = current_run(session_id)
    assert new.id != old.id and call_named(session_id, "locate").run_id == new.id
    world.hints.clear()
    foreign = str(uuid4())
    refused(world, session_id, lambda: world.submit(session_id, "c1", run_id=foreign, result=1), RunSupersededError)
    landed = world.submit(session_id, "c1", run_id=str(old.id), result="late, but real")
    assert landed["status"] == "accepted" and landed["continuation"]["runId"] == str(new.id)
    world.sweep()
    world.drain()
    assert model.results_seen() == {"c1": "late, but real"} and model.asked == 2


def test_a_recorded_stop_is_read_before_anything_is_stored(world: World, agent: AgentMaker) -> None:
    """R-070: the stop is resolved, the answer is not kept and nothing continues."""
    session_id, model = waiting(world, agent)
    Run.objects.filter(session_id=session_id).update(stop_kind="interrupt", stop_requested_at=world.now)
    with pytest.raises(UnknownToolCall) as refusal:
        world.submit(session_id, "c1", result=1)
    assert refusal.value.fields["reason"] == "run_stopped"
    row = call_named(session_id, "locate")
    assert (row.state, row.answer_json) == ("discarded", None)
    world.drain()
    assert session_of(session_id).status == "interrupted" and model.asked == 1


def test_an_unanswered_call_of_a_failed_run_is_never_answerable_again(world: World, agent: AgentMaker) -> None:
    """R-079: its body was lost too often, so the run failed while its client call was still held."""
    bodies = Bodies()
    model = ScriptedModel([call("add", "s1"), call("locate", "c1")])
    session_id = world.start(agent(model, tools=[locate, bodies.tool("add", replay="safe")]))
    for owner, name in [(execution, "_record_body")] * 3 + [(finish, "_suspend")]:
        with worker_dies_in(owner, name):
            world.drain()
        for _ in range(3):  # hints of a lost run come with pauses
            world.tick(seconds=31)
            world.sweep()
    world.drain()
    assert current_run(session_id).error_code == "framework_auto_resume_exhausted"
    for _ in "twice":
        with pytest.raises(UnknownToolCall) as refusal:
            world.submit(session_id, "c1", result=1)
        assert refusal.value.fields["reason"] == "run_failed"


def test_a_call_that_a_rewind_took_back_answers_rewound(world: World, agent: AgentMaker) -> None:
    """R-076: the rewind went to before the step that asked."""
    model = ScriptedModel(["Hello."], [call("locate", "c1")], ["Hello again."])
    session_id = world.started(agent(model, tools=[locate]))
    point = Checkpoint.objects.get().checkpoint_id
    world.send(session_id, "where am I?")
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"]
    rewind.rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=point, now=world.now)
    refusal = refused(world, session_id, lambda: world.submit(session_id, "c1", result=1), UnknownToolCall)
    assert refusal.fields["reason"] == "rewound"


def test_an_operator_answers_in_any_session_and_is_named_in_the_audit(world: World, agent: AgentMaker) -> None:
    """R-084, B-31: who answered is known."""
    session_id, _ = waiting(world, agent)
    assert not pending(session_id)[0].audit.exists()
    world.submit(session_id, "c1", principal=OPERATOR, error="given up")
    assert [(row.actor, row.action) for row in CallAudit.objects.all()] == [("operator", "submit_error")]
