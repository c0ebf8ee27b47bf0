"""Suspending: what is checked, what is exposed when, and that it is one commit after which nothing waits (5.B)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from helix import nudges, selectors, wire
from helix.agents import tool
from helix.errors import CallNotExposed
from helix.loop.scripted import Call
from helix.models import Message, PendingCall, Run, RunLease
from helix.rows.holdings import HOLDINGS
from helix.services.advance import finish
from helix.statuses import RUN_CLAIMABLE
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate, measure
from tests.kit.world import OWNER, World, call_named, current_run, events, pending, results, session_of

pytestmark = pytest.mark.django_db


def snapshot(world: World, session_id: UUID) -> dict[str, Any]:
    return wire.snapshot(selectors.snapshot_rows(OWNER, str(session_id)), world.now)


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_an_invalid_call_is_a_failed_result_while_its_valid_sibling_waits(world: World, agent: AgentMaker) -> None:
    """R-030, R-031: nothing of the invalid call is pending; the model reads what was wrong with it."""
    model = ScriptedModel([call("measure", "bad", metres="far"), call("measure", "good", metres=3)], ["done"])
    session_id = world.started(agent(model, tools=[measure]))
    assert [p.tool_call_id for p in pending(session_id)] == ["good"]
    assert results(session_id)["bad"]["errorCode"] == "validation_failed"
    world.submit(session_id, "good", result={"value": 3})
    world.drain()
    assert "far" in model.results_seen()["bad"] and "integer" in model.results_seen()["bad"]
    assert model.results_seen()["good"] == '{"value":3}'


def test_a_reply_of_invalid_calls_only_does_not_suspend(world: World, agent: AgentMaker) -> None:
    """R-031: the model goes on at once."""
    model = ScriptedModel([call("measure", "bad")], ["Sorry."])
    session_id = world.started(agent(model, tools=[measure]))
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_a_server_tool_is_judged_like_an_external_one(world: World, agent: AgentMaker) -> None:
    """R-031: the body with invalid arguments never runs, the one beside it does."""
    bodies = Bodies()
    model = ScriptedModel([call("add", "bad", number="two"), call("add", "good", number=2)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("add")]))
    assert bodies.ran == [("add", 2)]
    assert results(session_id)["bad"]["errorCode"] == "validation_failed"


@pytest.mark.parametrize("level", ["tool", "agent"])
def test_without_validation_a_call_waits_with_its_text_as_it_is(world: World, agent: AgentMaker, level: str) -> None:
    """R-020, R-031, B-33: switched off in writing, at either level, even what is no JSON is surfaced."""
    lax = replace(measure, validate_arguments=level != "tool")
    model = ScriptedModel([Call("measure", "{not json", "c1"), Call("measure", '{"metres":"x"}', "c2")], ["done"])
    session_id = world.started(agent(model, tools=[lax], validate_arguments=level != "agent"))
    first, second = pending(session_id)
    assert (first.arguments_json, first.arguments) == ("{not json", None)
    assert second.arguments == {"metres": "x"}


def test_the_argument_text_is_kept_character_for_character(world: World, agent: AgentMaker) -> None:
    """R-053: order, spelling of numbers, blanks and repeated keys."""
    text = '{"b": 1.0, "a":1e2,  "b":2.50, "ü":"\\u00fc"}'
    session_id = world.started(agent(ScriptedModel([Call("locate", text, "c1")]), tools=[locate]))
    assert snapshot(world, session_id)["pendingTools"][0]["argumentsJson"] == text
    assert events(session_id, "tool_start")[0]["argumentsJson"] == text


# -- one commit --------------------------------------------------------------------------------------------------------


def test_a_crash_inside_the_suspension_leaves_its_calls_held_and_unseen(world: World, agent: AgentMaker) -> None:
    """R-033, R-036, R-032: before the commit nothing of it is there, after it all; a lost worker is made good."""
    bodies = Bodies()
    model = ScriptedModel([call("add", "s1"), call("locate", "c1")], ["done"])
    session_id = world.start(agent(model, tools=[locate, bodies.tool("add")]))
    with worker_dies_in(finish, "write_checkpoint"):
        world.drain()
    assert call_named(session_id, "locate").state == "held"
    assert current_run(session_id).status == "running"
    assert not pending(session_id) and not events(session_id, "run_suspended", "checkpoint_created")
    assert [e["toolCallId"] for e in events(session_id, "tool_start")] == ["s1"]

    world.tick(seconds=31)
    world.sweep()
    world.drain()
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"]
    assert current_run(session_id).status == "suspended_client_tool"
    assert session_of(session_id).status == "awaiting_client_tool"
    assert len(events(session_id, "run_suspended")) == len(events(session_id, "checkpoint_created")) == 1
    assert [e["toolCallId"] for e in events(session_id, "tool_start")] == ["s1", "c1"]
    assert bodies.ran == [("add", 0)] and model.asked == 1


@pytest.mark.django_db(transaction=True)
def test_a_reader_at_every_commit_sees_all_of_a_suspension_or_nothing(world: World, agent: AgentMaker) -> None:
    """R-033, R-035, B-07, C-002: whenever anything says that it waits, everything does and all calls are there."""
    model = ScriptedModel([call("locate", f"c{n}") for n in range(3)], ["done"])
    seen: list[tuple[bool, ...]] = []

    def read(root_id: UUID, sequence: int) -> None:
        shown = snapshot(world, root_id)
        run = Run.objects.get(pk=shown["runId"]) if shown["runId"] else None
        seen.append(
            (
                shown["streamStatus"] == "paused",
                shown["status"] == "awaiting_client_tool",
                run is not None and run.status == "suspended_client_tool",
                len(shown["pendingTools"]) == 3,
                bool(events(root_id, "run_suspended")),
            )
        )

    nudges.send_to_readers = read
    world.started(agent(model, tools=[locate]))
    assert {len(set(facts)) for facts in seen} == {1}, seen
    assert not all(seen[0]) and all(seen[-1])


@pytest.mark.django_db(transaction=True)
def test_whoever_has_seen_the_start_can_submit_at_once(world: World, agent: AgentMaker) -> None:
    """R-046, B-06: the first reader of `tool_start` submits before the suspending worker has gone on."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    answers: list[dict[str, Any]] = []

    def read(root_id: UUID, sequence: int) -> None:
        if events(root_id, "tool_start") and not answers:
            answers.append({})
            answers[0] = world.submit(root_id, "c1", result="here")

    nudges.send_to_readers = read
    session_id = world.started(agent(model, tools=[locate]))
    assert answers[0]["status"] == "accepted" and answers[0]["continuation"]["kind"] == "new_run"
    assert session_of(session_id).status == "idle" and model.results_seen() == {"c1": "here"}


@pytest.mark.django_db(transaction=True)
def test_all_calls_of_a_reply_are_stored_before_a_body_starts(world: World, agent: AgentMaker) -> None:
    """R-042: the body, on a connection of its own, finds the message and every sibling."""
    found: list[tuple[int, list[str]]] = []

    @tool
    def look() -> None:
        """Read what is stored."""
        calls = PendingCall.objects.order_by("seq").values_list("tool_call_id", flat=True)
        found.append((Message.objects.filter(role="assistant").count(), list(calls)))

    model = ScriptedModel([call("look", "s1"), call("locate", "c1"), call("look", "s2")])
    world.started(agent(model, tools=[locate, look]))
    assert found == [(1, ["s1", "c1", "s2"])] * 2


# -- what a suspension says and leaves ---------------------------------------------------------------------------------


def test_a_suspension_names_every_call_of_the_batch_in_recorded_order(world: World, agent: AgentMaker) -> None:
    """R-038, R-039, R-034, R-041: both kinds are one batch of one run and one step."""
    bodies = Bodies()
    model = ScriptedModel([call("pay", "p1"), call("locate", "c1"), call("pay", "p2")])
    session_id = world.started(agent(model, tools=[locate, bodies.tool("pay", require_approval=True)]))
    run = current_run(session_id)
    said = events(session_id, "run_suspended")[0]
    assert run.status == said["status"] == "suspended_client_tool"
    assert said["toolCallIds"] == ["p1", "c1", "p2"] and said["stepId"] == run.step_id and "children" not in said
    assert {(c.run_id, c.step_id) for c in pending(session_id)} == {(run.id, run.step_id)}


def test_a_suspension_names_the_children_it_started(world: World, agent: AgentMaker) -> None:
    """R-039: calls and children, each where it applies."""
    child = child_agent("named-child", ScriptedModel([call("__finish__")]))
    model = ScriptedModel([call("subagent__named-child", task="dig")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child]))
    said = events(session_id, "run_suspended")[0]
    assert said["status"] == "suspended_awaiting_children" and "toolCallIds" not in said
    assert said["children"] == [e["childSessionId"] for e in events(session_id, "subagent_start")]


def test_after_a_suspension_nothing_waits_but_the_row(world: World, agent: AgentMaker) -> None:
    """R-037, R-043, R-054: no lease, hint, mark or due run; ten years and a lost queue later the answer counts."""
    patient, hasty = replace(locate, client_tool_timeout_ms=None), replace(measure, client_tool_timeout_ms=1000)
    model = ScriptedModel([call("locate", "c1"), call("measure", "c2", metres=1)], ["done"])
    session_id = world.started(agent(model, tools=[patient, hasty]))
    assert not RunLease.objects.exists() and not HOLDINGS.all() and not world.hints
    assert not Run.objects.filter(status__in=RUN_CLAIMABLE).exists() and not connection.run_on_commit

    world.tick(days=3650)
    world.sweep()  # the first after an outage shifts deadlines
    world.tick(seconds=2)
    world.sweep()
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"]  # the control: its sibling has lapsed
    world.submit(session_id, "c1", result="still here")
    world.drop_hints()
    world.sweep()
    world.drain()
    assert model.results_seen()["c1"] == "still here" and model.asked == 2


def test_at_a_pause_the_snapshot_holds_what_the_assistant_wrote(world: World, agent: AgentMaker) -> None:
    """R-044."""
    model = ScriptedModel(["One moment. ", call("locate", "c1")])
    session_id = world.started(agent(model, tools=[locate]))
    last = snapshot(world, session_id)["messages"][-1]
    assert (last["role"], [p["type"] for p in last["parts"]]) == ("assistant", ["text", "tool_call"])
    assert last["parts"][0]["text"] == "One moment. "


# -- order and identity ------------------------------------------------------------------------------------------------


def test_bodies_run_first_in_order_and_external_calls_follow(world: World, agent: AgentMaker) -> None:
    """R-050, R-032, C-010: numbers follow the model's order; the siblings' results stand across the pause."""
    bodies = Bodies()
    model = ScriptedModel(
        [call("locate", "c1"), call("add", "s1", number=1), call("locate", "c2"), call("add", "s2", number=2)]
    )
    session_id = world.started(agent(model, tools=[locate, bodies.tool("add")]))
    assert list(PendingCall.objects.order_by("seq").values_list("tool_call_id", flat=True)) == ["c1", "s1", "c2", "s2"]
    assert [e["toolCallId"] for e in events(session_id, "tool_start")] == ["s1", "s2", "c1", "c2"]
    assert bodies.ran == [("add", 1), ("add", 2)]
    assert {key: part["text"] for key, part in results(session_id).items()} == {"s1": "add 1", "s2": "add 2"}


def test_no_more_calls_are_exposed_than_the_agent_allows(world: World, agent: AgentMaker) -> None:
    """R-051, R-022, R-032: the transaction that answers one exposes and starts the next; earlier is refused."""
    model = ScriptedModel([call("locate", f"c{n}") for n in range(4)], ["done"])
    session_id = world.started(agent(model, tools=[locate], max_open_calls=2))
    assert [p.tool_call_id for p in pending(session_id)] == ["c0", "c1"]
    with pytest.raises(CallNotExposed) as refused:
        world.submit(session_id, "c2", result=2)
    assert refused.value.retryable and PendingCall.objects.get(tool_call_id="c2").state == "held"
    assert world.submit(session_id, "c1", result=1)["continuation"] == {"kind": "awaiting_batch"}
    assert [p.tool_call_id for p in pending(session_id)] == ["c0", "c2"]
    assert [e["toolCallId"] for e in events(session_id, "tool_start")] == ["c0", "c1", "c2"]
    world.drain()
    assert model.asked == 1


def test_calls_of_children_share_the_bound_of_the_tree(world: World, agent: AgentMaker) -> None:
    """R-051: N is the root's, counted over the tree among suspended runs, in recorded order."""
    child = child_agent("bounded-child", ScriptedModel([call("locate", "k1")], [call("__finish__")]), tools=[locate])
    model = ScriptedModel([call("locate", "c1"), call("subagent__bounded-child", task="t")], ["done"])
    session_id = world.started(agent(model, tools=[locate], sub_agents=[child], max_open_calls=1))
    assert [p.tool_call_id for p in pending(session_id)] == ["c1"]
    world.submit(session_id, "c1", result=1)
    assert [p.tool_call_id for p in pending(session_id)] == ["k1"]
    world.submit(session_id, "k1", result=1)
    world.drain()
    assert session_of(session_id).status == "idle"


def test_a_known_id_is_replaced_for_everybody_but_the_model(world: World, agent: AgentMaker) -> None:
    """R-052, C-001, C-008: within one reply and across steps; each call has an outcome of its own."""
    model = ScriptedModel([call("locate", "c1"), call("locate", "c1")], [call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    first, second = pending(session_id)
    assert first.tool_call_id == "c1" and second.tool_call_id != "c1"
    world.submit(session_id, first.tool_call_id, result="one")
    world.submit(session_id, second.tool_call_id, result="two")
    world.drain()
    (third,) = pending(session_id)
    assert third.tool_call_id not in (first.tool_call_id, second.tool_call_id)
    assert list(model.results_seen().values()) == ["one", "two"]
    for request in model.requests[1:]:
        named = [part["providerCallId"] for m in request.messages for part in m.parts if "providerCallId" in part]
        assert set(named) == {"c1"}


def test_a_finish_call_beside_external_calls_is_deferred(world: World, agent: AgentMaker) -> None:
    """R-045, with the control that alone it ends the turn."""
    model = ScriptedModel(
        [call("__finish__", "f1", answer=1), call("locate", "c1")], [call("__finish__", "f2", answer=2)]
    )
    session_id = world.started(agent(model, tools=[locate], output_schema={"type": "object"}))
    assert session_of(session_id).status == "awaiting_client_tool" and "f1" not in results(session_id)
    world.submit(session_id, "c1", result="here")
    world.drain()
    assert results(session_id)["f1"]["errorCode"] == "not_executed"
    assert model.results_seen()["c1"] == "here"
    assert session_of(session_id).status == "completed" and current_run(session_id).output == {"answer": 2}
