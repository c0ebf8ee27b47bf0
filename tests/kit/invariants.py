"""What holds of a tree between any two commits, read from its rows alone (D-14).

`check_invariants` may be called at every point at which somebody could look; it derives the session's status anew from
contract 4.2 instead of asking the code that stores it. `check_nothing_is_forgotten` takes every hint away and lets
only sweeps work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Max, Min

from helix.models import CallOwnership, Message, PendingCall, Run, RunLease, Session, StreamEvent
from helix.statuses import (
    CALL_EXTERNAL,
    CALL_OPEN,
    RUN_CLAIMABLE,
    RUN_FINAL,
    RUN_LIVE,
    RUN_PAUSED,
    SESSION_AT_REST,
    SESSION_BUSY,
    CallKind,
    CallState,
    EventType,
    Role,
    RunStatus,
    SessionStatus,
)
from tests.kit.world import World, session_of

# A turn that is still not over after so many sweeps, a minute apart, is owed to nobody.
MOST_SWEEPS = 60


@dataclass(frozen=True)
class Rows:
    """One tree as it is stored."""

    sessions: dict[UUID, Session]
    runs: dict[UUID, Run]
    calls: list[PendingCall]
    messages: list[Message]

    @classmethod
    def of(cls, root_id: UUID) -> Rows:
        sessions = {row.id: row for row in Session.objects.filter(root_id=root_id)}
        return cls(
            sessions,
            {row.id: row for row in Run.objects.filter(session_id__in=list(sessions))},
            list(PendingCall.objects.filter(root_id=root_id).order_by("seq")),
            list(Message.objects.filter(session_id__in=list(sessions), rolled_back_by=None).order_by("position")),
        )

    def current_runs(self) -> list[Run]:
        return [self.runs[row.current_run_id] for row in self.sessions.values() if row.current_run_id]


def check_invariants(root_id: UUID, rows: Rows | None = None) -> None:
    """Raises: AssertionError when a line of D-14 does not hold of the tree. rows: the tree, if it was just read."""
    rows = rows or Rows.of(root_id)
    root = rows.sessions[root_id]
    assert root.status == status_of(rows, root), "the stored status is the one of contract 4.2"
    _check_waits(rows, root)
    _check_runs(rows)
    _check_calls(rows, root)
    for session in rows.sessions.values():
        _check_log([message for message in rows.messages if message.session_id == session.id])
    _check_results(rows)
    _check_events(root)
    assert root.status in SESSION_AT_REST or is_owed(rows), f"{root.status}, and nobody owes anything"


def status_of(rows: Rows, root: Session) -> SessionStatus:
    """Contract 4.2 from the rows of the tree: the first line that matches."""
    runs, last = rows.current_runs(), rows.runs.get(root.current_run_id) if root.current_run_id else None
    if any(run.stop_is_open for run in runs):
        return SessionStatus.STOPPING
    if any(call.state == CallState.AWAITING for call in rows.calls):
        return SessionStatus.AWAITING_CLIENT_TOOL
    children_at_work = any(call.kind == CallKind.SUBAGENT and call.state == CallState.EXECUTING for call in rows.calls)
    if children_at_work or any(run.status == RunStatus.RUNNING for run in runs):
        return SessionStatus.RUNNING
    if last is not None and (last.status in RUN_PAUSED or any(run.status in RUN_CLAIMABLE for run in runs)):
        return SessionStatus.QUEUED
    if last is None or (last.status == RunStatus.COMPLETED and not last.finished_by_tool):
        return SessionStatus.IDLE
    return SessionStatus(last.status)


def is_owed(rows: Rows) -> bool:
    """Whether a worker, a client, a person or the caller of an opted-out agent has the next move."""
    waits_for_caller = any(
        run.status in RUN_PAUSED and not rows.sessions[run.session_id].continue_on_submit for run in rows.current_runs()
    )
    at_work = any(run.status in (RunStatus.RUNNING, *RUN_CLAIMABLE) for run in rows.current_runs())
    return at_work or waits_for_caller or any(call.state == CallState.AWAITING for call in rows.calls)


def _check_waits(rows: Rows, root: Session) -> None:
    awaiting = [call for call in rows.calls if call.state == CallState.AWAITING]
    oldest = min((call.exposed_at for call in awaiting if call.exposed_at), default=None)
    assert root.waiting_since == (oldest if root.status == SessionStatus.AWAITING_CLIENT_TOOL else None)
    assert root.max_open_calls is None or len(awaiting) <= root.max_open_calls, "R-051"
    for call in awaiting:
        run = rows.runs[call.run_id]
        assert run.status in RUN_PAUSED and run.superseded_by_id is None, "an exposed call's run is suspended"
        assert call.kind in CALL_EXTERNAL


def _check_runs(rows: Rows) -> None:
    leases = {lease.run_id: lease for lease in RunLease.objects.filter(run_id__in=list(rows.runs))}
    for run in rows.runs.values():
        session = rows.sessions[run.session_id]
        assert (run.id in leases) == (run.status == RunStatus.RUNNING), "L-11: only a running run has a lease"
        assert run.id not in leases or leases[run.id].epoch == run.epoch, "one live epoch writes"
        if run.id != session.current_run_id:
            assert run.status in RUN_FINAL or run.superseded_by_id is not None, "an earlier run is over"
        assert not (run.status in RUN_LIVE and run.superseded_by_id), "only a paused or ended run is superseded"


def _check_calls(rows: Rows, root: Session) -> None:
    owned = set(CallOwnership.objects.filter(root_id=root.id).values_list("tool_call_id", flat=True))
    external = [call for call in rows.calls if call.kind in CALL_EXTERNAL]
    assert owned == {call.tool_call_id for call in external if call.state in CALL_OPEN}, "R-193"
    assert len({call.seq for call in rows.calls}) == len(rows.calls)
    for call in rows.calls:
        assert call.deadline_at is None or call.kind in CALL_EXTERNAL, "T-2: no clock on our own work"
        run = rows.runs[call.run_id]
        if call.state in CALL_OPEN:
            # A failed run keeps what was answered for whoever goes on.
            kept = run.status in RUN_FINAL and call.state == CallState.ANSWERED and run.superseded_by_id is None
            assert kept or not (run.status in RUN_FINAL or run.superseded_by_id), (
                f"{call} is open in a run that is over"
            )


def _check_log(log: Sequence[Message]) -> None:
    """R-468: nothing stands between a call and its result, and no result stands without its call (R-675)."""
    missing: set[str] = set()
    for message in log:
        if message.role == Role.TOOL:
            assert message.tool_call_id in missing, f"{message.tool_call_id} has a result too many or too early"
            missing.discard(message.tool_call_id or "")
        else:
            assert not missing, f"a {message.role} message stands before the results of {missing}"
        if message.role == Role.ASSISTANT:
            missing = {part["toolCallId"] for part in message.parts if part["type"] == "tool_call"}


def _check_results(rows: Rows) -> None:
    """One result per closed call and none for an open one; what a rewind took back has left the log."""
    asked = {
        part["toolCallId"]
        for message in rows.messages
        if message.role == Role.ASSISTANT
        for part in message.parts
        if part["type"] == "tool_call"
    }
    results = Counter(message.tool_call_id for message in rows.messages if message.role == Role.TOOL)
    for call in rows.calls:
        closed = call.state not in CALL_OPEN and call.tool_call_id in asked
        assert results[call.tool_call_id] == closed, f"{call}: {results[call.tool_call_id]} results, {call.state}"


def _check_events(root: Session) -> None:
    """R-513, R-518: numbers without a gap; every call ends once, but for what a rewind began anew."""
    stream = StreamEvent.objects.filter(root_id=root.id)
    found = stream.aggregate(Min("sequence"), Max("sequence"), Count("sequence"))
    length = root.stream_sequence - root.stream_floor + 1
    assert found["sequence__count"] == length, "no gap, and nothing beyond the counter"
    assert not length or (found["sequence__min"], found["sequence__max"]) == (root.stream_floor, root.stream_sequence)
    told = stream.filter(type__in=(EventType.TOOL_END, EventType.STREAM_RESYNC)).values_list("type", "payload")
    ends = Counter(payload["toolCallId"] for kind, payload in told if kind == EventType.TOOL_END)
    was_rewound = any(payload.get("reason") == "rewind" for _, payload in told)
    assert was_rewound or [one for one, times in ends.items() if times > 1] == [], "one end per call"


def check_nothing_is_forgotten(world: World, root_id: UUID) -> None:
    """B-08, R-233: without a hint or a request, sweeps alone bring the tree to rest or to somebody outside."""
    for _ in range(MOST_SWEEPS):
        world.drop_hints()
        rows = Rows.of(root_id)
        at_work = [run for run in rows.current_runs() if run.status in (RunStatus.RUNNING, *RUN_CLAIMABLE)]
        if not at_work:
            break
        world.wait(seconds=59)
        world.drain()
    assert not at_work, f"still {[run.status for run in at_work]} after {MOST_SWEEPS} sweeps"
    check_invariants(root_id)
    assert session_of(root_id).status not in SESSION_BUSY or is_owed(Rows.of(root_id))
