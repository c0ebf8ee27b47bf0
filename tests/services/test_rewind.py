"""Checkpoints after each step, and going back to one (5.R, RT-21, P-08, P-16)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from helix.agents import FINISH_TOOL_NAME, ToolContext, tool
from helix.errors import AlreadyRunning, NotFound, NotResumable, UnknownToolCall
from helix.models import CallOwnership, CallTombstone, Checkpoint, Message, PendingCall, Run
from helix.rows import runs
from helix.services.rewind import rewind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import OWNER, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db


def points(session_id: UUID) -> list[Checkpoint]:
    """Oldest first."""
    return list(Checkpoint.objects.filter(session_id=session_id).order_by("pk"))


def back_to(world: World, session_id: UUID, point: Checkpoint | str) -> runs.Entered:
    name = point if isinstance(point, str) else point.checkpoint_id
    return rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=name, now=world.now)


def texts(session_id: UUID) -> list[Any]:
    rows = Message.objects.filter(session_id=session_id, rolled_back_by=None).order_by("position")
    return [row.tool_call_id or row.parts[0].get("text") for row in rows]


# -- when they are written ---------------------------------------------------------------------------------------------


def test_each_step_and_each_suspension_leaves_a_checkpoint(world: World, agent: AgentMaker) -> None:
    """R-566, RT-04: after the bodies of a step, after an invalid call, at a suspension, after its drain, at the end."""
    model = ScriptedModel(
        [call("add", "a1", number=1), call("add", "a2", number=2)],
        [call("nobody", "x1")],
        [call("locate", "c1")],
        ["done"],
    )
    session_id = world.started(agent(model, tools=[Bodies().tool("add"), locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    written = points(session_id)
    assert [point.step_count for point in written] == [1, 2, 3, 3, 4]
    assert [[one["toolCallId"] for one in point.calls] for point in written] == [[], [], ["c1"], [], []]
    assert len(events(session_id, "checkpoint_created")) == 5
    positions = [point.message_position for point in written]
    assert positions == sorted(positions) and positions[0] == 4


def test_the_latest_checkpoint_is_the_last_written(world: World, agent: AgentMaker) -> None:
    """R-465, B-27: a second turn counts its steps from one, and resumes whole."""
    model = ScriptedModel([call("add", "a1", number=1)], ["first turn"], ["second turn"], ["again"])
    session_id = world.started(agent(model, tools=[Bodies().tool("add")]))
    world.send(session_id, "more")
    world.drain()
    newest = points(session_id)[-1]
    assert [point.step_count for point in points(session_id)] == [1, 2, 1]
    back_to(world, session_id, newest)
    world.drain()
    assert texts(session_id) == ["hello", None, "a1", "first turn", "more", "second turn", "again"]


def test_what_a_suspension_needs_is_on_its_rows(world: World, agent: AgentMaker) -> None:
    """R-562: the step, the children that are waited for, and the trace, which the continuation takes over."""
    child = child_agent("scout", ScriptedModel([call("locate", "c1")], [call(FINISH_TOOL_NAME, n=1)]), tools=[locate])
    session_id = world.start(
        agent(ScriptedModel([call("subagent__scout", "to", task="go")], ["done"]), sub_agents=[child])
    )
    trace = {"traceparent": "00-1-2-01"}
    Run.objects.filter(session_id=session_id).update(trace_context=trace)
    world.drain()
    suspended = current_run(session_id)
    awaited = PendingCall.objects.get(run=suspended, state="executing")
    assert awaited.step_id == suspended.step_id != "" and awaited.tool_call_id == "to"
    world.submit(session_id, "c1", result=1)
    world.drain()
    assert current_run(session_id) != suspended and current_run(session_id).trace_context == trace


# -- going back --------------------------------------------------------------------------------------------------------


def test_a_rewind_hides_what_came_later_and_deletes_nothing(world: World, agent: AgentMaker) -> None:
    """R-493, R-566: one resync; positions are never used twice; the custom state is what it was."""

    @tool
    def note(where: ToolContext, text: str) -> str:
        """Write a note."""
        where.set_state("note", text)
        return text

    model = ScriptedModel([call("note", "n1", text="one")], [call("note", "n2", text="two")], ["done"], ["other"])
    session_id = world.started(agent(model, tools=[note]))
    rows, position = Message.objects.count(), session_of(session_id).message_position
    assert session_of(session_id).state == {"note": "two"}
    entered = back_to(world, session_id, points(session_id)[0])
    assert session_of(session_id).state == {"note": "one"} and Message.objects.count() == rows
    world.drain()
    assert texts(session_id) == ["hello", None, "n1", "other"]
    assert Message.objects.get(rolled_back_by=None, parts__0__text="other").position == position + 1
    (told,) = events(session_id, "stream_resync")
    assert told["reason"] == "rewind" and entered.run_id == str(current_run(session_id).id)
    assert {row.rolled_back_by_id for row in Message.objects.exclude(rolled_back_by=None)} == {
        current_run(session_id).id
    }


def test_a_partial_batch_is_asked_again_without_the_model(world: World, agent: AgentMaker) -> None:
    """R-103, R-161, X-07, U-12, P-16: the answer that was there is kept; approvals get new ids; tombstones go."""
    bodies = Bodies()
    model = ScriptedModel([call("locate", "c1"), call("pay", "p1", number=5)], ["done"], ["done again"])
    session_id = world.started(agent(model, tools=[locate, bodies.tool("pay", require_approval=True)]))
    (point,) = points(session_id)
    first_id = call_named(session_id, "pay").approval_id
    world.submit(session_id, "c1", result="old")
    world.decide(call_named(session_id, "pay"), approved=False)
    world.drain()
    assert CallTombstone.objects.count() == 2
    back_to(world, session_id, point)
    assert world.drain() == 0 and model.asked == 2
    assert session_of(session_id).status == "awaiting_client_tool"
    assert [one.tool_call_id for one in pending(session_id)] == ["c1", "p1"]
    again = call_named(session_id, "pay")
    assert again.approval_id != first_id and str(current_run(session_id).id) in str(again.approval_id)
    assert not CallTombstone.objects.exists() and CallOwnership.objects.count() == 2
    world.submit(session_id, "c1", result="new")
    world.decide(again)
    world.drain()
    assert model.results_seen()["c1"] == "new" and bodies.ran == [("pay", 5)]
    assert session_of(session_id).status == "idle"


def test_calls_that_were_made_later_answer_that_they_were_rewound(world: World, agent: AgentMaker) -> None:
    """P-08: open or answered alike; the call that stood before the checkpoint is still remembered."""
    model = ScriptedModel([call("locate", "c1")], [call("locate", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", result=1)
    world.drain()
    drained = points(session_id)[1]
    back_to(world, session_id, drained)
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c2", result=2)
    assert refused.value.fields["reason"] == "rewound"
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"


def test_what_rewound_sub_agents_asked_for_is_rewound_with_them(world: World, agent: AgentMaker) -> None:
    """P-08, R-190: at any depth."""
    deep = child_agent("deep", ScriptedModel([call("locate", "c1")], [call(FINISH_TOOL_NAME, n=1)]), tools=[locate])
    middle = ScriptedModel([call("subagent__deep", "to-deep", task="go")], [call(FINISH_TOOL_NAME, n=2)])
    model = ScriptedModel(["hi"], [call("subagent__middle", "to", task="go")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child_agent("middle", middle, sub_agents=[deep])]))
    world.send(session_id, "delegate")
    world.drain()
    world.submit(session_id, "c1", result=1)
    world.drain()
    assert session_of(session_id).status == "idle"
    back_to(world, session_id, points(session_id)[0])
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c1", result=1)
    assert refused.value.fields["reason"] == "rewound" and not CallTombstone.objects.exists()


def test_what_a_stopped_sub_agent_asked_for_is_rewound_too(world: World, agent: AgentMaker) -> None:
    """P-08: the call that started it was closed by the stop, and what it had asked for before is past all the same."""
    child = child_agent("child", ScriptedModel([call("locate", "c1")], [call("locate", "c2")]), tools=[locate])
    model = ScriptedModel(["hi"], [call("subagent__child", "to", task="go")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child]))
    world.send(session_id, "delegate")
    world.drain()
    world.submit(session_id, "c1", result=1)
    world.drain()
    world.stop(session_id)
    assert world.submit(session_id, "c1", result=1)["status"] == "already_completed"
    back_to(world, session_id, points(session_id)[0])
    with pytest.raises(UnknownToolCall) as refused:
        world.submit(session_id, "c1", result=1)
    assert refused.value.fields["reason"] == "rewound"


def test_a_rewind_into_the_work_of_sub_agents_is_refused(world: World, agent: AgentMaker) -> None:
    """RT-21: typed, and nothing is written; before that work it is allowed once the work is over."""
    child = child_agent("scout", ScriptedModel([call("locate", "c1")], [call(FINISH_TOOL_NAME, n=1)]), tools=[locate])
    model = ScriptedModel(["hi"], [call("subagent__scout", "to", task="go")], ["done"], ["other"])
    session_id = world.started(agent(model, sub_agents=[child]))
    world.send(session_id, "delegate")
    world.drain()
    first, at_work = points(session_id)
    for point in (first, at_work):
        with pytest.raises(NotResumable) as refused:
            back_to(world, session_id, point)
        assert refused.value.fields["cause"] == "children"
    world.submit(session_id, "c1", result=1)
    world.drain()
    before = (Run.objects.count(), texts(session_id))
    with pytest.raises(NotResumable):
        back_to(world, session_id, at_work)
    assert (Run.objects.count(), texts(session_id)) == before
    back_to(world, session_id, first)
    world.drain()
    assert texts(session_id) == ["hello", "hi", "other"]


def test_a_live_session_and_a_foreign_checkpoint_are_refused(world: World, agent: AgentMaker) -> None:
    """R-450, R-464: nothing is written; the control is the session's own at rest."""
    declared = agent(ScriptedModel(["done"]))
    session_id, other = world.started(declared), world.started(declared)
    (mine,), (foreign,) = points(session_id), points(other)
    for point in (foreign, "cpv1-nothing"):
        with pytest.raises(NotFound):
            back_to(world, session_id, point)
    world.send(session_id, "more")
    with pytest.raises(AlreadyRunning):
        back_to(world, session_id, mine)
    assert Run.objects.filter(session_id=session_id).count() == 2
    world.drain()
    back_to(world, session_id, mine)


def test_a_rewind_twice_is_two_turns_from_the_same_place(world: World, agent: AgentMaker) -> None:
    """R-465: what the first one said is hidden by the second, and every result stands once."""
    model = ScriptedModel([call("add", "a1", number=1)], ["one"], ["two"], ["three"])
    session_id = world.started(agent(model, tools=[Bodies().tool("add")]))
    point = points(session_id)[0]
    for _ in range(2):
        back_to(world, session_id, point)
        world.drain()
    assert texts(session_id) == ["hello", None, "a1", "three"] and set(results(session_id)) == {"a1"}


def test_steps_that_a_rewind_took_back_cannot_be_gone_back_to(world: World, agent: AgentMaker) -> None:
    """R-675: their calls would be open without a message that asked for them. What still stands can be."""
    model = ScriptedModel([call("add", "a1", number=1)], [call("locate", "c1")], ["instead"])
    session_id = world.started(agent(model, tools=[Bodies().tool("add"), locate]))
    stands, taken_back = points(session_id)
    back_to(world, session_id, stands)
    world.drain()
    with pytest.raises(NotResumable) as refused:
        back_to(world, session_id, taken_back)
    assert refused.value.fields["cause"] == "rewound"
    assert not pending(session_id) and texts(session_id) == ["hello", None, "a1", "instead"]
    back_to(world, session_id, stands)


def test_a_late_answer_is_told_again_after_a_rewind(world: World, agent: AgentMaker) -> None:
    """P-16, R-272: a call that is asked again lapses again, and its next late answer is another one."""
    model = ScriptedModel([call("locate", "c1")], ["late?"])
    session_id = world.started(agent(model, tools=[locate]))
    for number in range(2):
        world.wait(seconds=300)
        world.drain()
        assert world.submit(session_id, "c1", result=f"late {number}")["status"] == "late_answer_after_timeout"
        world.send(session_id, "and now?")
        world.drain()
        notices = Message.objects.filter(session_id=session_id, role="notice", rolled_back_by=None)
        assert [f"late {number}" in notice.parts[0]["text"] for notice in notices] == [True]
        back_to(world, session_id, points(session_id)[0])
