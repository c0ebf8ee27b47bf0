"""Why a conversation stands where it stands: its tree, runs, leases, calls and debts, each with what it waits for.

The same explanation is the session page of the console and the output of ``helix_explain`` (R-667, B-32). It reads
rows and changes none; its size is bounded, however long the conversation is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from helix.admin.waiting import call_waits_for, debt_waits_for, run_waits_for
from helix.models import CallOwnership, PendingCall, RemoteChild, RemoteDebt, Run, RunLease, Session
from helix.rows import sweeps
from helix.selectors import as_uuid, consistent_read
from helix.services.barrier import Settled, settled_for
from helix.statuses import CALL_OPEN

# Of each tree: its newest sessions and runs, all open calls up to a bound, and the calls that closed last.
MOST_SESSIONS = 100
MOST_RUNS = 100
MOST_OPEN_CALLS = 500
MOST_CLOSED_CALLS = 20


@dataclass(frozen=True)
class ExplainedRun:
    run: Run
    lease: RunLease | None
    waits_for: str


@dataclass(frozen=True)
class ExplainedCall:
    call: PendingCall
    waits_for: str


@dataclass(frozen=True)
class ExplainedDebt:
    debt: RemoteDebt
    waits_for: str


@dataclass(frozen=True)
class ExplainedSession:
    """depth: 0 for the root."""

    session: Session
    depth: int
    runs: tuple[ExplainedRun, ...]
    calls: tuple[ExplainedCall, ...]


@dataclass(frozen=True)
class Explanation:
    """settled: how the present turn stands as a whole; None: there was none yet.

    sweep_finished_at: when deadlines were last judged; None: never. sweep_is_due: it is past its grace.
    """

    root: Session
    settled: Settled | None
    sessions: tuple[ExplainedSession, ...]
    debts: tuple[ExplainedDebt, ...]
    sweep_finished_at: datetime | None
    sweep_is_due: bool


def explain(root: Session, now: datetime) -> Explanation:
    """The explanation of one tree as one state of the database shows it."""
    with consistent_read():
        fair = sweeps.expiry_is_fair(now)
        return Explanation(
            root=root,
            settled=settled_for(root.current_run_id) if root.current_run_id else None,
            sessions=_Tree(root, now, fair).explained(),
            debts=tuple(ExplainedDebt(debt, debt_waits_for(debt)) for debt in _debts_of(root)),
            sweep_finished_at=sweeps.last_finished(sweeps.DEADLINES),
            sweep_is_due=not fair,
        )


def explained_call(call: PendingCall, now: datetime) -> ExplainedCall:
    """One call with what it waits for."""
    tree = _Tree(call.root, now, sweeps.expiry_is_fair(now))
    return tree.explain_call(call)


def roots_named(term: str, limit: int = 10) -> list[Session]:
    """The conversations that an operator may mean: by the id of a session, run or call, an alias, or a tool call id."""
    key = as_uuid(term)
    found: set[UUID] = set(Session.objects.filter(client_id=term).values_list("root_id", flat=True)[:limit])
    if key is not None:
        # One look-up per table: a join over the three would read them whole.
        found.update(Session.objects.filter(pk=key).values_list("root_id", flat=True))
        found.update(Run.objects.filter(pk=key).values_list("session__root_id", flat=True))
        found.update(PendingCall.objects.filter(pk=key).values_list("root_id", flat=True))
    if not found:
        found.update(PendingCall.objects.filter(tool_call_id=term).values_list("root_id", flat=True)[:limit])
    return list(Session.objects.filter(pk__in=found).order_by("-created_at")[:limit])


def _debts_of(root: Session) -> list[RemoteDebt]:
    named = Q(call__root_id=root.id)
    children = RemoteChild.objects.filter(session__root_id=root.id).order_by("-session__created_at")
    delegations = list(children.values_list("delegation_id", flat=True)[:MOST_OPEN_CALLS])
    if delegations:
        named |= Q(delegation_id__in=delegations)
    return list(RemoteDebt.objects.filter(named).select_related("call").order_by("-id")[:MOST_OPEN_CALLS])


class _Tree:
    """The rows of one tree, read once each."""

    def __init__(self, root: Session, now: datetime, fair: bool) -> None:
        self.root, self.now, self.fair = root, now, fair
        sessions = list(Session.objects.filter(root_id=root.id).order_by("-created_at")[:MOST_SESSIONS])
        if root not in sessions:
            sessions[-1:] = [root]
        self.sessions: dict[UUID, Session] = {session.id: session for session in reversed(sessions)}
        runs = Run.objects.filter(session__in=self.sessions).select_related("lease").order_by("-queued_at")[:MOST_RUNS]
        self.runs: dict[UUID, Run] = {run.id: run for run in reversed(runs)}
        self.children: dict[UUID, UUID] = {
            session.parent_call_id: session.id for session in self.sessions.values() if session.parent_call_id
        }
        remote = CallOwnership.objects.filter(root_id=root.id, remote_url__isnull=False)
        self.remote = {one.tool_call_id: one for one in remote[:MOST_OPEN_CALLS]}
        calls = PendingCall.objects.filter(root_id=root.id)
        closed = calls.exclude(state__in=CALL_OPEN).order_by("-seq")[:MOST_CLOSED_CALLS]
        shown = [*calls.filter(state__in=CALL_OPEN).order_by("seq")[:MOST_OPEN_CALLS], *closed]
        self.calls: list[PendingCall] = sorted(shown, key=lambda call: call.seq)

    def explained(self) -> tuple[ExplainedSession, ...]:
        return tuple(self._below(self.root, 0))

    def _below(self, session: Session, depth: int) -> Iterator[ExplainedSession]:
        """The session and its descendants, each below its parent, in the order in which they began."""
        yield ExplainedSession(session, depth, self._runs_of(session), self._calls_of(session))
        for child in self.sessions.values():
            if child.parent_id == session.id:
                yield from self._below(child, depth + 1)

    def _runs_of(self, session: Session) -> tuple[ExplainedRun, ...]:
        explained = []
        for run in self.runs.values():
            if run.session_id == session.id:
                lease = getattr(run, "lease", None)
                waits_for = run_waits_for(run, lease, self._open_calls_of(run), session, self.now)
                explained.append(ExplainedRun(run, lease, waits_for))
        return tuple(explained)

    def _open_calls_of(self, run: Run) -> Sequence[PendingCall]:
        return [call for call in self.calls if call.run_id == run.id and call.state in CALL_OPEN]

    def _calls_of(self, session: Session) -> tuple[ExplainedCall, ...]:
        return tuple(self.explain_call(call) for call in self.calls if call.session_id == session.id)

    def explain_call(self, call: PendingCall) -> ExplainedCall:
        waits_for = call_waits_for(
            call,
            run=self.runs.get(call.run_id),
            owner=self.root.owner,
            remote=self.remote.get(call.tool_call_id),
            child_id=self.children.get(call.id),
            now=self.now,
            deadlines_are_judged=self.fair,
        )
        return ExplainedCall(call, waits_for)
