"""Reads, each narrowed to an owner, a reviewer or an operator in its query (R-398): missing and foreign look alike.

What is returned is rows; `helix.wire` says how clients see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import BooleanField, F, Func, Q, QuerySet, Value
from django.db.models.fields.json import KeyTransform

from helix.errors import CursorTooOld, NotFound, UnknownToolCall
from helix.models import (
    CallOwnership,
    Checkpoint,
    Message,
    PendingCall,
    Run,
    RunLease,
    Session,
    StreamEvent,
)
from helix.policy import approval_policy
from helix.principals import Principal
from helix.statuses import (
    CALL_EXTERNAL,
    RUN_CLAIMABLE,
    RUN_FINAL,
    CallKind,
    CallState,
    RunStatus,
    SessionStatus,
    StreamStatus,
)

PAGE = 50
LARGEST_PAGE = 200


@contextmanager
def consistent_read() -> Iterator[None]:
    """Every query inside sees one state of the database (R-519)."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


# -- sessions ----------------------------------------------------------------------------------------------------------


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _named(session_id: str) -> Q:
    """A root by its id, or by the alias that its owner chose (R-365)."""
    key = as_uuid(session_id)
    named = Q(client_id=session_id)
    return named if key is None else named | Q(pk=key)


def _within(principal: Principal) -> Q:
    return Q() if principal.is_operator else Q(owner=principal.id)


def roots_of(principal: Principal) -> QuerySet[Session]:
    """The conversations within the principal's reach; a child is never named by anybody (R-190)."""
    roots = Session.objects.filter(_within(principal), root_id=F("id"))
    if principal.session_id is not None:
        roots = roots.filter(_named(principal.session_id))
    return roots


def session_for(principal: Principal, session_id: str) -> Session:
    """Raises: `NotFound`, the same for a missing and a foreign session."""
    matches = list(roots_of(principal).filter(_named(session_id))[:2])
    # An operator may name an alias that two owners use: that names nobody.
    exact = [session for session in matches if str(session.id) == session_id] or matches
    if len(exact) != 1:
        raise NotFound("There is no such session.")
    return exact[0]


@dataclass(frozen=True)
class SessionFilters:
    """Filters of a session list (R-567); those of operators are ignored for others."""

    agent_type: str | None = None
    status: str | None = None
    tag: str | None = None
    owner: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    # Members that the metadata must have, with exactly these values.
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    # The sessions that this one started, instead of conversations.
    parent: UUID | None = None


def sessions_page(
    principal: Principal, filters: SessionFilters, *, limit: int = PAGE, after: tuple[datetime, UUID] | None = None
) -> list[Session]:
    """Newest first; one row more than ``limit`` says that there is a next page. ``after``: the last row's keys."""
    if principal.is_operator and filters.parent is not None:
        sessions = Session.objects.filter(parent_id=filters.parent)
    else:
        sessions = roots_of(principal)
    wanted: dict[str, Any] = {
        "agent_type": filters.agent_type,
        "status": filters.status,
        "owner": filters.owner if principal.is_operator else None,
        "created_at__gte": filters.created_after,
        "created_at__lt": filters.created_before,
    }
    sessions = sessions.filter(**{name: value for name, value in wanted.items() if value is not None})
    if filters.tag is not None:
        sessions = sessions.filter(_tagged(filters.tag))
    if filters.metadata:
        sessions = _with_metadata(sessions, filters.metadata)
    if after is not None:
        sessions = sessions.filter(Q(created_at__lt=after[0]) | Q(created_at=after[0], pk__lt=after[1]))
    return list(sessions.order_by("-created_at", "-id")[: limit + 1])


class _HasMember(Func):
    """Whether a JSON list has exactly this text as a member, on SQLite, where Django knows no containment."""

    template = "EXISTS (SELECT 1 FROM json_each(%(expressions)s)"
    arg_joiner = ") AS member WHERE member.type = 'text' AND member.value = "
    output_field = BooleanField()


def _tagged(tag: str) -> Q:
    if connection.features.supports_json_field_contains:
        return Q(tags__contains=[tag])
    return Q(_HasMember(F("tags"), Value(tag)))


def _with_metadata(sessions: QuerySet[Session], members: Mapping[str, Any]) -> QuerySet[Session]:
    if connection.features.supports_json_field_contains:
        return sessions.filter(metadata__contains=dict(members))
    for number, (key, value) in enumerate(members.items()):
        # A key transform, since a look-up by name would read "__" in a key as a path.
        sessions = sessions.alias(**{f"member_{number}": KeyTransform(key, "metadata")})
        sessions = sessions.filter(**{f"member_{number}": value})
    return sessions


# -- calls -------------------------------------------------------------------------------------------------------------


def call_for(principal: Principal, session_id: str, tool_call_id: str) -> PendingCall:
    """An external call of a tree, through its owner or within reach (R-323 step 6).

    Raises: `UnknownToolCall`; with a ``reason`` when the caller may see the session, else the same body for a missing
    and a foreign one (R-075). `why` of the refusal is for the log only (R-602).
    """
    calls = PendingCall.objects.filter(tool_call_id=tool_call_id).select_related("session", "root")
    try:
        session = session_for(principal, session_id)
    except NotFound:
        call = _call_to_review(principal, session_id, calls)
        if call is None:
            raise UnknownToolCall("There is no such open call.").because("root_state_not_found") from None
        return call
    call = calls.filter(root_id=session.id, kind__in=CALL_EXTERNAL).first()
    if call is None:
        raise UnknownToolCall("There is no such open call.", toolCallId=tool_call_id, reason="never_existed").because(
            "ownership_missing_toolcall"
        )
    return call


def _call_to_review(principal: Principal, session_id: str, calls: QuerySet[PendingCall]) -> PendingCall | None:
    """One of ``calls`` in a conversation of somebody else's, named by its id: an alias is its owner's alone (R-365)."""
    key = as_uuid(session_id)
    if key is None or principal.session_id is not None:
        return None
    reach = approval_policy().reach(principal)
    return calls.filter(reach, root_id=key, kind=CallKind.APPROVAL, exposed_at__isnull=False).first()


def pending_tools(root: Session) -> list[PendingCall]:
    """Exposed, unanswered external calls of the tree in recorded order: the queue of I-13."""
    return list(
        PendingCall.objects.filter(root_id=root.id, state=CallState.AWAITING)
        .select_related("session", "session__parent_call")
        .order_by("seq")
    )


def remote_deadlines(root_id: UUID, tool_call_ids: Sequence[str]) -> dict[str, datetime | None]:
    """When each of these calls lapses at its peer: shown here, and judged there (R-214). Asks nothing about nothing."""
    if not tool_call_ids:
        return {}
    owned = CallOwnership.objects.filter(root_id=root_id, tool_call_id__in=tool_call_ids, remote_url__isnull=False)
    return dict(owned.values_list("tool_call_id", "remote_deadline_at"))


def calls_page(
    root: Session,
    *,
    state: str | None = None,
    tool_call_id: str | None = None,
    limit: int = PAGE,
    after: int = 0,
) -> list[PendingCall]:
    """Calls of the tree in recorded order; one row more than ``limit`` says that there is a next page."""
    calls = PendingCall.objects.filter(root_id=root.id, seq__gt=after).select_related("session")
    if state is not None:
        calls = calls.filter(state=state)
    if tool_call_id is not None:
        calls = calls.filter(tool_call_id=tool_call_id)
    return list(calls.order_by("seq")[: limit + 1])


def agent_path(session: Session) -> list[str]:
    """The agents from the root down to this session: who asks (C-074)."""
    path = [session.agent_type]
    while session.parent_id:
        session = Session.objects.only("agent_type", "parent_id").get(pk=session.parent_id)
        path.append(session.agent_type)
    return path[::-1]


def reviewable_calls(principal: Principal) -> QuerySet[PendingCall]:
    """Open approvals that the principal may decide: in reach, and not barred as one's own request (R-023, R-180).

    The inbox, its counts and its badge are this one query (I-34, I-49).
    """
    reach = approval_policy().reach(principal) | Q(root__owner=principal.id)
    if principal.is_operator:
        reach = Q()
    calls = PendingCall.objects.filter(reach, state=CallState.AWAITING, kind=CallKind.APPROVAL)
    return calls.exclude(forbid_self_approval=True, emitted_by__started_by=principal.id)


def awaiting_sessions(principal: Principal) -> QuerySet[Session]:
    """The principal's own conversations that await somebody outside, oldest wait first (I-32, I-35)."""
    # Own ones only: an operator reaches everybody's, and is not awaited in them.
    own = roots_of(principal).filter(owner=principal.id, status=SessionStatus.AWAITING_CLIENT_TOOL)
    return own.order_by("waiting_since", "id")


# -- log, stream, checkpoints ------------------------------------------------------------------------------------------


def live_messages(session: Session) -> QuerySet[Message]:
    """The log as it stands: what a rewind took back is not in it."""
    return Message.objects.filter(session_id=session.id, rolled_back_by=None).order_by("position")


def events_after(root_id: UUID, after: int, limit: int = 200) -> list[StreamEvent]:
    """Events N+1 onward, without a gap (R-518). Raises: `CursorTooOld` when events in between were swept (R-368)."""
    events = list(StreamEvent.objects.filter(root_id=root_id, sequence__gt=after).order_by("sequence")[:limit])
    if (events[0].sequence if events else after + 1) != after + 1 or not events:
        floor = Session.objects.filter(pk=root_id).values_list("stream_floor", flat=True).first() or 1
        if after + 1 < floor:
            raise CursorTooOld("Events at this cursor are gone.", floorSequence=floor)
    return events


def stream_status(root: Session, run: Run | None) -> StreamStatus:
    """Derived from the tree (4.4)."""
    if root.status in (SessionStatus.RUNNING, SessionStatus.QUEUED, SessionStatus.STOPPING):
        return StreamStatus.PAUSED if _waits_for_caller(root, run) else StreamStatus.ACTIVE
    if root.status == SessionStatus.AWAITING_CLIENT_TOOL:
        computing = Run.objects.filter(
            session__root_id=root.id, status__in=(RunStatus.RUNNING, *RUN_CLAIMABLE)
        ).exists()
        return StreamStatus.ACTIVE if computing else StreamStatus.PAUSED
    return StreamStatus.FAILED if root.status == SessionStatus.FAILED else StreamStatus.ENDED


def _waits_for_caller(root: Session, run: Run | None) -> bool:
    return (
        root.status == SessionStatus.QUEUED
        and run is not None
        and run.status not in RUN_CLAIMABLE
        and run.status not in RUN_FINAL
    )


def checkpoints_page(session: Session, *, limit: int = PAGE, before: int | None = None) -> list[Checkpoint]:
    """Newest first by identity (R-465, R-566)."""
    checkpoints = Checkpoint.objects.filter(session_id=session.id)
    if before is not None:
        checkpoints = checkpoints.filter(pk__lt=before)
    return list(checkpoints.order_by("-id")[: limit + 1])


def checkpoint_of(session: Session, checkpoint_id: str) -> Checkpoint:
    """A checkpoint of this very session. Raises: `NotFound`, also for one of another session (R-464)."""
    found = Checkpoint.objects.filter(session_id=session.id, checkpoint_id=checkpoint_id).first()
    if found is None:
        raise NotFound("There is no such checkpoint.")
    return found


# -- snapshot ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SnapshotRows:
    """Everything a snapshot shows, from one consistent read. ``named`` is the id that the caller used (R-365)."""

    named: str
    root: Session
    run: Run | None
    messages: Sequence[Message]
    pending: Sequence[PendingCall]
    paths: dict[UUID, list[str]]
    stream_status: StreamStatus
    remote_deadlines: dict[str, datetime | None]


def snapshot_rows(principal: Principal, session_id: str, *, with_messages: bool = True) -> SnapshotRows:
    """Raises: `NotFound`."""
    with consistent_read():
        root = session_for(principal, session_id)
        run = Run.objects.get(pk=root.current_run_id) if root.current_run_id else None
        pending = pending_tools(root)
        owners = {call.session_id: call.session for call in pending}
        return SnapshotRows(
            named=session_id,
            root=root,
            run=run,
            messages=list(live_messages(root)) if with_messages else [],
            pending=pending,
            paths={key: agent_path(owner) for key, owner in owners.items()},
            stream_status=stream_status(root, run),
            remote_deadlines=remote_deadlines(
                root.id, [call.tool_call_id for call in pending if call.session.is_remote]
            ),
        )


# -- due work: what the sweeps look for, each one indexed query (R-238) ------------------------------------------------


def lapsed_calls(now: datetime, limit: int = 500) -> Sequence[tuple[UUID, UUID]]:
    """(call, root) of calls whose deadline has come, the longest overdue first."""
    due = PendingCall.objects.filter(state=CallState.AWAITING, deadline_at__lte=now).order_by("deadline_at")
    return list(due.values_list("id", "root_id")[:limit])


def roots_with_deadlines() -> Sequence[UUID]:
    """Roots with an open deadline: what the first sweep after an outage has to make good (T-7)."""
    waiting = PendingCall.objects.filter(state=CallState.AWAITING, deadline_at__isnull=False)
    return list(waiting.values_list("root_id", flat=True).distinct())


def claimable_runs(now: datetime, limit: int = 200) -> Sequence[UUID]:
    """Runs that wait for a worker, are due, and were not hinted at lately; the longest waiting first."""
    due = Run.objects.filter(status__in=RUN_CLAIMABLE, next_attempt_at__lte=now, next_hint_at__lte=now)
    return list(due.order_by("next_attempt_at", "queued_at").values_list("id", flat=True)[:limit])


def stale_leases(now: datetime, limit: int = 200) -> Sequence[UUID]:
    """Runs whose worker has not been heard of in time, and that were not hinted at lately."""
    stale = RunLease.objects.filter(expires_at__lte=now, run__next_hint_at__lte=now)
    return list(stale.order_by("expires_at").values_list("run_id", flat=True)[:limit])
