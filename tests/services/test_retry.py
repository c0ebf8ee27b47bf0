"""Retries: of a model's step by due times, of a failed turn by its owner (5.P, R-132)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from helix.agents import Agent, StepContext, registered
from helix.errors import AlreadyRunning, NotResumable
from helix.loop import ModelError
from helix.models import Message, Run
from helix.rows import runs
from helix.services.advance.claim import claim_run
from helix.services.retry import retry_run
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import OWNER, World, current_run, events, results, said, session_of

pytestmark = pytest.mark.django_db

BUSY = ModelError("try later", code="provider_rate_limited", retryable=True)
REFUSED = ModelError("no such model", code="provider_error", retryable=False)


def retry(world: World, session_id: Any, text: str | None = None) -> runs.Entered:
    return retry_run(
        principal=OWNER, session_id=str(session_id), now=world.now, message=None if text is None else said(text)
    )


# -- a model's step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovers", [True, False])
def test_a_retryable_model_error_is_tried_three_more_times_at_due_times(
    world: World, agent: AgentMaker, recovers: bool
) -> None:
    """R-494, RT-22: after 1, 2 and 4 seconds, as due times on the row; nobody sleeps and no step is counted."""
    model = ScriptedModel(BUSY, BUSY, BUSY, ["done"] if recovers else BUSY)
    session_id = world.started(agent(model))
    waited = []
    for seconds in (1, 2, 4):
        run = current_run(session_id)
        assert run.status == "queued" and run.next_attempt_at == world.now + timedelta(seconds=seconds)
        assert session_of(session_id).status == "queued"
        world.tick(seconds=seconds - 0.5)
        world.sweep()
        assert world.drain() == 0
        world.tick(seconds=0.5)
        world.sweep()
        world.drain()
        waited.append(model.asked)
    run = current_run(session_id)
    assert waited == [2, 3, 4] and Run.objects.count() == 1
    assert [told["error"]["retryInMs"] for told in events(session_id, "error")] == [1000, 2000, 4000]
    if recovers:
        assert (run.status, run.step_count, run.model_attempts) == ("completed", 1, 0)
    else:
        assert (run.status, run.error_code) == ("failed", "provider_rate_limited")
        assert run.error_detail is not None and run.error_detail["retryable"] is True


def test_an_error_that_is_not_retryable_is_not_tried_again(world: World, agent: AgentMaker) -> None:
    """R-494: the control of the test above."""
    model = ScriptedModel(REFUSED, ["done"])
    session_id = world.started(agent(model))
    world.wait(minutes=1)
    assert world.drain() == 0 and model.asked == 1 and current_run(session_id).error_code == "provider_error"


def test_each_step_has_its_own_attempts(world: World, agent: AgentMaker) -> None:
    """R-494: a committed reply begins the count anew."""
    model = ScriptedModel(BUSY, [call("add", number=1)], BUSY, BUSY, BUSY, ["done"])
    session_id = world.started(agent(model, tools=[Bodies().tool("add")]))
    for _ in range(4):
        world.wait(seconds=4)
        world.drain()
    assert model.asked == 6 and session_of(session_id).status == "idle"


# -- a continuation that fails to start --------------------------------------------------------------------------------


@pytest.mark.parametrize("recovers", [True, False])
def test_a_continuation_that_fails_before_it_asked_for_anything_starts_again(world: World, recovers: bool) -> None:
    """R-132: an unclassified failure, under the crash budget; then exhausted, with the last failure as cause."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    asked: list[int] = []

    def choose(step: StepContext) -> str:
        asked.append(step.step)
        if step.step and not (recovers and len(asked) == 5):
            raise LookupError("no model today")
        return model.name

    declared = Agent("chooses", model=choose, tools=[locate])
    with registered(declared):
        session_id = world.started(declared)
        world.submit(session_id, "c1", result=1)
        for _ in range(6):
            world.drain()
            world.wait(seconds=30)
    run = current_run(session_id)
    assert len(asked) == 5
    if recovers:
        assert run.status == "completed" and model.results_seen() == {"c1": "1"}
    else:
        assert run.error_code == "framework_auto_resume_exhausted" and run.error_detail is not None
        assert run.error_detail["cause"] == "LookupError" and results(session_id)["c1"]["value"] == 1


def test_a_failure_after_the_model_was_asked_fails_the_run_at_once(world: World, agent: AgentMaker) -> None:
    """R-132, Q-11: what was begun may have had effects; the outcome is visible."""
    model = ScriptedModel([call("locate", "c1")], KeyError("a bug"))
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    run = current_run(session_id)
    assert (run.status, run.error_code) == ("failed", "framework_internal") and model.asked == 2
    assert run.error_detail is not None and run.error_detail["cause"] == "KeyError"


# -- a failed turn -----------------------------------------------------------------------------------------------------


def test_a_turn_that_committed_nothing_runs_again_from_its_own_input(world: World, agent: AgentMaker) -> None:
    """R-491, RT-16, U-06: without a message; the log has the user's words once."""
    model = ScriptedModel(REFUSED, ["done"])
    session_id = world.started(agent(model))
    retry(world, session_id)
    assert session_of(session_id).status == "queued"
    world.drain()
    assert session_of(session_id).status == "idle" and current_run(session_id).cause == "retry"
    assert [row.parts[0]["text"] for row in session_of(session_id).messages.order_by("position")] == ["hello", "done"]
    assert events(session_id, "stream_resync") == []


def test_after_committed_steps_a_retry_says_how_to_go_on(world: World, agent: AgentMaker) -> None:
    """R-492: refused without a message, and then nothing is written; committed results are kept."""
    bodies = Bodies()
    model = ScriptedModel([call("add", "a1", number=1)], REFUSED, ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("add")]))
    before = Run.objects.count(), Message.objects.count()
    with pytest.raises(NotResumable) as refused:
        retry(world, session_id)
    assert refused.value.fields["cause"] == "message_needed"
    assert (Run.objects.count(), Message.objects.count()) == before
    retry(world, session_id, "try again")
    world.drain()
    assert [m.role for m in model.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    assert bodies.ran == [("add", 1)] and session_of(session_id).status == "idle"


def test_a_retry_after_half_a_reply_tells_readers_to_read_again_once(world: World, agent: AgentMaker) -> None:
    """R-493: what was streamed stands behind no commit."""

    def half(request: Any) -> Any:
        yield "half of"
        raise REFUSED

    model = ScriptedModel(half, ["done"])
    session_id = world.started(agent(model))
    assert [told["delta"] for told in events(session_id, "text_delta")] == ["half of"]
    retry(world, session_id)
    world.drain()
    assert [told["reason"] for told in events(session_id, "stream_resync")] == ["retry"]
    assert [row.parts[0]["text"] for row in Message.objects.filter(role="assistant")] == ["done"]


def test_a_retry_has_a_fresh_budget_of_steps(world: World, agent: AgentMaker) -> None:
    """R-014, R-492: the cap that ended the turn does not end the retry at once."""
    model = ScriptedModel([call("add", "a1", number=1)], [call("add", "a2", number=2)], ["done"])
    session_id = world.started(agent(model, tools=[Bodies().tool("add")], max_steps=2))
    assert current_run(session_id).error_code == "framework_max_steps_exceeded"
    retry(world, session_id, "finish it")
    world.drain()
    assert session_of(session_id).status == "idle" and current_run(session_id).step_count == 1


def test_a_retry_after_a_message_that_gave_calls_up_is_like_any_other(world: World, agent: AgentMaker) -> None:
    """R-490: results, then the message, once each."""
    model = ScriptedModel([call("locate", "c1")], REFUSED, ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.send(session_id, "never mind", abandon_pending=True)
    world.drain()
    assert session_of(session_id).status == "failed"
    retry(world, session_id)
    world.drain()
    shape = [(m.role, m.tool_call_id) for m in model.requests[-1].messages]
    assert shape == [("user", None), ("assistant", None), ("tool", "c1"), ("user", None)]
    assert session_of(session_id).status == "idle"


def test_a_retry_goes_only_where_a_turn_has_failed(world: World, agent: AgentMaker) -> None:
    """R-495, R-497, R-450: not a live one, not a finished one, not one that another entry finished meanwhile."""
    model = ScriptedModel(REFUSED, ["done"])
    session_id = world.started(agent(model))
    world.send(session_id, "another way")
    with pytest.raises(AlreadyRunning):
        retry(world, session_id)
    world.drain()
    finished = current_run(session_id)
    with pytest.raises(NotResumable):
        retry(world, session_id)
    assert current_run(session_id) == finished and session_of(session_id).status == "idle"


def test_an_answer_that_was_stored_survives_the_failure_and_its_retry(world: World, agent: AgentMaker) -> None:
    """R-565, R-496: after trouble one looks at what is stored, then retries; the answer is read once."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    declared = agent(model, tools=[locate])
    session_id = world.started(declared)
    assert world.submit(session_id, "c1", result="here")["status"] == "accepted"
    run = current_run(session_id)
    Run.objects.filter(pk=run.pk).update(crash_count=3)
    for _ in range(2):
        _take_and_vanish(world, run)
    assert session_of(session_id).status == "failed"
    repeated = world.submit(session_id, "c1", result="here")
    assert repeated["status"] == "already_completed"
    retry(world, session_id)
    world.drain()
    assert model.results_seen() == {"c1": "here"} and model.asked == 2 and session_of(session_id).status == "idle"


def _take_and_vanish(world: World, run: Run) -> None:
    claim_run(run.id, now=world.now)
    world.drop_hints()
    world.tick(seconds=31)
