"""Entries: one writer at a time, and a message never comes between a call and its result (5.O)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from helix.agents import FINISH_TOOL_NAME
from helix.errors import AlreadyCompleted, AlreadyRunning, NotResumable
from helix.models import Message, PendingCall, Run, Session
from helix.rows.holdings import HOLDINGS
from helix.services.advance import advance_run
from helix.services.advance.claim import claim_run
from helix.statuses import RUN_FINAL
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import World, call_named, current_run, events, results, said, session_of

pytestmark = pytest.mark.django_db


def finish(**output: object) -> object:
    return call(FINISH_TOOL_NAME, **output)


def shape(model: ScriptedModel, number: int = -1) -> list[tuple[str, str | None]]:
    """The log as the model read it: roles and call ids, the text of what a user said."""
    read = model.requests[number].messages
    return [(m.role, m.parts[0]["text"] if m.role == "user" else m.tool_call_id) for m in read]


# -- one writer --------------------------------------------------------------------------------------------------------


def test_an_entry_on_a_live_session_is_busy_and_writes_nothing(world: World, agent: AgentMaker) -> None:
    """R-450, R-466: queued or running, by message or by resume; the same message is taken when the turn is over."""
    session_id = world.start(agent(ScriptedModel(["one"], ["two"])))
    before = _everything(session_id)
    for _ in ("queued", "running"):
        for verb in (
            lambda: world.send(session_id, "more"),
            lambda: world.send(session_id, "more", abandon_pending=True),
            lambda: world.resume(session_id),
            lambda: world.resume(session_id, mode="with_message", message=said("more")),
        ):
            with pytest.raises(AlreadyRunning) as refused:
                verb()
            assert refused.value.fields["runId"] == str(current_run(session_id).id)
        assert _everything(session_id) == before
        claim_run(current_run(session_id).id, now=world.now)
        before = _everything(session_id)
    world.wait(seconds=31)
    world.drain()
    world.send(session_id, "more")


def _everything(session_id: UUID) -> Any:
    rows = (Session, Run, Message, PendingCall)
    return [list(table.objects.order_by("pk").values()) for table in rows]


def test_the_next_turn_sees_the_whole_conversation_and_its_state(world: World, agent: AgentMaker) -> None:
    """R-451, R-452, R-467: messages and state stay; a finished turn leaves nothing to resume."""
    model = ScriptedModel(["one"], ["two"])
    session_id = world.started(agent(model), state={"kept": 1})
    with pytest.raises(AlreadyCompleted):
        world.resume(session_id)
    entered = world.send(session_id, "more")
    world.drain()
    assert shape(model) == [("user", "hello"), ("assistant", None), ("user", "more")]
    assert session_of(session_id).state == {"kept": 1} and current_run(session_id).turn == 2
    assert entered.start_sequence > 1 and session_of(session_id).stream_floor == 1


def test_continue_needs_a_complete_batch(world: World, agent: AgentMaker) -> None:
    """R-454: else it is refused with the calls that wait, and nothing is written."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate], continue_on_submit=False))
    world.submit(session_id, "c1", result=1)
    with pytest.raises(NotResumable) as refused:
        world.resume(session_id)
    assert refused.value.fields["toolCallIds"] == ["c2"]
    world.submit(session_id, "c2", result=2)
    world.resume(session_id)
    world.drain()
    assert model.asked == 2 and session_of(session_id).status == "idle"


def test_continue_on_an_interrupted_session_goes_on_from_the_log(world: World, agent: AgentMaker) -> None:
    """R-454, R-457, RT-15: every call is paired, and the new run asks the model with that."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.stop(session_id)
    world.resume(session_id)
    world.drain()
    assert shape(model) == [("user", "hello"), ("assistant", None), ("tool", "c1")]
    assert current_run(session_id).cause == "resume_continue" and session_of(session_id).status == "idle"


# -- a message on a paused session -------------------------------------------------------------------------------------


def test_results_come_before_the_message_and_one_model_call_follows(world: World, agent: AgentMaker) -> None:
    """R-455, R-208: a deferred finish call's result too."""
    model = ScriptedModel([call("locate", "c1"), call(FINISH_TOOL_NAME, "f1", n=1)], [finish(n=2)])
    declared = agent(model, tools=[locate], continue_on_submit=False, output_schema={"type": "object"})
    session_id = world.started(declared)
    world.submit(session_id, "c1", result="here")
    world.resume(session_id, mode="with_message", message=said("and then?"))
    world.drain()
    assert shape(model)[2:] == [("tool", "c1"), ("tool", "f1"), ("user", "and then?")]
    assert results(session_id)["f1"]["errorCode"] == "not_executed" and model.asked == 2
    assert current_run(session_id).output == {"n": 2}


def test_a_message_on_a_partial_batch_is_refused_with_the_calls_that_wait(world: World, agent: AgentMaker) -> None:
    """R-463, R-466: nothing is stored, unless it gives them up."""
    session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    before = _everything(session_id)
    with pytest.raises(NotResumable) as refused:
        world.send(session_id, "more")
    assert refused.value.fields["toolCallIds"] == ["c1"] and refused.value.retryable
    assert _everything(session_id) == before


def test_giving_up_keeps_stored_answers_and_asks_the_model_once(world: World, agent: AgentMaker) -> None:
    """R-460, RT-13, B-17: no separate continuation; the given-up call says so, the answered one keeps its answer."""
    bodies = Bodies()
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2"), call("pay", "p1")], ["fine"])
    session_id = world.started(agent(model, tools=[locate, bodies.tool("pay", require_approval=True)]))
    world.submit(session_id, "c1", result="here")
    world.send(session_id, "never mind", abandon_pending=True)
    world.drain()
    codes = {name: part["errorCode"] for name, part in results(session_id).items()}
    assert codes == {"c1": None, "c2": "client_tool_abandoned", "p1": "client_tool_abandoned"}
    assert shape(model)[2:] == [("tool", "c1"), ("tool", "c2"), ("tool", "p1"), ("user", "never mind")]
    assert model.asked == 2 and bodies.ran == [] and not Run.objects.filter(cause="continuation").exists()
    assert [one["outcome"] for one in events(session_id, "call_answered")] == ["result", "abandoned", "abandoned"]


def test_nothing_is_left_to_give_up_once_the_last_answer_is_in(world: World, agent: AgentMaker) -> None:
    """R-462: busy, nothing written; the continuation goes on."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    before = _everything(session_id)
    with pytest.raises(AlreadyRunning):
        world.send(session_id, "never mind", abandon_pending=True)
    assert _everything(session_id) == before
    world.drain()
    assert model.results_seen() == {"c1": "1"}


def test_giving_up_closes_children_that_only_wait_with_all_below_them(world: World, agent: AgentMaker) -> None:
    """R-461, R-458, B-16, B-17: one model call; what a child was told stays in its log, what was not is given up."""
    bottom = ScriptedModel([call("locate", "deep"), call("locate", "told")], [finish(n=1)])
    below = child_agent("below", bottom, tools=[locate])
    middle = ScriptedModel([call("subagent__below", "to-below", task="go")], [finish(n=2)])
    child = child_agent("between", middle, sub_agents=[below])
    model = ScriptedModel([call("locate", "c1"), call("subagent__between", "to-between", task="go")], ["fine"])
    session_id = world.started(agent(model, tools=[locate], sub_agents=[child]))
    world.submit(session_id, "told", result="kept")
    with pytest.raises(NotResumable):
        world.send(session_id, "never mind")
    world.send(session_id, "never mind", abandon_pending=True)
    world.drain()
    assert shape(model)[2:] == [("tool", "c1"), ("tool", "to-between"), ("user", "never mind")]
    assert (model.asked, middle.asked, bottom.asked) == (2, 1, 1)
    assert not Run.objects.exclude(session_id=session_id).exclude(status="interrupted").exists()
    codes = dict(PendingCall.objects.values_list("tool_call_id", "error_code"))
    assert codes == {**dict.fromkeys(["c1", "to-between", "to-below", "deep"], "client_tool_abandoned"), "told": None}
    assert results(call_named(session_id, "locate").session_id)["told"]["text"] == "kept"
    assert session_of(session_id).status == "idle"
    assert world.submit(session_id, "deep", result=1)["status"] == "already_completed"


def test_a_child_that_computes_is_not_given_up(world: World, agent: AgentMaker) -> None:
    """R-461, R-450: busy, and nothing is written, not even for the calls that only wait."""
    child = child_agent("works", ScriptedModel([finish(n=1)]))
    model = ScriptedModel([call("locate", "c1"), call("subagent__works", "to", task="go")], ["done"])
    session_id = world.start(agent(model, tools=[locate], sub_agents=[child]))
    advance_run(current_run(session_id).id, clock=world.clock)
    before = _everything(session_id)
    for state in ("queued", "running"):
        with pytest.raises(AlreadyRunning):
            world.send(session_id, "never mind", abandon_pending=True)
        assert _everything(session_id) == before, state
        claim_run(Session.objects.get(parent_id=session_id).current_run_id, now=world.now)  # type: ignore[arg-type]
        before = _everything(session_id)
    world.wait(seconds=31)
    world.drain()
    world.send(session_id, "never mind", abandon_pending=True)
    world.drain()
    assert model.results_seen()["to"] == '{"n":1}' and model.asked == 2


def test_a_message_waits_behind_the_results_of_children_that_ended(world: World, agent: AgentMaker) -> None:
    """R-458, R-208, B-16: the caller resumes a batch of a client call and a child with a message."""
    child = child_agent("works", ScriptedModel([finish(n=1)]))
    model = ScriptedModel([call("locate", "c1"), call("subagent__works", "to", task="go")], ["done"])
    session_id = world.started(agent(model, tools=[locate], sub_agents=[child], continue_on_submit=False))
    world.submit(session_id, "c1", result=1)
    assert session_of(session_id).status == "queued"
    world.resume(session_id, mode="with_message", message=said("and then?"))
    world.drain()
    assert shape(model)[2:] == [("tool", "c1"), ("tool", "to"), ("user", "and then?")] and model.asked == 2


def test_a_message_to_a_session_whose_worker_was_lost_comes_after_its_results(world: World, agent: AgentMaker) -> None:
    """R-456, R-468, R-469, RT-20: the drain had not begun; stored answers go first, then the message."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result="here")
    assert claim_run(current_run(session_id).id, now=world.now) is not None
    world.drop_hints()
    with pytest.raises(AlreadyRunning):
        world.send(session_id, "still there?")
    world.tick(seconds=31)
    assert HOLDINGS.get(current_run(session_id).id) is None
    world.send(session_id, "still there?")
    world.drain()
    assert shape(model)[2:] == [("tool", "c1"), ("user", "still there?")]
    assert model.results_seen() == {"c1": "here"} and session_of(session_id).status == "idle"


def test_a_message_of_a_lost_run_is_not_lost_either(world: World, agent: AgentMaker) -> None:
    """R-456, C-032: it had not reached the log; it stands before the one that found the lost worker."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.send(session_id, "first", abandon_pending=True)
    assert claim_run(current_run(session_id).id, now=world.now) is not None
    world.drop_hints()
    world.tick(seconds=31)
    world.send(session_id, "second")
    world.drain()
    said_last = model.requests[-1].messages[-1]
    assert [part["text"] for part in said_last.parts] == ["first", "second"]
    assert shape(model)[2] == ("tool", "c1") and model.asked == 2


def test_an_entry_finds_every_call_of_an_interrupted_session_paired(world: World, agent: AgentMaker) -> None:
    """R-457: whatever cut it, the model reads a result for each call."""
    bodies = Bodies()
    model = ScriptedModel([call("locate", "c1"), call("pay", "p1"), call("locate", "c2")], ["fine"])
    session_id = world.started(agent(model, tools=[locate, bodies.tool("pay", require_approval=True)]))
    world.stop(session_id)
    world.send(session_id, "go on")
    world.drain()
    assert set(model.results_seen()) == {"c1", "p1", "c2"} and current_run(session_id).status in RUN_FINAL
