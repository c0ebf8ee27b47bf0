"""The operator's commands: explain, force-fail, sweep (R-238, R-665, R-667, R-677)."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from helix.agents import Agent, SubAgent
from helix.models import CallAudit, PendingCall, RunLease, SweepMark
from tests.admin.conftest import CANARY, locate
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, current_run, results, session_of

pytestmark = pytest.mark.django_db


def said_by(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_a_conversation_is_explained_by_any_of_its_ids(world: World, waiting: PendingCall) -> None:
    names = [str(waiting.root_id), str(waiting.run_id), str(waiting.pk), "c1"]
    explained = {said_by("helix_explain", name) for name in names}
    assert len(explained) == 1
    (text,) = explained
    assert f"conversation {waiting.root_id} of owner: awaiting_client_tool" in text
    assert "waits for 1 answer from outside" in text
    assert "call locate c1 client awaiting waits for a client of owner, until 2026-03-01 12:05:00 UTC" in text


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(CommandError, match="No session, run or call"):
        said_by("helix_explain", "nobody")


def test_a_lost_worker_is_named(world: World, executing: PendingCall) -> None:
    holder = RunLease.objects.get().holder
    assert f"the body of ponder b1, at worker {holder}" in said_by("helix_explain", "b1")
    world.tick(minutes=5)
    assert f"another worker to take it over: the lease of {holder} ended" in said_by("helix_explain", "b1")


def test_a_queued_run_waits_for_a_worker_and_a_scheduled_one_for_its_instant(
    world: World, waiting: PendingCall
) -> None:
    world.submit(waiting.root_id, "c1", result={"city": "Bern"})
    assert "waits for a free worker, since" in said_by("helix_explain", "c1")
    run = current_run(waiting.root_id)
    run.next_attempt_at = world.tick(seconds=0).replace(hour=23)
    run.save()
    assert "waits for its next attempt at 2026-03-01 23:00:00 UTC" in said_by("helix_explain", "c1")


def test_an_overdue_sweep_is_named_and_so_is_the_call_that_it_holds_up(world: World, waiting: PendingCall) -> None:
    """R-242, T-7."""
    world.tick(days=1)
    text = said_by("helix_explain", "c1")
    assert "it is overdue, so no deadline is judged" in text
    assert "nobody lapses it before the deadline sweep has run" in text


def test_a_sub_agent_is_explained_below_its_parent(world: World, agent: AgentMaker) -> None:
    child: Agent = agent(
        ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate], output_schema={"type": "object"}
    )
    parent = agent(
        ScriptedModel([call(f"subagent__{child.name}", "s1", task="find")], ["done"]),
        sub_agents=[SubAgent(child, description="Finds.")],
    )
    session_id = world.started(parent)
    text = said_by("helix_explain", str(session_id))
    child_call = PendingCall.objects.get(tool_call_id="c1")
    assert f"waits for sub-agent session {child_call.session_id}" in text
    assert f"\n  session {child_call.session_id} {child.name}: awaiting_client_tool" in text


def test_no_argument_and_no_result_is_explained(private: PendingCall) -> None:
    """R-389."""
    text = said_by("helix_explain", str(private.root_id))
    assert "look_up p1" in text and CANARY not in text


def test_a_waiting_call_is_given_up_by_command(world: World, waiting: PendingCall) -> None:
    assert "accepted" in said_by("helix_force_fail", str(waiting.root_id), "c1", "--reason", "gone")
    world.drain()
    assert results(waiting.root_id)["c1"]["error"] == "gone"
    audit = CallAudit.objects.get()
    assert audit.door == "command" and audit.actor.startswith("command:")


def test_a_body_is_given_up_by_command_only_with_the_override(world: World, executing: PendingCall) -> None:
    """R-677."""
    command = ("helix_force_fail", str(executing.root_id), "b1", "--reason", "stuck")
    with pytest.raises(CommandError, match="state_already_running"):
        said_by(*command)
    assert "queued for another worker" in said_by(*command, "--override")
    world.drain()
    assert session_of(executing.root_id).status == "idle"


def test_an_unknown_call_is_not_given_up(world: World, waiting: PendingCall) -> None:
    with pytest.raises(CommandError, match="No conversation"):
        said_by("helix_force_fail", str(waiting.root_id), "c2", "--reason", "gone")
    assert not CallAudit.objects.exists()


def test_one_sweep_lapses_what_is_due(world: World, waiting: PendingCall) -> None:
    SweepMark.objects.update(last_completed_at=world.tick(minutes=6))
    assert "sweep_deadlines: 1" in said_by("helix_sweep")
    waiting.refresh_from_db()
    assert waiting.answer_kind == "timeout"
    assert "sweep_deadlines: 0" in said_by("helix_sweep")


def test_a_sweep_that_failed_fails_the_command_and_not_the_other_sweeps(
    world: World, waiting: PendingCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(now: object) -> int:
        raise RuntimeError("disk full")

    broken.__name__ = "sweep_deadlines"
    monkeypatch.setattr("helix.tasks.sweep_deadlines", broken)
    out = StringIO()
    with pytest.raises(CommandError, match="sweep_deadlines failed"):
        call_command("helix_sweep", stdout=out)
    assert "sweep_deadlines: failed" in out.getvalue() and "sweep_runs: 0" in out.getvalue()
