"""A lapse: a result like any other, found by the sweep, committed with what follows from it (5.H, T-5, T-10)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection, transaction

from helix import selectors
from helix.models import CallAudit, PendingCall, UsageRecord
from helix.services import deadlines
from helix.statuses import AnswerKind, CallState
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, client_tool, locate
from tests.kit.world import (
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


def asking(*ids: str) -> ScriptedModel:
    return ScriptedModel([call("locate", one) for one in ids], ["done"])


def test_a_lapse_needs_no_request_and_the_turn_goes_on(world: World, agent: AgentMaker) -> None:
    """R-232, R-233, B-05: clock, sweep, drain; the model saw the timeout and the session is at rest."""
    model = asking("c1")
    session_id = world.started(agent(model, tools=[locate]))
    world.wait(seconds=300)
    world.drain()
    assert model.asked == 2 and "not answered in time" in model.results_seen()["c1"]
    assert results(session_id)["c1"]["errorCode"] == "client_tool_timeout"
    assert session_of(session_id).status == "idle"


def test_a_call_lapses_at_its_deadline_and_not_before(world: World, agent: AgentMaker) -> None:
    """R-236: lapsed means now >= deadline."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    world.wait(seconds=299, milliseconds=999)
    assert [row.tool_call_id for row in pending(session_id)] == ["c1"]
    world.wait(milliseconds=1)
    assert pending(session_id) == []


def test_a_lapse_is_told_at_once_and_ends_once(world: World, agent: AgentMaker) -> None:
    """R-232: call_answered with outcome timeout at the lapse, tool_end only at the drain."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    world.wait(seconds=300)
    assert [event["outcome"] for event in events(session_id, "call_answered")] == ["timeout"]
    assert events(session_id, "tool_end") == []
    world.drain()
    (ended,) = events(session_id, "tool_end")
    assert (ended["errorCode"], ended["settledAs"]) == ("client_tool_timeout", "timeout")


def test_a_lapse_and_what_follows_are_one_commit(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-240, T-5, RT-12: without the continuation there is no timeout either; then both come together."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    run = current_run(session_id)
    sweeping_since(world.tick(seconds=300))
    with monkeypatch.context() as patch:
        patch.setattr("helix.rows.batch.continue_run", _fail)
        with pytest.raises(RuntimeError), transaction.atomic():
            deadlines.lapse_calls(root_id=session_id, now=world.now)
    assert [row.tool_call_id for row in pending(session_id)] == ["c1"] and not events(session_id, "call_answered")
    deadlines.lapse_calls(root_id=session_id, now=world.now)
    row = call_named(session_id, "locate")
    assert (row.state, row.answer_kind) == (CallState.ANSWERED, AnswerKind.TIMEOUT)
    run.refresh_from_db()
    continuation = current_run(session_id)
    assert run.superseded_by_id == continuation.id and run.status == "suspended_client_tool"
    assert (continuation.status, continuation.cause) == ("queued", "continuation")


def _fail(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("the continuation cannot be written")


def test_a_lapse_exposes_the_next_call(world: World, agent: AgentMaker) -> None:
    """R-240, R-051."""
    session_id = world.started(agent(asking("c1", "c2"), tools=[locate], max_open_calls=1))
    world.wait(seconds=300)
    assert [row.tool_call_id for row in pending(session_id)] == ["c2"]


def test_one_lapse_does_not_end_its_siblings(world: World, agent: AgentMaker) -> None:
    """R-235, R-107, C-017: the batch waits for the other call; then the model reads both, once."""
    patient = client_tool("choose", client_tool_timeout_ms=None)
    model = ScriptedModel([call("locate", "c1"), call("choose", "c2")], ["done"])
    session_id = world.started(agent(model, tools=[locate, patient]))
    world.wait(days=3650)
    world.drain()
    assert [row.tool_call_id for row in pending(session_id)] == ["c2"] and model.asked == 1
    assert session_of(session_id).status == "awaiting_client_tool"
    world.submit(session_id, "c2", result="blue")
    world.drain()
    assert model.asked == 2 and model.results_seen()["c2"] == "blue"
    assert results(session_id)["c1"]["errorCode"] == "client_tool_timeout"


def test_an_expired_approval_is_not_approved(world: World, agent: AgentMaker) -> None:
    """R-175, R-183, C-040, C-041: the body never runs, no person is said to have refused, and nobody is audited."""
    bodies = Bodies()
    model = ScriptedModel([call("pay", "p1")], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    world.wait(days=7)
    world.drain()
    assert bodies.ran == [] and results(session_id)["p1"]["errorCode"] == "client_tool_timeout"
    assert "counts as not approved" in model.results_seen()["p1"]
    (told,) = events(session_id, "call_answered")
    assert (told["outcome"], told["approved"]) == ("timeout", False)
    assert not CallAudit.objects.exists()


def test_a_lapse_is_counted_and_warned_of(world: World, agent: AgentMaker, caplog: pytest.LogCaptureFixture) -> None:
    """R-237, R-596, R-632, R-638: once, whatever number of sweeps passes."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    with caplog.at_level(logging.WARNING, logger="helix.calls"):
        world.wait(seconds=300)
        world.sweep()
        world.drain()
    (record,) = [record for record in caplog.records if record.getMessage() == "client_tool.timeout"]
    assert (record.toolCallId, record.deadlineAt) == ("c1", "2026-03-01T12:05:00Z")  # type: ignore[attr-defined]
    (row,) = UsageRecord.objects.filter(session_id=session_id, source_type="client_tool_timeout")
    assert (row.source_name, row.data) == ("locate", {"value": 1})


# -- found by index ----------------------------------------------------------------------------------------------------


def test_the_next_due_call_is_found_by_its_index(world: World, agent: AgentMaker) -> None:
    """B-04, R-238, T-10: among many waiting calls the query plan names the deadline index, and no scan."""
    session_id = world.started(agent(asking("c1"), tools=[locate]))
    multiply(call_named(session_id, "locate"), 100_000 if connection.vendor == "postgresql" else 5_000)
    due = PendingCall.objects.filter(state=CallState.AWAITING, deadline_at__lte=world.now).order_by("deadline_at")
    plan = due.values_list("id", "root_id")[:500].explain()
    assert "helix_call_due" in plan and "Seq Scan" not in plan
    assert selectors.lapsed_calls(world.now) == []
    assert len(selectors.lapsed_calls(world.tick(seconds=300))) == 1


def multiply(template: PendingCall, times: int) -> None:
    """Copies of a waiting call, written by the database itself; each is due an hour later than the one before."""
    fields = [field for field in PendingCall._meta.concrete_fields if field.column]
    postgres = connection.vendor == "postgresql"
    made = {
        "id": "gen_random_uuid()" if postgres else "lower(hex(randomblob(16)))",
        "tool_call_id": "'copy-' || n",
        "seq": "seq + n",
        "deadline_at": "deadline_at + n * interval '1 hour'"
        if postgres
        else "strftime('%Y-%m-%d %H:%M:%S', deadline_at, '+' || n || ' hours')",
    }
    numbers = (
        f"SELECT n FROM generate_series(1, {times}) AS n"
        if postgres
        else f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {times}) SELECT n FROM c"
    )
    columns = ", ".join(field.column for field in fields)
    values = ", ".join(made.get(field.column, f"t.{field.column}") for field in fields)
    table = PendingCall._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table} AS t, ({numbers}) AS numbers")
        cursor.execute(f"ANALYZE {table}")
