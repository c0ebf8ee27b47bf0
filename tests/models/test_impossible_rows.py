"""The database itself refuses the rows that must not exist, whatever the code above it does (F-6, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction

from helix.models import CallOwnership, Message, PendingCall, Run, Session, StreamEvent
from helix.statuses import RUN_FINAL, RUN_LIVE, RUN_MOVES, CallKind, CallState, RunStatus
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import T0, World, call_named, current_run, session_of

pytestmark = pytest.mark.django_db


def refused(write: Callable[[], object]) -> str:
    """The database's complaint about the write; the test fails when there is none."""
    with pytest.raises(IntegrityError) as complaint, transaction.atomic():
        write()
    return str(complaint.value)


@pytest.fixture
def waiting(world: World, agent: AgentMaker) -> UUID:
    """A conversation with a consumed server call and a client call that waits."""
    model = ScriptedModel([call("count", "s1", number=1)], [call("locate", "c1")])
    return world.started(agent(model, tools=[Bodies().tool("count"), locate]))


def another_run(session_id: UUID, **columns: object) -> Run:
    defaults = {"session_id": session_id, "number": 99, "turn": 9, "cause": "execute", "started_by": "owner"}
    return Run.objects.create(**{**defaults, **columns})


def test_two_live_runs_in_one_session(waiting: UUID) -> None:
    """Contract 3.2; the control is a first live run beside a suspended one."""
    another_run(waiting)
    for status in RUN_LIVE:
        assert "helix_run" in refused(lambda status=status: another_run(waiting, number=100, status=status))


def test_two_results_for_one_call(waiting: UUID) -> None:
    """R-269, B-11; the control is a second result after the first was rolled back."""

    def second(**columns: object) -> Message:
        return Message.objects.create(
            session_id=waiting, position=900, role="tool", tool_call_id="s1", parts=[], **columns
        )

    assert "message" in refused(second)
    Message.objects.filter(session_id=waiting, tool_call_id="s1").update(rolled_back_by=current_run(waiting))
    second()


@pytest.mark.parametrize("kind", [CallKind.SERVER, CallKind.SUBAGENT])
def test_a_deadline_on_our_own_work(waiting: UUID, kind: CallKind) -> None:
    """T-2; the control is the client call, which has one."""
    call_row = call_named(waiting, "count")
    rows = PendingCall.objects.filter(pk=call_row.pk)
    rows.update(kind=kind)
    assert "helix_call_deadline" in refused(lambda: rows.update(deadline_at=T0))
    assert call_named(waiting, "locate").deadline_at is not None


@pytest.mark.parametrize("state", [CallState.ANSWERED, CallState.CONSUMED])
def test_a_resolved_call_without_an_answer(waiting: UUID, state: CallState) -> None:
    rows = PendingCall.objects.filter(pk=call_named(waiting, "locate").pk)
    assert "helix_call_resolved" in refused(lambda: rows.update(state=state))
    assert "helix_call_resolved" in refused(lambda: rows.update(state=state, answered_at=T0))
    rows.update(state=state, answered_at=T0, answer_kind="result")


@pytest.mark.parametrize("step", [0, 2, 50])
def test_a_gap_or_a_repeat_in_a_streams_sequence(waiting: UUID, step: int) -> None:
    """R-518; the control is the next number."""
    session = session_of(waiting)

    def event(sequence: int) -> StreamEvent:
        return StreamEvent.objects.create(root=session, session=session, sequence=sequence, type="custom")

    assert "helix_event" in refused(lambda: event(session.stream_sequence + step))
    event(session.stream_sequence + 1)


def test_a_gap_inside_one_bulk_insert(waiting: UUID) -> None:
    session = session_of(waiting)
    rows = [
        StreamEvent(root=session, session=session, sequence=session.stream_sequence + step, type="custom")
        for step in (1, 2, 4)
    ]
    assert "helix_event_gap" in refused(lambda: StreamEvent.objects.bulk_create(rows))
    StreamEvent.objects.bulk_create(rows[:2])


def test_a_state_or_a_status_that_no_table_knows(waiting: UUID) -> None:
    for table in (Session, Run):
        rows = table._default_manager.filter(pk__in=[waiting, current_run(waiting).pk])
        assert "status" in refused(lambda rows=rows: rows.update(status="lost"))
    assert "helix_call_state" in refused(lambda: PendingCall.objects.update(state="lost"))


def test_an_end_without_an_instant_and_an_instant_without_an_end(waiting: UUID) -> None:
    run = Run.objects.filter(pk=current_run(waiting).pk)
    assert "ended" in refused(lambda: run.update(status=RunStatus.INTERRUPTED))
    assert "ended" in refused(lambda: run.update(ended_at=T0))


def test_a_failure_without_a_code_and_a_stop_without_a_kind(waiting: UUID) -> None:
    run = Run.objects.filter(pk=current_run(waiting).pk)
    assert "failed" in refused(lambda: run.update(status=RunStatus.FAILED, ended_at=T0))
    assert "stop" in refused(lambda: run.update(stop_requested_at=T0))


def test_an_awaiting_call_that_nobody_was_shown(waiting: UUID) -> None:
    rows = PendingCall.objects.filter(pk=call_named(waiting, "locate").pk)
    assert "helix_call_awaiting" in refused(lambda: rows.update(exposed_at=None))


def test_a_call_id_twice_in_one_tree_and_an_owner_of_two_forms(waiting: UUID) -> None:
    copy = call_named(waiting, "locate")
    copy.pk = uuid4()
    complaint = refused(lambda: copy.save(force_insert=True))
    assert "helix_call_once_per_tree" in complaint or "tool_call_id" in complaint
    owners = CallOwnership.objects.filter(root_id=waiting)
    assert owners.count() == 1
    assert "helix_ownership" in refused(lambda: owners.update(remote_url="https://peer.example/api"))


def test_an_alias_twice_for_one_owner(waiting: UUID, world: World) -> None:
    Session.objects.filter(pk=waiting).update(client_id="mine")
    session = session_of(waiting)
    key = uuid4()
    copy = Session(id=key, root_id=key, owner=session.owner, client_id="mine", agent_type="x")
    complaint = refused(lambda: copy.save(force_insert=True))
    assert "helix_session_alias" in complaint or "client_id" in complaint
    copy.owner = "stranger"
    copy.save(force_insert=True)


def test_waiting_since_is_there_exactly_while_somebody_is_awaited(waiting: UUID) -> None:
    """I-15."""
    session = Session.objects.filter(pk=waiting)
    assert "helix_session_waits" in refused(lambda: session.update(waiting_since=None))
    assert "helix_session_waits" in refused(lambda: session.update(status="idle"))
    assert session_of(waiting).waiting_since == T0


def test_the_final_states_of_the_table_have_no_way_out() -> None:
    assert {status for status, after in RUN_MOVES.items() if not after} == set(RUN_FINAL)
