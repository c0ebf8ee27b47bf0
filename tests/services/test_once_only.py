"""Once only: however often a verdict comes and whoever carries it out, one decision is one execution (5.F, C-018…)."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connections, transaction

from helix.agents import ToolContext, tool
from helix.models import CallAudit, PendingCall
from helix.rows.holdings import HOLDINGS
from helix.services.advance import bodies as body_service
from tests.fixtures import AgentMaker
from tests.kit.crash import worker_dies_in
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies
from tests.kit.world import OPERATOR, OWNER, World, call_named, pending, results

pytestmark = pytest.mark.django_db


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


def one_payment(number: int = 5) -> ScriptedModel:
    return ScriptedModel([call("pay", "p1", number=number)], ["done"])


def test_one_verdict_releases_one_of_two_identical_waiters(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """C-019: same tool, same arguments; the other still waits and is decided for itself."""
    model = ScriptedModel([call("pay", "p1", number=5), call("pay", "p2", number=5)], ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    first, second = pending(session_id)
    world.decide(first)
    assert [waiting.tool_call_id for waiting in pending(session_id)] == ["p2"]
    world.decide(second, approved=False)
    world.drain()
    assert bodies.ran == [("pay", 5)]


def test_approving_twice_runs_the_body_once(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """C-018, R-065, R-169: before, while and after the continuation runs; a denial comes too late."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    assert world.decide(asked)["status"] == "accepted"
    assert world.decide(asked)["status"] == "already_completed"
    assert world.decide(asked, approved=False)["status"] == "already_completed"
    world.drain()
    assert world.decide(asked)["status"] == "already_completed"
    world.drain()
    assert bodies.ran == [("pay", 5)]


@pytest.mark.django_db(transaction=True)
def test_fifty_clicks_at_once_are_one_effect(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """C-018, X-16: on connections of their own; one is accepted, the rest hear that it is done, one body runs."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")

    def click(_: int) -> str:
        try:
            return str(world.decide(asked)["status"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=10) as clickers:
        heard = Counter(clickers.map(click, range(50)))
    world.drain()
    assert heard == {"accepted": 1, "already_completed": 49}
    assert bodies.ran == [("pay", 5)] and CallAudit.objects.count() == 1


def test_a_body_that_lost_its_worker_does_not_run_again(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """R-169, R-016: the other worker closes the call as interrupted; with replay="safe" it runs again."""
    model = ScriptedModel([call("pay", "p1", number=5), call("look", "l1", number=6)], ["done"])
    tools = [bodies.tool("pay", require_approval=True), bodies.tool("look", require_approval=True, replay="safe")]
    session_id = world.started(agent(model, tools=tools))
    for asked in pending(session_id):
        world.decide(asked)
    for _ in tools:
        with worker_dies_in(body_service, "_record_body"):
            world.drain()
        world.tick(seconds=31)
        world.sweep()
    world.drain()
    assert bodies.ran == [("pay", 5), ("look", 6), ("look", 6)]
    assert results(session_id)["p1"]["errorCode"] == "interrupted"
    assert model.results_seen()["l1"] == "look 6"


def test_an_approved_call_runs_whatever_worker_takes_it(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-025: another process, and a body that asks for its context."""
    ran: list[str] = []

    @tool(require_approval=True)
    def pay(context: ToolContext) -> str:
        ran.append(context.tool_call_id)
        return "paid"

    session_id = world.started(agent(ScriptedModel([call("pay", "p1")], ["done"]), tools=[pay]))
    world.decide(call_named(session_id, "pay"))
    monkeypatch.setattr(HOLDINGS, "_pid", 0)
    world.drain()
    assert ran == ["p1"]


def test_a_call_has_one_row_in_its_tree(world: World, agent: AgentMaker, bodies: Bodies) -> None:
    """C-026, R-161: the database refuses a second row of a call, and a second call of an approval id."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    for changed in ({"approval_id": "other"}, {"tool_call_id": "other"}):
        twin = PendingCall.objects.get(pk=asked.pk)
        twin._state.adding = True
        twin.pk = None
        for name, value in changed.items():
            setattr(twin, name, value)
        with pytest.raises(IntegrityError), transaction.atomic():
            twin.save(force_insert=True)


def test_the_history_has_one_entry_per_call_after_any_number_of_pauses(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """C-027: three pauses, three calls, three results, each once and each after its call."""
    steps = [[call("pay", f"p{n}", number=n)] for n in (1, 2, 3)]
    model = ScriptedModel(*steps, ["done"])
    session_id = world.started(agent(model, tools=[bodies.tool("pay", require_approval=True)]))
    for _ in steps:
        (asked,) = pending(session_id)
        world.decide(asked)
        world.drain()
    last = model.requests[-1].messages
    calls = [part["toolCallId"] for message in last for part in message.calls()]
    answered = [message.tool_call_id for message in last if message.role == "tool"]
    assert calls == answered == ["p1", "p2", "p3"]
    assert bodies.ran == [("pay", 1), ("pay", 2), ("pay", 3)]


def test_operators_and_owners_leave_an_audit_row_for_each_verdict(
    world: World, agent: AgentMaker, bodies: Bodies
) -> None:
    """R-178, B-31: who, what, when and through which door; a repeat adds none."""
    session_id = world.started(agent(one_payment(), tools=[bodies.tool("pay", require_approval=True)]))
    asked = call_named(session_id, "pay")
    world.decide(asked, approved=False, reason="no", principal=OPERATOR)
    world.decide(asked, approved=True, principal=OWNER)
    (row,) = CallAudit.objects.all()
    assert (row.action, row.actor, row.door, row.at) == ("deny", "operator", "test", world.now)
    assert row.after == {"reason": "no"} and row.before == {"argumentsJson": '{"number":5}'}
