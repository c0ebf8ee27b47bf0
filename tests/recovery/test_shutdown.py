"""A real Celery worker that is asked to end with a real signal hands its runs back and ends by itself (RT-06)."""

from __future__ import annotations

import signal
from uuid import UUID

import pytest

from helix.models import Run, RunLease
from tests.kit.world import current_run, results, session_of
from tests.provider_server import Gate, call, text
from tests.recovery.crew.watch import BODY
from tests.recovery.fleet import Fleet, Member

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.postgres,
]


def begin(fleet: Fleet) -> UUID:
    return UUID(fleet.post("start", {"agentType": "crew", "message": "ring"})["sessionId"])


def asked_to_end(member: Member) -> int:
    """Its exit status after SIGTERM; a worker that does not end by itself keeps the test until its bound."""
    member.process.send_signal(signal.SIGTERM)
    return member.process.wait()


def test_a_worker_with_a_model_request_gives_the_run_back(fleet: Fleet) -> None:
    """RT-06, Q-21, R-674: the request is cut, the run is claimable without any lease to wait for, and the next worker
    asks again."""
    gate = Gate()
    fleet.provider.answer(text("half"), gate)
    fleet.provider.answer(text("whole"))
    first = fleet.worker(HELIX_STREAM_SILENCE_SECONDS="3600")
    session_id = begin(fleet)
    gate.entered.wait()
    assert asked_to_end(first) == 0
    run = current_run(session_id)
    assert run.status == "suspended_step_partial" and not RunLease.objects.exists() and run.crash_count == 0
    assert fleet.provider.hung_up.wait()
    second = fleet.worker()
    fleet.hint(run.id)
    second.until(lambda: session_of(session_id).status == "idle")
    assert len(fleet.provider.requests) == 2 and Run.objects.get().epoch == 2


def test_a_worker_whose_body_takes_no_notice_ends_all_the_same(fleet: Fleet) -> None:
    """RT-06, Q-14, Q-61, R-674: only the process is under a clock. The body is closed as interrupted, never run again,
    and the turn goes on elsewhere."""
    fleet.provider.answer(*call(0, "s1", "ring_once", '{"bell":"small"}'))
    fleet.provider.answer(text("done"))
    first = fleet.worker()
    first.holds_at(BODY)
    session_id = begin(fleet)
    first.until_at(BODY)
    assert asked_to_end(first) == 0
    assert current_run(session_id).status == "suspended_step_partial" and not RunLease.objects.exists()
    second = fleet.worker()
    fleet.hint(current_run(session_id).id)
    second.until(lambda: session_of(session_id).status == "idle")
    assert fleet.rung == ["small"] and results(session_id)["s1"]["errorCode"] == "interrupted"


def test_an_idle_worker_just_ends(fleet: Fleet) -> None:
    """RT-06: the control, with a suspended turn that no process has anything of."""
    fleet.provider.answer(*call(0, "c1", "locate", "{}"))
    worker = fleet.worker()
    session_id = begin(fleet)
    worker.until(lambda: session_of(session_id).status == "awaiting_client_tool")
    assert asked_to_end(worker) == 0
    assert current_run(session_id).status == "suspended_client_tool"
