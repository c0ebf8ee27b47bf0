"""The locked root, and what one transaction has to say about its tree.

`locked` opens the transaction, takes the one lock and yields a `Tree`. Numbers of events come from the locked row, so
they are gapless; statuses are settled and events written once, when the block ends; nudges leave after the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Min

from helix import nudges
from helix.errors import StaleStateError
from helix.models import PendingCall, Run, Session, StreamEvent
from helix.statuses import (
    RUN_CLAIMABLE,
    RUN_PAUSED,
    SESSION_BUSY,
    CallKind,
    CallState,
    EventType,
    RunStatus,
    SessionStatus,
)
from helix.waypoints import Waypoint, reach

_COUNTERS = ("stream_sequence", "call_sequence", "message_position", "run_count", "child_count")


class Tree:
    """A root under its lock. ``now`` is the one instant of this transaction."""

    def __init__(self, root: Session, now: datetime) -> None:
        self.root = root
        self.now = now
        self._sessions: dict[UUID, Session] = {root.id: root}
        self._stored: dict[UUID, dict[str, Any]] = {root.id: _columns(root)}
        self._unsettled: dict[UUID, Session] = {}
        self._runs: dict[UUID, Run] = {}
        self._events: list[StreamEvent] = []
        self._queued: list[Run] = []

    # -- members ---------------------------------------------------------------------------------------------------

    def session(self, session_id: UUID) -> Session:
        """The tree's copy of a session: read once, written once, at the end."""
        if session_id not in self._sessions:
            self.adopt(Session.objects.get(pk=session_id, root_id=self.root.id))
        return self._sessions[session_id]

    def adopt(self, session: Session) -> Session:
        """Take a stored row into the tree."""
        self._sessions[session.id] = session
        self._stored[session.id] = _columns(session)
        return session

    def run(self, run_id: UUID) -> Run:
        """The tree's copy of a run, read under the lock."""
        if run_id not in self._runs:
            self._runs[run_id] = Run.objects.get(pk=run_id)
        return self._runs[run_id]

    def know(self, run: Run) -> Run:
        self._runs[run.id] = run
        return run

    def current_run(self, session: Session) -> Run | None:
        return self.run(session.current_run_id) if session.current_run_id else None

    # -- what happened ---------------------------------------------------------------------------------------------

    def emit(self, event_type: EventType, session: Session, run: Run | None = None, **payload: Any) -> int:
        """Append one event of the root's stream; returns its number. Payload keys are the wire's (5.Q)."""
        self.root.stream_sequence += 1
        payload["agentType"] = session.agent_type
        self._events.append(
            StreamEvent(
                root_id=self.root.id,
                sequence=self.root.stream_sequence,
                session_id=session.id,
                run_id=run.id if run else None,
                step=run.step_count if run else 0,
                type=event_type,
                payload=payload,
                created_at=self.now,
            )
        )
        return self.root.stream_sequence

    def changed(self, session: Session) -> None:
        """The runs or calls of this session moved: its status, and that of its ancestors, is settled at the end."""
        self._unsettled[session.id] = session

    def wake(self, run: Run) -> None:
        """Tell a worker after the commit that this run waits for one."""
        self._queued.append(run)

    # -- the end of the transaction --------------------------------------------------------------------------------

    def close(self) -> None:
        """Settle statuses, write events and changed sessions, and leave the nudges for after the commit."""
        while self._unsettled:
            _, session = self._unsettled.popitem()
            self._settle_status(session)
        if self._events:
            StreamEvent.objects.bulk_create(self._events, batch_size=2000)
        for session in self._sessions.values():
            self._write(session)
        if self._events:
            nudges.nudge_readers(self.root.id, self.root.stream_sequence)
        for run in self._queued:
            if run.status in RUN_CLAIMABLE:
                nudges.nudge_worker(run.id)

    def _write(self, session: Session) -> None:
        stored, columns = self._stored[session.id], _columns(session)
        moved = [name for name, value in columns.items() if stored.get(name) != value]
        if not moved:
            return
        if any(name not in _COUNTERS for name in moved):
            session.updated_at = self.now
            moved.append("updated_at")
        if session.status != stored.get("status") or session.state != stored.get("state"):
            session.version += 1
            moved.append("version")
        # Whoever writes holds the root's lock. One that does not is noticed here, never overwritten.
        written = Session.objects.filter(pk=session.pk, version=stored["version"]).update(
            **{name: getattr(session, name) for name in moved}
        )
        if not written:
            raise _stale(session)

    def _settle_status(self, session: Session) -> None:
        status, since = self._status_of(session)
        if (status, since) == (session.status, session.waiting_since):
            return
        if status != session.status:
            self.emit(EventType.SESSION_STATUS, session, status=status)
        session.status, session.waiting_since = status, since
        if session.parent_id:
            # A parent reads its children's rows: they have to be written before it is settled.
            self._write(session)
            self._stored[session.id] = _columns(session)
            self.changed(self.session(session.parent_id))

    def _status_of(self, session: Session) -> tuple[SessionStatus, datetime | None]:
        """The function of contract 4.2. A child's own status carries all that its subtree has to say."""
        run = self.current_run(session)
        below = self._children_of(session)
        if (run and run.stop_is_open) or SessionStatus.STOPPING in below:
            return SessionStatus.STOPPING, None
        paused = run is not None and run.status in RUN_PAUSED and run.superseded_by_id is None
        waits = [since for since in below.get(SessionStatus.AWAITING_CLIENT_TOOL, []) if since]
        if paused:
            own = PendingCall.objects.filter(session=session, state=CallState.AWAITING).aggregate(Min("exposed_at"))
            waits += [since for since in own.values() if since]
        if waits:
            return SessionStatus.AWAITING_CLIENT_TOOL, min(waits)
        if run is None:
            return SessionStatus.IDLE, None
        if run.status == RunStatus.RUNNING or SessionStatus.RUNNING in below:
            return SessionStatus.RUNNING, None
        if paused and (session.is_remote or has_open_subagents(session)):
            # A stand-in without an open call: its peer computes.
            return SessionStatus.RUNNING, None
        if paused or run.status in RUN_CLAIMABLE or SessionStatus.QUEUED in below:
            return SessionStatus.QUEUED, None
        if run.status == RunStatus.COMPLETED:
            return (SessionStatus.COMPLETED if run.finished_by_tool else SessionStatus.IDLE), None
        return SessionStatus(run.status), None

    def _children_of(self, session: Session) -> dict[str, list[datetime | None]]:
        if not session.child_count:
            return {}
        found: dict[str, list[datetime | None]] = {}
        busy = Session.objects.filter(parent_id=session.id, status__in=SESSION_BUSY)
        for status, since in busy.values_list("status", "waiting_since"):
            found.setdefault(status, []).append(since)
        return found


def _stale(session: Session) -> StaleStateError:
    now = Session.objects.values("status", "version").get(pk=session.pk)
    return StaleStateError("The session was changed by another writer.", **now)


def has_open_subagents(session: Session) -> bool:
    """Whether a child that this session started has not ended."""
    return PendingCall.objects.filter(session=session, state=CallState.EXECUTING, kind=CallKind.SUBAGENT).exists()


def _columns(session: Session) -> dict[str, Any]:
    return {
        field.attname: (dict(value) if isinstance(value := getattr(session, field.attname), dict) else value)
        for field in session._meta.concrete_fields
    }


@contextmanager
def locked(root_id: UUID, now: datetime) -> Iterator[Tree]:
    """One transaction over one tree, the root's row locked first (F-2, F-3).

    Raises: `Session.DoesNotExist` when the root is gone.
    """
    reach(Waypoint.BEFORE_LOCK)
    with transaction.atomic(durable=True):
        # Not FOR UPDATE: rows that only refer to the root need not wait.
        tree = Tree(Session.objects.select_for_update(no_key=True).get(pk=root_id), now)
        reach(Waypoint.LOCKED)
        yield tree
        reach(Waypoint.BEFORE_WRITE)
        tree.close()
    reach(Waypoint.AFTER_COMMIT)
