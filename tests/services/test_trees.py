"""Trees of agents: who delegates, who waits, who answers; every level knows its direct children only (5.G, Q-29)."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from helix import selectors, wire
from helix.agents import FINISH_TOOL_NAME, SubAgent, client_tool
from helix.errors import InvalidResult, NotFound, UnknownToolCall
from helix.models import CallOwnership, CallTombstone, PendingCall, Run, RunLease, Session
from helix.services.advance import advance_run
from helix.services.advance import bodies as body_service
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import child_agent, locate, measure
from tests.kit.world import OWNER, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db


def finish(**output: object) -> object:
    return call(FINISH_TOOL_NAME, **output)


def delegate(name: str, to: str | None = None, task: str = "go") -> object:
    return call(f"subagent__{name}", to or f"to-{name}", task=task)


def child_of(root_id: UUID, call_id: str) -> Session:
    return Session.objects.get(root_id=root_id, parent_call__tool_call_id=call_id)


def three_levels(world: World, agent: AgentMaker) -> tuple[UUID, list[ScriptedModel]]:
    """A root, a child and a grandchild; the grandchild waits for the client call ``deep``."""
    models = [
        ScriptedModel([delegate("middle")], ["all done"]),
        ScriptedModel([delegate("bottom")], [finish(from_bottom="seen")]),
        ScriptedModel([call("measure", "deep", metres=3)], [finish(n=3)]),
    ]
    bottom = child_agent("bottom", models[2], tools=[measure])
    middle = child_agent("middle", models[1], sub_agents=[bottom])
    return world.started(agent(models[0], sub_agents=[middle])), models


# -- one child ---------------------------------------------------------------------------------------------------------


def test_a_child_works_in_a_session_of_its_own_and_its_output_is_the_result(world: World, agent: AgentMaker) -> None:
    """Q-32, R-209: the parent asks once while the child works, and its next request holds the child's value."""
    child = ScriptedModel([finish(city="Bern")])
    parent = ScriptedModel([delegate("scout", task="find out")], ["It is Bern."])
    session_id = world.start(agent(parent, sub_agents=[child_agent("scout", child)]))
    advance_run(current_run(session_id).id, clock=world.clock)
    assert current_run(session_id).status == "suspended_awaiting_children" and parent.asked == 1
    assert session_of(session_id).status == "running" and child.asked == 0
    world.drain()
    assert child.requests[0].messages[0].parts == [{"type": "text", "text": "find out"}]
    assert parent.results_seen() == {"to-scout": '{"city":"Bern"}'} and parent.asked == 2
    assert session_of(session_id).status == "idle"


def test_a_parent_that_waits_holds_no_worker_and_no_deadline(world: World, agent: AgentMaker) -> None:
    """R-210, Q-30: weeks later the child is still waited for; only its end, a stop or an answer ends the wait."""
    session_id, _ = three_levels(world, agent)
    assert not RunLease.objects.exists() and not world.hints
    waits = PendingCall.objects.filter(root_id=session_id, kind="subagent")
    assert waits.count() == 2 and set(waits.values_list("deadline_at", "wait_ms")) == {(None, None)}
    PendingCall.objects.filter(tool_call_id="deep").update(deadline_at=None)
    world.wait(days=30)
    assert world.drain() == 0 and set(waits.values_list("state", flat=True)) == {"executing"}
    world.submit(session_id, "deep", result={"value": 1})
    world.drain()
    assert session_of(session_id).status == "idle"


def test_the_end_of_a_sub_agent_stands_directly_before_the_end_of_its_call(world: World, agent: AgentMaker) -> None:
    """R-205: also when the child failed, was stopped, or was given up with a message."""
    endings = {"finished": [finish(n=1)], "silent": ["no output"], "waits": [call("locate", "c1")]}
    for name, step in endings.items():
        child = child_agent(f"child-{name}", ScriptedModel(step), tools=[locate])
        parent = ScriptedModel([delegate(f"child-{name}", "to")], ["done"])
        session_id = world.started(agent(parent, sub_agents=[child]))
        if name == "waits":
            world.send(session_id, "never mind", abandon_pending=True)
            world.drain()
        _ends_stand_together(session_id)
    child = child_agent("child-stopped", ScriptedModel([call("locate", "c1")]), tools=[locate])
    session_id = world.started(agent(ScriptedModel([delegate("child-stopped", "to")]), sub_agents=[child]))
    world.stop(session_id)
    _ends_stand_together(session_id)
    assert events(session_id, "subagent_end")[0]["status"] == "interrupted"


def _ends_stand_together(session_id: UUID) -> None:
    told = events(session_id)
    (place,) = (number for number, event in enumerate(told) if event["type"] == "subagent_end")
    assert told[place + 1]["type"] == "tool_end" and told[place + 1]["toolCallId"] == told[place]["toolCallId"]
    assert told[place]["childSessionId"] == str(child_of(session_id, "to").id)


def test_a_child_that_ends_without_output_gives_an_explicit_null(world: World, agent: AgentMaker) -> None:
    """R-211, Q-31: no hang, no error, no timeout; the control is the child that finishes."""
    silent = child_agent("silent", ScriptedModel(["I have nothing."]))
    speaks = child_agent("speaks", ScriptedModel([finish(n=1)]))
    parent = ScriptedModel([delegate("silent"), delegate("speaks")], ["done"])
    session_id = world.started(agent(parent, sub_agents=[silent, speaks]))
    assert parent.results_seen() == {"to-silent": "null", "to-speaks": '{"n":1}'}
    part = results(session_id)["to-silent"]
    assert part["value"] is None and part["errorCode"] is None
    told = {one["toolCallId"]: one for one in events(session_id, "tool_end")}
    assert (told["to-silent"]["settledAs"], told["to-silent"]["outcome"]) == ("result", "no_result")
    assert told["to-speaks"]["settledAs"] == "result" and "outcome" not in told["to-speaks"]


def test_a_child_that_failed_is_a_failed_result_with_its_code(world: World, agent: AgentMaker) -> None:
    """R-211: the parent goes on; its model reads what happened."""
    child = child_agent("broken", ScriptedModel(ValueError("no such thing")))
    parent = ScriptedModel([delegate("broken")], ["Without it, then."])
    session_id = world.started(agent(parent, sub_agents=[child]))
    code = child_of(session_id, "to-broken").current_run.error_code  # type: ignore[union-attr]
    (told,) = (one for one in events(session_id, "tool_end") if one["toolCallId"] == "to-broken")
    assert (told["errorCode"], told["cause"]) == ("tool_execution_failed", code) and code
    assert code in parent.results_seen()["to-broken"] and session_of(session_id).status == "idle"


def test_a_child_that_cannot_begin_is_a_failed_result_and_starts_no_session(world: World, agent: AgentMaker) -> None:
    """R-210: the step is complete as it stands, and the turn goes on in the same commit."""
    parent = ScriptedModel([delegate("nobody")], ["Without it, then."])
    session_id = world.started(agent(parent, sub_agents=[SubAgent("nobody")]))
    assert Session.objects.count() == 1 and events(session_id, "subagent_start", "subagent_end") == []
    assert results(session_id)["to-nobody"]["errorCode"] == "tool_execution_failed"
    assert session_of(session_id).status == "idle" and parent.asked == 2


# -- names and rights --------------------------------------------------------------------------------------------------


def test_a_child_is_named_by_nobody(world: World, agent: AgentMaker) -> None:
    """R-190, R-199: its id is minted, and naming it answers like a session that never was, whatever the verb."""
    session_id, _ = three_levels(world, agent)
    child = child_of(session_id, "to-middle")
    made_up = UUID(int=child.id.int ^ 1)
    for name in (child.id, made_up):
        refusals = []
        for verb in (
            lambda name=name: world.send(name, "hello"),
            lambda name=name: world.resume(name),
            lambda name=name: world.stop(name),
            lambda name=name: selectors.snapshot_rows(OWNER, str(name)),
        ):
            with pytest.raises(NotFound) as refused:
                verb()
            refusals.append(refused.value.as_body())
        assert refusals == [{"error": "There is no such session.", "code": "NOT_FOUND", "retryable": False}] * 4
        with pytest.raises(UnknownToolCall):
            world.submit(name, "deep", result={"value": 1})
    assert call_named(session_id, "measure").state == "awaiting"


def test_a_child_is_bound_to_the_delegation_that_made_it(world: World, agent: AgentMaker) -> None:
    """R-199: the database holds one child per call; a second is refused."""
    session_id, _ = three_levels(world, agent)
    child = child_of(session_id, "to-middle")
    with pytest.raises(IntegrityError), transaction.atomic():
        Session.objects.create(
            root_id=session_id,
            parent_id=child.parent_id,
            parent_call_id=child.parent_call_id,
            owner="owner",
            agent_type="middle",
        )


# -- calls of any depth ------------------------------------------------------------------------------------------------


def test_a_call_of_any_depth_stands_at_the_root_with_the_path_of_agents(world: World, agent: AgentMaker) -> None:
    """R-191, R-192, R-212, C-074, C-075, C-076, Q-29: who asks is named; each level waits for its own child alone."""
    session_id, models = three_levels(world, agent)
    shown = wire.status(selectors.snapshot_rows(OWNER, str(session_id)))
    (asked,) = shown["pendingCalls"]
    root = session_of(session_id)
    assert asked["toolCallId"] == "deep" and asked["agentType"] == "bottom"
    assert asked["agentPath"] == [root.agent_type, "middle", "bottom"]
    assert CallOwnership.objects.get().owner_session_id == child_of(session_id, "to-bottom").id
    assert {s.status for s in Session.objects.all()} == {"awaiting_client_tool"}
    assert [model.asked for model in models] == [1, 1, 1]

    answer = world.submit(session_id, "deep", result={"value": 3})
    assert answer["continuation"]["kind"] == "new_run"
    world.drain()
    assert models[2].results_seen() == {"deep": '{"value":3}'}
    assert models[1].results_seen() == {"to-bottom": '{"n":3}'}
    assert models[0].results_seen() == {"to-middle": '{"from_bottom":"seen"}'}
    assert [model.asked for model in models] == [2, 2, 2]
    assert Run.objects.filter(cause="continuation").count() == 3 and not CallOwnership.objects.exists()


def test_parent_and_child_both_show_that_somebody_is_waited_for(world: World, agent: AgentMaker) -> None:
    """C-077, C-078, R-361: the root does not look busy; it says how many calls of its tree wait."""
    child = child_agent(
        "scout", ScriptedModel([call("locate", "c1"), call("locate", "c2")], [finish(n=1)]), tools=[locate]
    )
    session_id = world.started(agent(ScriptedModel([delegate("scout")], ["done"]), sub_agents=[child]))
    shown = wire.status(selectors.snapshot_rows(OWNER, str(session_id)))
    assert shown["status"] == "awaiting_client_tool" and shown["awaitingClientTool"]
    assert len(shown["pendingCalls"]) == 2 and shown["runStatus"] == "suspended_awaiting_children"
    below = child_of(session_id, "to-scout")
    assert (below.status, below.waiting_since) == ("awaiting_client_tool", session_of(session_id).waiting_since)


def test_an_answer_for_a_child_is_held_to_the_schema_of_the_childs_tool(world: World, agent: AgentMaker) -> None:
    """R-197: the root's tool of the same name would have taken it."""
    lenient = client_tool("measure", description="Anything.", input_schema={"type": "object"})
    child = child_agent("scout", ScriptedModel([call("measure", "c1", metres=1)], [finish(n=1)]), tools=[measure])
    parent = ScriptedModel([call("measure", "r1"), delegate("scout")], ["done"])
    session_id = world.started(agent(parent, sub_agents=[child], tools=[lenient]))
    with pytest.raises(InvalidResult):
        world.submit(session_id, "c1", result="far")
    assert world.submit(session_id, "r1", result="far")["status"] == "accepted"
    assert world.submit(session_id, "c1", result={"value": 2})["status"] == "accepted"


def test_the_memory_of_a_childs_call_is_the_roots(world: World, agent: AgentMaker) -> None:
    """R-198, R-193: a repeat at the root is recognised after the child is over; ownership went with the call."""
    session_id, _ = three_levels(world, agent)
    world.submit(session_id, "deep", result={"value": 3})
    world.drain()
    assert CallTombstone.objects.get().root_id == session_id and not CallOwnership.objects.exists()
    assert world.submit(session_id, "deep", result={"value": 3})["status"] == "already_completed"


def test_registering_and_clearing_a_call_touches_no_other_and_no_version(world: World, agent: AgentMaker) -> None:
    """R-194, R-564: the rows of the sibling and the version of the session are what they were."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c2"), call("locate", "c3")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    others = PendingCall.objects.exclude(tool_call_id="c1").order_by("seq")
    before = (list(others.values()), session_of(session_id).version)
    world.submit(session_id, "c1", result=1)
    assert (list(others.values()), session_of(session_id).version) == before
    assert session_of(session_id).status == "awaiting_client_tool"


def test_a_registration_that_the_database_refuses_leaves_nothing_behind(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-195: logged as an error; neither the reply nor a call of it is there, and the run has a visible outcome."""

    def refuse(*_: object, **__: object) -> None:
        raise IntegrityError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(CallOwnership.objects, "bulk_create", refuse)
        session_id = world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))
    assert any(record.levelname == "ERROR" and record.exc_info for record in caplog.records)
    assert not PendingCall.objects.exists() and not CallOwnership.objects.exists()
    assert not session_of(session_id).messages.filter(role="assistant").exists()
    assert session_of(session_id).status == "failed"


# -- several children --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("c-a", "c-b", "root"), ("root", "c-b", "c-a"), ("c-b", "root", "c-a")])
def test_several_children_and_a_client_call_fan_in_to_one_continuation(
    world: World, agent: AgentMaker, order: tuple[str, ...]
) -> None:
    """R-142, R-209, R-139: whatever the order of the ends, the parent is asked exactly once more."""
    children = [
        child_agent(name, ScriptedModel([call("locate", f"c-{name}")], [finish(who=name)]), tools=[locate])
        for name in ("a", "b")
    ]
    parent = ScriptedModel([delegate("a"), call("locate", "root"), delegate("b")], ["done"])
    session_id = world.started(agent(parent, sub_agents=children, tools=[locate]))
    for number, name in enumerate(order, start=1):
        world.submit(session_id, name, result=name)
        world.drain()
        assert parent.asked == (2 if number == len(order) else 1)
    assert Run.objects.filter(session_id=session_id, cause="continuation").count() == 1
    assert parent.results_seen() == {"to-a": '{"who":"a"}', "root": "root", "to-b": '{"who":"b"}'}
    shape = [(m.role, m.tool_call_id) for m in parent.requests[-1].messages]
    assert shape[2:] == [("tool", "to-a"), ("tool", "root"), ("tool", "to-b")]


def test_a_root_bound_shows_calls_of_the_whole_tree_one_after_another(world: World, agent: AgentMaker) -> None:
    """R-022, R-051, R-212: the bound is the root's, whoever asks."""
    children = [
        child_agent(name, ScriptedModel([call("locate", f"c-{name}")], [finish(who=name)]), tools=[locate])
        for name in ("a", "b")
    ]
    parent = ScriptedModel([delegate("a"), delegate("b")], ["done"])
    session_id = world.started(agent(parent, sub_agents=children, max_open_calls=1))
    seen = []
    while waiting := pending(session_id):
        assert len(waiting) == 1
        seen.append(waiting[0].tool_call_id)
        world.submit(session_id, waiting[0].tool_call_id, result=1)
        world.drain()
    assert sorted(seen) == ["c-a", "c-b"] and session_of(session_id).status == "idle"


def test_a_root_resumes_the_descendants_that_were_left_to_their_caller(world: World, agent: AgentMaker) -> None:
    """R-192, R-021, R-143: a child cannot be named, so its complete batch goes on through the root."""
    models = [ScriptedModel([delegate("child")], ["done"]), ScriptedModel([call("locate", "c1")], [finish(n=1)])]
    child = child_agent("child", models[1], tools=[locate], continue_on_submit=False)
    session_id = world.started(agent(models[0], sub_agents=[child]))
    assert world.submit(session_id, "c1", result=1)["continuation"]["kind"] == "caller_resumes"
    assert world.drain() == 0 and models[1].asked == 1
    entered = world.resume(session_id)
    assert entered.run_id == str(current_run(session_id).id)
    world.drain()
    assert [model.asked for model in models] == [2, 2] and session_of(session_id).status == "idle"


def test_a_worker_that_dies_between_child_and_parent_loses_neither(world: World, agent: AgentMaker) -> None:
    """R-209: the child's end and the parent's continuation are one commit; before it nothing of both is there."""
    parent = ScriptedModel([delegate("scout")], ["done"])
    child = child_agent("scout", ScriptedModel([finish(n=1)], [finish(n=1)]))
    session_id = world.start(agent(parent, sub_agents=[child]))
    advance_run(current_run(session_id).id, clock=world.clock)
    below = child_of(session_id, "to-scout")
    with worker_dies_in(body_service, "complete"):
        advance_run(below.current_run_id, clock=world.clock)  # type: ignore[arg-type]
    assert not Run.objects.filter(cause="continuation").exists()
    world.drop_hints()
    world.wait(seconds=31)
    world.drain()
    assert parent.asked == 2 and session_of(session_id).status == "idle"
    assert Run.objects.filter(cause="continuation").count() == 1
