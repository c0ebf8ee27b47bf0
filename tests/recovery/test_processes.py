"""Real processes, really killed: daphne, Celery workers, PostgreSQL, Redis, and a model provider over HTTP."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

from helix.models import CallTombstone, Message, PendingCall, Run, RunLease
from helix.waypoints import Waypoint
from tests.kit.world import current_run, results, session_of
from tests.provider_server import Gate, ProviderServer, call, text
from tests.recovery.crew.watch import BODY
from tests.recovery.fleet import NOWHERE, Fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.postgres,
]


def begin(fleet: Fleet) -> UUID:
    entered = fleet.post("start", {"agentType": "crew", "message": "ring"})
    return UUID(entered["sessionId"])


def is_idle(session_id: UUID) -> bool:
    return session_of(session_id).status == "idle"


def awaits(session_id: UUID) -> bool:
    return session_of(session_id).status == "awaiting_client_tool"


def locate_then_done(provider: ProviderServer) -> None:
    provider.answer(*call(0, "c1", "locate", '{"pre', 'cise":true}'))
    provider.answer(text("You are "), text("in Bern."))


def answer(fleet: Fleet, session_id: UUID, call_id: str = "c1", value: Any = "Bern") -> dict[str, Any]:
    return fleet.post("submit-tool-result", {"sessionId": str(session_id), "toolCallId": call_id, "result": value})


def tool_results_in(request: dict[str, Any]) -> dict[str, str]:
    return {m["tool_call_id"]: m["content"] for m in request["messages"] if m["role"] == "tool"}


def test_the_main_job_from_post_to_finished(fleet: Fleet) -> None:
    """B-10, R-032, R-134, R-141, R-144: server, client and approved calls in fragments, from end to end."""
    fleet.provider.answer(
        *call(0, "s1", "ring_once", '{"be', 'll":"small"}'),
        *call(1, "c1", "locate", "{}"),
        *call(2, "p1", "ring_loudly", '{"bell":', '"big"}'),
    )
    fleet.provider.answer(text("All "), text("rung."))
    worker = fleet.worker()
    session_id = begin(fleet)
    worker.until(lambda: awaits(session_id))
    shown = fleet.get(f"sessions/{session_id}")["pendingTools"]
    assert [one["toolCallId"] for one in shown] == ["c1", "p1"] and fleet.rung == ["small"]
    assert answer(fleet, session_id)["continuation"] == {"kind": "awaiting_batch"}
    verdict = {"kind": "approval-response", "approvalId": shown[1]["approvalId"], "approved": True}
    decided = fleet.post("submit-tool-result", {"sessionId": str(session_id), "toolCallId": "p1", **verdict})
    assert decided["continuation"]["kind"] == "new_run"
    worker.until(lambda: is_idle(session_id))
    assert tool_results_in(fleet.provider.requests[-1]) == {"s1": "rang small", "c1": "Bern", "p1": "rang big"}
    assert len(fleet.provider.requests) == 2 and fleet.rung == ["small", "big"]
    last = Message.objects.filter(session_id=session_id).order_by("-position")[0]
    assert last.parts[0]["text"] == "All rung."
    assert answer(fleet, session_id)["status"] == "already_completed"


def test_a_provider_in_trouble_is_asked_again(fleet: Fleet) -> None:
    """R-494, RT-22, Q-60: an error of the service, then a stream that falls silent; the same step is repeated."""
    fleet.provider.refuse(503)
    fleet.provider.answer(text("Hm"), Gate())
    fleet.provider.answer(text("Here I am."))
    worker = fleet.worker()
    session_id = begin(fleet)
    for attempt in (1, 2):
        worker.until(lambda attempt=attempt: current_run(session_id).model_attempts == attempt)
        assert session_of(session_id).status == "queued"
        fleet.sweep()
    worker.until(lambda: is_idle(session_id))
    assert len(fleet.provider.requests) == 3
    texts = Message.objects.filter(session_id=session_id, role="assistant")
    assert [message.parts[0]["text"] for message in texts] == ["Here I am."]


def test_a_worker_that_is_killed_while_a_turn_is_suspended_is_not_missed(fleet: Fleet) -> None:
    """B-09, B-10, L-11, R-469: nothing of a suspended turn lives in a process."""
    locate_then_done(fleet.provider)
    first = fleet.worker()
    session_id = begin(fleet)
    first.until(lambda: awaits(session_id))
    first.kill()
    assert not RunLease.objects.exists()
    second = fleet.worker()
    assert answer(fleet, session_id)["continuation"]["kind"] == "new_run"
    second.until(lambda: is_idle(session_id))
    assert tool_results_in(fleet.provider.requests[-1]) == {"c1": "Bern"} and len(fleet.provider.requests) == 2


@pytest.mark.parametrize("point", [Waypoint.CLAIMED, Waypoint.AFTER_COMMIT])
def test_a_worker_that_is_killed_in_a_continuation_is_replaced(fleet: Fleet, point: Waypoint) -> None:
    """B-09, X-14, X-15, L-8: between the submit's commit and the continuation's first step, at each named point."""
    locate_then_done(fleet.provider)
    first = fleet.worker()
    session_id = begin(fleet)
    first.until(lambda: awaits(session_id))
    first.holds_at(point)
    assert answer(fleet, session_id)["continuation"]["kind"] == "new_run"
    first.dies_at(point)
    assert session_of(session_id).status == ("running" if point == Waypoint.AFTER_COMMIT else "queued")
    second = fleet.worker()
    fleet.sweep()
    second.until(lambda: is_idle(session_id))
    assert tool_results_in(fleet.provider.requests[-1]) == {"c1": "Bern"} and len(fleet.provider.requests) == 2
    assert Message.objects.filter(role="tool").count() == CallTombstone.objects.count() == 1
    assert Run.objects.filter(cause="continuation").count() == 1


@pytest.mark.parametrize(("bell", "times"), [("ring_once", 1), ("ring_safely", 2)])
def test_a_worker_that_is_killed_inside_a_body_runs_it_again_only_where_it_may(
    fleet: Fleet, bell: str, times: int
) -> None:
    """B-09, R-016, L-8: the body has begun and its result was not recorded."""
    fleet.provider.answer(*call(0, "s1", bell, '{"bell":"small"}'))
    fleet.provider.answer(text("done"))
    doomed = fleet.worker()
    doomed.holds_at(BODY)
    session_id = begin(fleet)
    doomed.dies_at(BODY)
    assert fleet.rung == ["small"] and PendingCall.objects.get().state == "executing"
    second = fleet.worker()
    fleet.sweep()
    second.until(lambda: is_idle(session_id))
    assert fleet.rung == ["small"] * times
    assert results(session_id)["s1"]["errorCode"] == ("interrupted" if times == 1 else None)
    assert len(fleet.provider.requests) == 2


def cut_off(fleet: Fleet, session_id: UUID) -> object:
    """What a client hears whose server dies: an error of the connection, else the answer."""
    try:
        return answer(fleet, session_id)
    except OSError as error:
        return error


def test_a_web_process_that_is_killed_between_commit_and_hint_has_accepted_the_answer(fleet: Fleet) -> None:
    """X-15, B-08, Q-12: the client never heard, the sweep continues, and the repeat is told that it is stored."""
    locate_then_done(fleet.provider)
    worker = fleet.worker()
    session_id = begin(fleet)
    worker.until(lambda: awaits(session_id))
    standing = fleet.address
    doomed = fleet.web()
    doomed.holds_at(Waypoint.BEFORE_NUDGE)
    heard: list[object] = []
    unanswered = threading.Thread(target=lambda: heard.append(cut_off(fleet, session_id)))
    unanswered.start()
    doomed.dies_at(Waypoint.BEFORE_NUDGE)
    unanswered.join()
    assert isinstance(heard[0], OSError)
    assert current_run(session_id).status == "queued"
    fleet.address = standing
    assert answer(fleet, session_id)["status"] == "already_completed"
    fleet.sweep()
    worker.until(lambda: is_idle(session_id))
    assert tool_results_in(fleet.provider.requests[-1]) == {"c1": "Bern"} and len(fleet.provider.requests) == 2


def test_a_dead_broker_costs_a_sweep_and_no_request(fleet: Fleet) -> None:
    """B-24, R-080, B-08: every hint of the web process is lost; what is stored is answered with 2xx all the same."""
    locate_then_done(fleet.provider)
    fleet.web(broker=NOWHERE)
    worker = fleet.worker()
    session_id = begin(fleet)
    fleet.sweep()
    worker.until(lambda: awaits(session_id))
    assert answer(fleet, session_id)["status"] == "accepted"
    fleet.sweep()
    worker.until(lambda: is_idle(session_id))
    assert len(fleet.provider.requests) == 2


def test_a_stop_through_one_process_cuts_the_model_call_of_another(fleet: Fleet) -> None:
    """B-38, Q-13, Q-21, R-410, R-419: the provider sees the worker hang up between two chunks; the words stay."""
    gate = Gate()
    fleet.provider.answer(text("Once upon"), gate, text(" a time"))
    worker = fleet.worker(HELIX_STREAM_SILENCE_SECONDS="600")
    session_id = begin(fleet)
    gate.entered.wait()
    # The first words are an event of their own: the worker has read them.
    worker.until(lambda: session_of(session_id).events.filter(type="text_delta").exists())
    stopped = fleet.post("interrupt", {"sessionId": str(session_id), "reason": "enough"})
    assert stopped["outcome"] == "recorded"
    fleet.provider.hung_up.wait()
    worker.until(lambda: session_of(session_id).status == "interrupted")
    last = Message.objects.filter(session_id=session_id).order_by("-position")[0]
    assert (last.parts[0]["text"], last.interrupted) == ("Once upon", True) and len(fleet.provider.requests) == 1
