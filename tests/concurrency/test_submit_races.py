"""Races of a submit, both orders each: with itself, its sibling, a deadline, a drain, an abandoning message.

Every race is the whole interleaving of `meet`: both verbs have read what they read without the lock, and the one that
comes second is seen waiting for it.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from helix.errors import AlreadyRunning, NotResumable, UnknownToolCall
from helix.models import CallAudit, Checkpoint, Message, PendingCall, Run
from helix.services import deadlines
from helix.services.advance import advance_run
from helix.services.rewind import rewind
from tests.fixtures import AgentMaker
from tests.kit.interleave import BOTH_ORDERS, Side, meet
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import OPERATOR, OWNER, World, call_named, current_run, results, session_of

pytestmark = [pytest.mark.django_db(transaction=True), BOTH_ORDERS]


def result_rows(tool_call_id: str) -> int:
    return Message.objects.filter(tool_call_id=tool_call_id, role="tool", rolled_back_by=None).count()


def kinds(*answers: dict) -> list[str]:
    return [answer["continuation"]["kind"] for answer in answers]


def continuations() -> int:
    return Run.objects.filter(cause="continuation").count()


def test_of_two_answers_of_one_call_one_is_kept(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-01, R-065, R-269."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answers = meet(
        lambda: world.submit(session_id, "c1", result="left"),
        lambda: world.submit(session_id, "c1", result="right"),
        swapped=swapped,
    )
    assert [answer["status"] for answer in answers] == (
        ["already_completed", "accepted"] if swapped else ["accepted", "already_completed"]
    )
    world.drain()
    assert model.results_seen() == {"c1": "right" if swapped else "left"}
    assert (result_rows("c1"), model.asked, continuations()) == (1, 2, 1)


def test_the_last_two_answers_of_a_batch_queue_one_continuation(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-02, R-067, R-105, R-139, R-141, R-142: there is one answer to who was last."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answers = meet(
        lambda: world.submit(session_id, "c1", result=1),
        lambda: world.submit(session_id, "c2", result=2),
        swapped=swapped,
    )
    assert kinds(*answers) == (["new_run", "awaiting_batch"] if swapped else ["awaiting_batch", "new_run"])
    assert continuations() == 1
    world.drain()
    assert model.results_seen() == {"c1": "1", "c2": "2"} and model.asked == 2


def test_the_last_answer_and_a_resume_name_one_run(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-03, R-112, R-123, R-139: a resume that comes after adopts; one that comes before is refused."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answer, resumed = meet(
        lambda: world.submit(session_id, "c1", result=1), lambda: world.resume(session_id), swapped=swapped
    )
    assert answer["continuation"]["kind"] == "new_run"
    if swapped:
        assert isinstance(resumed, NotResumable) and resumed.fields["toolCallIds"] == ["c1"]
    else:
        assert resumed.run_id == answer["continuation"]["runId"]
        assert resumed.start_sequence == answer["continuation"]["startSequence"]
    world.drain()
    assert (continuations(), model.asked) == (1, 2)


def test_an_answer_and_a_stop_never_leave_a_stored_answer_that_continues(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-04, R-413, R-414, R-416, R-426."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answer, stopped = meet(
        lambda: world.submit(session_id, "c1", result=1), lambda: world.stop(session_id), swapped=swapped
    )
    if swapped:
        assert isinstance(answer, UnknownToolCall) and answer.fields["reason"] == "run_stopped"
    else:
        assert answer["status"] == "accepted"
    assert stopped.outcome == "resolved"
    world.drain()
    assert session_of(session_id).status == "interrupted"
    assert results(session_id)["c1"]["errorCode"] == "run_stopped" and model.asked == 1
    with pytest.raises(UnknownToolCall):
        world.submit(session_id, "c1", result=1)


def test_an_answer_and_its_deadline_leave_the_real_result(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-05, R-270, R-271: a stored timeout that nobody consumed is replaced."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], client_tool_timeout_ms=1000))
    now = world.tick(seconds=2)
    answer, lapsed = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        lambda: deadlines.lapse_calls(root_id=session_id, now=now),
        swapped=swapped,
    )
    assert (answer["status"], lapsed) == ("accepted", 1 if swapped else 0)
    world.drain()
    assert model.results_seen() == {"c1": "here"}
    assert (result_rows("c1"), continuations(), model.asked) == (1, 1, 2)


def test_an_answer_and_the_drain_of_its_timeout_leave_one_result(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-05, R-271, R-272: before the drain it replaces the timeout, after it the answer is late."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], client_tool_timeout_ms=1000))
    deadlines.lapse_calls(root_id=session_id, now=world.tick(seconds=2))
    run_id = current_run(session_id).id
    answer, worked = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        Side(lambda: advance_run(run_id, clock=world.clock), transaction=2),
        swapped=swapped,
    )
    assert worked and result_rows("c1") == 1 and model.asked == 2
    if swapped:
        assert answer == {"status": "late_answer_after_timeout"}
        assert results(session_id)["c1"]["errorCode"] == "client_tool_timeout"
    else:
        assert answer["continuation"] == {"kind": "deferred", "blockingRunId": str(run_id)}
        assert results(session_id)["c1"]["text"] == "here"


def test_an_answer_that_meets_the_take_over_lands_on_the_new_run(
    world: World, agent: AgentMaker, swapped: bool
) -> None:
    """X-06, R-068, R-106, R-107: it names the old run and is stored on the one that took the call over."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], client_tool_timeout_ms=1000))
    old = current_run(session_id)
    world.tick(seconds=2)
    answer, resumed = meet(
        lambda: world.submit(session_id, "c1", result="here", run_id=str(old.id)),
        lambda: world.resume(session_id),
        swapped=swapped,
    )
    assert answer["status"] == "accepted" and answer["continuation"]["runId"] == resumed.run_id != str(old.id)
    assert call_named(session_id, "locate").run_id == UUID(resumed.run_id)
    world.drain()
    assert model.results_seen() == {"c1": "here"} and (continuations(), model.asked) == (1, 2)


def test_an_answer_that_meets_a_rewind_is_asked_again(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-07, R-103: the restored state had no answer, so one given before is asked for again, one given after counts."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    checkpoint = Checkpoint.objects.get(session_id=session_id).checkpoint_id
    answer, _ = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        lambda: rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=checkpoint, now=world.now),
        swapped=swapped,
    )
    assert answer["status"] == "accepted" and model.asked == 1
    first = PendingCall.objects.get(tool_call_id="c1")
    assert (first.state, first.answer_json) == (("answered", '"here"') if swapped else ("awaiting", None))


def test_an_answer_of_a_call_that_a_rewind_takes_back(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-07: outside the restored state the call is `rewound`, whatever it was answered."""
    model = ScriptedModel(["first turn"], [call("locate", "c1"), call("locate", "c2")], ["again"])
    session_id = world.started(agent(model, tools=[locate]))
    checkpoint = Checkpoint.objects.get(session_id=session_id).checkpoint_id
    world.send(session_id, "where am I?")
    world.drain()
    answer, _ = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        lambda: rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=checkpoint, now=world.now),
        swapped=swapped,
    )
    if swapped:
        assert isinstance(answer, UnknownToolCall) and answer.fields["reason"] == "rewound"
    else:
        assert answer["status"] == "accepted"
    with pytest.raises(UnknownToolCall) as again:
        world.submit(session_id, "c1", result="here")
    assert again.value.fields["reason"] == "rewound"
    world.drain()
    assert result_rows("c1") == 0


def test_an_answer_and_an_abandoning_message_keep_the_first(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-08, R-460: a stored answer stays; an abandoned call tells a later one that it is closed."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answer, _ = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        lambda: world.send(session_id, "never mind", abandon_pending=True),
        swapped=swapped,
    )
    assert answer["status"] == ("already_completed" if swapped else "accepted")
    world.drain()
    codes = {key: part["errorCode"] for key, part in results(session_id).items()}
    assert codes == {"c1": "client_tool_abandoned" if swapped else None, "c2": "client_tool_abandoned"}
    assert model.asked == 2


def test_the_last_answer_leaves_nothing_to_abandon(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-08, R-462: after it the session is busy and the message is not stored."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    answer, sent = meet(
        lambda: world.submit(session_id, "c1", result="here"),
        lambda: world.send(session_id, "never mind", abandon_pending=True),
        swapped=swapped,
    )
    world.drain()
    said = [m.parts[0]["text"] for m in Message.objects.filter(session_id=session_id, role="user").order_by("position")]
    if swapped:
        assert answer["status"] == "already_completed" and said == ["hello", "never mind"]
    else:
        assert isinstance(sent, AlreadyRunning) and said == ["hello"]
    assert model.asked == 2


def test_two_approvals_run_the_body_once(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-16, R-169, R-170."""
    bodies = Bodies()
    model = ScriptedModel([call("pay", "p1", number=5)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    answers = meet(
        lambda: world.decide(asked, principal=OWNER), lambda: world.decide(asked, principal=OPERATOR), swapped=swapped
    )
    assert sorted(answer["status"] for answer in answers) == ["accepted", "already_completed"]
    world.drain()
    assert bodies.ran == [("pay", 5)]
    assert list(CallAudit.objects.values_list("actor", flat=True)) == ["operator" if swapped else "owner"]


def test_of_an_approval_and_a_denial_the_first_stands(world: World, agent: AgentMaker, swapped: bool) -> None:
    """X-17."""
    bodies = Bodies()
    model = ScriptedModel([call("pay", "p1", number=5)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    approved, denied = meet(lambda: world.decide(asked), lambda: world.decide(asked, approved=False), swapped=swapped)
    assert (approved["status"], denied["status"]) == (
        ("already_completed", "accepted") if swapped else ("accepted", "already_completed")
    )
    world.drain()
    assert bodies.ran == ([] if swapped else [("pay", 5)])
    assert results(session_id)["p1"]["errorCode"] == ("approval_denied" if swapped else None)
