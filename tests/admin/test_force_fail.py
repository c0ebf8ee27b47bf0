"""Giving calls up: what waits outside, and what a worker executes (R-665, R-666, R-677)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from helix.admin.repairs import force_fail
from helix.agents import tool
from helix.errors import AlreadyRunning, Forbidden, NotFound, UnknownToolCall, ValidationFailed
from helix.loop.execution import BodyResult
from helix.models import CallAudit, CallTombstone, PendingCall, RunLease
from helix.principals import Principal
from helix.rows.runs import LostFence
from helix.services.force import fail_body
from helix.statuses import StopKind
from tests.admin.conftest import pay
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import OPERATOR, OWNER, STRANGER, World, call_named, current_run, events, results, session_of

pytestmark = pytest.mark.django_db


def give_up(found: PendingCall, world: World, *, principal: Principal = OPERATOR, override: bool = False) -> None:
    fail_body(
        principal=principal,
        session_id=str(found.root_id),
        tool_call_id=found.tool_call_id,
        error="stuck since noon",
        now=world.now,
        door="test",
        override=override,
    )


def test_a_waiting_call_becomes_a_failed_result_whatever_its_schema_wants(world: World, waiting: PendingCall) -> None:
    """R-665: any text; the schema is skipped; the model sees a failed result."""
    done = force_fail(waiting, principal=OPERATOR, error="nobody is there", now=world.now, door="test")
    assert done == "accepted: new_run follows"
    world.drain()
    assert results(waiting.root_id)["c1"]["error"] == "nobody is there"
    assert session_of(waiting.root_id).status == "idle"


def test_a_waiting_call_that_is_given_up_twice_is_given_up_once(world: World, waiting: PendingCall) -> None:
    force_fail(waiting, principal=OPERATOR, error="first", now=world.now, door="test")
    again = force_fail(waiting, principal=OPERATOR, error="second", now=world.now, door="test")
    assert again.startswith("already_completed")
    world.drain()
    assert results(waiting.root_id)["c1"]["error"] == "first"
    assert CallAudit.objects.count() == 1


def test_a_text_over_the_limit_is_refused_and_one_at_the_limit_is_not(world: World, waiting: PendingCall) -> None:
    with pytest.raises(ValidationFailed):
        force_fail(waiting, principal=OPERATOR, error="x" * 8193, now=world.now, door="test")
    assert force_fail(waiting, principal=OPERATOR, error="x" * 8192, now=world.now, door="test").startswith("accepted")


def test_a_body_under_a_fresh_lease_is_left_alone(world: World, executing: PendingCall) -> None:
    """R-677."""
    with pytest.raises(AlreadyRunning) as refusal:
        give_up(executing, world)
    lease = RunLease.objects.get()
    assert refusal.value.fields["holder"] == lease.holder and not refusal.value.retryable
    executing.refresh_from_db()
    assert executing.state == "executing" and not CallAudit.objects.exists()


@pytest.mark.parametrize(("late_by", "given_up"), [(-1, False), (0, True), (1, True)])
def test_a_lease_is_stale_from_its_last_instant_on(
    world: World, executing: PendingCall, late_by: int, given_up: bool
) -> None:
    """R-677, at the edges of the lease."""
    world.now = RunLease.objects.get().expires_at + timedelta(microseconds=late_by)
    if given_up:
        give_up(executing, world)
    else:
        with pytest.raises(AlreadyRunning):
            give_up(executing, world)
    executing.refresh_from_db()
    assert (executing.state == "consumed") is given_up


def test_an_overridden_body_fails_and_another_worker_goes_on(world: World, executing: PendingCall) -> None:
    """R-677: with an explicit override, audited; the model reads the operator's words."""
    epoch = current_run(executing.root_id).epoch
    give_up(executing, world, override=True)
    run = current_run(executing.root_id)
    assert (run.status, run.epoch) == ("queued", epoch + 1) and not RunLease.objects.exists()
    audit = CallAudit.objects.get()
    assert (audit.action, audit.actor, audit.door) == ("force_fail", OPERATOR.id, "test")
    assert audit.after == {"override": True} and audit.before["state"] == "executing"
    world.drain()
    assert session_of(executing.root_id).status == "idle"
    assert results(executing.root_id)["b1"]["error"] == "stuck since noon"
    assert [end["errorCode"] for end in events(executing.root_id, "tool_end")] == ["tool_execution_failed"]


def test_what_the_body_returns_afterwards_is_not_written(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that still executes has lost its epoch; while it holds the run itself, no clock frees it (L-6)."""

    @tool
    def ponder() -> str:
        """Think for a long time."""
        return "thought"

    def given_up_meanwhile(*_: object) -> BodyResult:
        found = call_named(session_id, "ponder")
        world.now = RunLease.objects.get().expires_at + timedelta(days=1)
        with pytest.raises(AlreadyRunning):
            give_up(found, world)
        give_up(found, world, override=True)
        return BodyResult("result", value="too late")

    monkeypatch.setattr("helix.services.advance.bodies.run_body", given_up_meanwhile)
    model = ScriptedModel([call("ponder", "b1")], ["done"])
    session_id = world.start(agent(model, tools=[ponder]))
    world.drain()
    assert results(session_id)["b1"]["error"] == "stuck since noon"
    assert session_of(session_id).status == "idle" and model.asked == 2


def test_giving_a_body_up_twice_changes_nothing_the_second_time(world: World, executing: PendingCall) -> None:
    give_up(executing, world, override=True)
    with pytest.raises(UnknownToolCall) as refusal:
        give_up(executing, world, override=True)
    assert refusal.value.fields["reason"] == "consumed"
    assert CallAudit.objects.count() == 1


def test_only_an_operator_gives_a_body_up(world: World, executing: PendingCall) -> None:
    with pytest.raises(Forbidden):
        give_up(executing, world, principal=OWNER, override=True)
    with pytest.raises(NotFound):
        give_up(executing, world, principal=STRANGER, override=True)
    give_up(executing, world, override=True)


def test_a_recorded_stop_ends_the_call_instead(world: World, executing: PendingCall) -> None:
    world.stop(executing.root_id, StopKind.INTERRUPT)
    with pytest.raises(UnknownToolCall) as refusal:
        give_up(executing, world, override=True)
    assert refusal.value.fields["reason"] == "run_stopped"
    executing.refresh_from_db()
    assert executing.state == "executing"


def test_a_call_without_an_executing_body_is_not_a_body(world: World, waiting: PendingCall) -> None:
    with pytest.raises(UnknownToolCall) as refusal:
        give_up(waiting, world, override=True)
    assert refusal.value.fields["reason"] == "awaiting"
    assert not CallTombstone.objects.exists()


def test_an_approved_body_that_is_given_up_keeps_its_verdict(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(*_: object) -> None:
        raise LostFence("the process is gone")

    session_id = world.started(agent(ScriptedModel([call("pay", "a1", cents=5)], ["done"]), tools=[pay]))
    world.decide(call_named(session_id, "pay"))
    with monkeypatch.context() as patched:
        patched.setattr("helix.services.advance.bodies.run_body", vanish)
        world.drain()
    give_up(call_named(session_id, "pay"), world, override=True)
    world.drain()
    settled = call_named(session_id, "pay")
    assert (settled.state, settled.answer_kind, settled.error_code) == ("consumed", "approved", "tool_execution_failed")
    assert session_of(session_id).status == "idle"
