"""One small world: frozen time, hints that wait to be delivered, and the cast (owner, reviewer, operator, stranger).

``World.drain`` delivers hints in order until none is left: after it, "did not happen" is a proof (D-3). Dropping the
hints and sweeping shows that rows are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from helix import clock, nudges, selectors, tasks
from helix.agents import Agent
from helix.answers import Answer, parse_submission
from helix.models import Message, PendingCall, Run, Session
from helix.principals import Principal
from helix.rows import runs, sweeps
from helix.services import entries, sessions, stops, submit
from helix.services.advance import advance_run
from helix.statuses import StopKind

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

OWNER = Principal(id="owner")
STRANGER = Principal(id="stranger")
REVIEWER = Principal(id="reviewer", is_reviewer=True)
OPERATOR = Principal(id="operator", is_operator=True)


class World:
    """Time and hints in the hands of the test."""

    # A turn that needs more deliveries than this is a livelock; reaching it raises (D-12, Q-09).
    MOST_DELIVERIES = 5000

    def __init__(self) -> None:
        self.now = T0
        self.hints: list[UUID] = []
        self.wakes: list[tuple[UUID, int]] = []
        self.relay_hints = 0

    # -- time and hints --------------------------------------------------------------------------------------------

    def clock(self) -> datetime:
        return self.now

    def tick(self, **duration: float) -> datetime:
        self.now += timedelta(**duration)
        return self.now

    def drain(self) -> int:
        """Deliver hints, oldest first, until none is left; returns how many runs were worked on."""
        worked = 0
        for _ in range(self.MOST_DELIVERIES):
            self.commit()
            if not self.hints:
                return worked
            worked += advance_run(self.hints.pop(0), clock=self.clock)
        raise AssertionError(f"no rest after {self.MOST_DELIVERIES} deliveries; waiting: {self.hints[:3]}")

    def drop_hints(self) -> None:
        self.commit()
        self.hints.clear()

    def commit(self) -> None:
        """Run the hooks of commits that a test inside one big transaction has not really made; else none are there."""
        while connection.in_atomic_block and connection.run_on_commit:
            _, hook, _ = connection.run_on_commit.pop(0)
            hook()

    def sweep(self) -> None:
        """Every sweep once, as beat would."""
        tasks.run_sweeps(self.clock)

    def wait(self, **duration: float) -> None:
        """Time passes while the sweeps run as they should: what is due lapses, and no outage is made good."""
        self.tick(**duration)
        sweeping_since(self.now)
        self.sweep()

    def note_relay(self) -> None:
        self.relay_hints += 1

    # -- verbs -----------------------------------------------------------------------------------------------------

    def start(self, agent: Agent, text: str = "hello", *, principal: Principal = OWNER, **options: Any) -> UUID:
        """A conversation with its first message, not yet worked on; returns its id."""
        entered = entries.start(principal=principal, agent_type=agent.name, message=said(text), now=self.now, **options)
        return UUID(entered.session_id)

    def create(self, agent: Agent, *, principal: Principal = OWNER, **options: Any) -> UUID:
        return sessions.create_session(principal=principal, agent_type=agent.name, now=self.now, **options).id

    def started(self, agent: Agent, text: str = "hello", **options: Any) -> UUID:
        """A conversation that was worked on until nothing more is deliverable."""
        session_id = self.start(agent, text, **options)
        self.drain()
        return session_id

    def send(self, session_id: UUID, text: str, *, principal: Principal = OWNER, **options: Any) -> runs.Entered:
        return entries.send_message(
            principal=principal, session_id=str(session_id), message=said(text), now=self.now, **options
        )

    def resume(self, session_id: UUID, *, principal: Principal = OWNER, **options: Any) -> runs.Entered:
        return entries.resume(principal=principal, session_id=str(session_id), now=self.now, **options)

    def submit(
        self,
        session_id: UUID,
        tool_call_id: str,
        *,
        principal: Principal = OWNER,
        run_id: str | None = None,
        **body: Any,
    ) -> dict[str, Any]:
        """Submit a body as a client would write it (`result`, `error`, or a verdict); returns the answer's body."""
        answer = parse_submission({"toolCallId": tool_call_id, **body}).answer
        return self.answer(session_id, tool_call_id, answer, principal=principal, run_id=run_id)

    def answer(
        self,
        session_id: UUID,
        tool_call_id: str,
        answer: Answer,
        *,
        principal: Principal = OWNER,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        return submit.submit_answer(
            principal=principal,
            session_id=str(session_id),
            tool_call_id=tool_call_id,
            answer=answer,
            run_id=run_id,
            now=self.now,
            door="test",
        ).as_body()

    def decide(
        self, call: PendingCall, *, approved: bool = True, principal: Principal = OPERATOR, **more: Any
    ) -> dict[str, Any]:
        return self.submit(
            call.root_id,
            call.tool_call_id,
            principal=principal,
            kind="approval-response",
            approvalId=call.approval_id,
            approved=approved,
            **more,
        )

    def stop(
        self, session_id: UUID, kind: StopKind = StopKind.INTERRUPT, *, principal: Principal = OWNER, reason: str = ""
    ) -> stops.Stopped:
        return stops.stop_session(
            principal=principal, session_id=str(session_id), kind=kind, reason=reason, now=self.now
        )


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


# -- what the rows say -----------------------------------------------------------------------------------------------


def session_of(session_id: UUID) -> Session:
    return Session.objects.get(pk=session_id)


def current_run(session_id: UUID) -> Run:
    run = session_of(session_id).current_run
    assert run is not None
    return run


def pending(session_id: UUID) -> list[PendingCall]:
    return selectors.pending_tools(session_of(session_id))


def call_named(session_id: UUID, tool_name: str) -> PendingCall:
    """The newest call of that tool in the tree."""
    found = PendingCall.objects.filter(root_id=session_id, tool_name=tool_name).order_by("-seq").first()
    assert found is not None, f"no call of {tool_name}"
    return found


def results(session_id: UUID) -> dict[str, Any]:
    """The live tool results of a session by call id: the one part of each."""
    rows = Message.objects.filter(session_id=session_id, role="tool", rolled_back_by=None)
    return {row.tool_call_id: row.parts[0] for row in rows}


def events(session_id: UUID, *types: str) -> list[dict[str, Any]]:
    """The payloads of the stream with their type, of all types or of some."""
    rows = session_of(session_id).events.order_by("sequence")
    return [{"type": row.type, **row.payload} for row in rows if not types or row.type in types]


@contextmanager
def new_world() -> Iterator[World]:
    """A world that owns the clock and every hint of this process while it lasts."""
    world = World()
    before = (nudges.send_to_worker, nudges.send_to_readers, nudges.send_to_relay)
    nudges.send_to_worker = world.hints.append
    nudges.send_to_readers = lambda root_id, sequence: world.wakes.append((root_id, sequence))
    nudges.send_to_relay = world.note_relay
    try:
        with clock.installed(world.clock):
            yield world
    finally:
        nudges.send_to_worker, nudges.send_to_readers, nudges.send_to_relay = before


def sweeping_since(now: datetime) -> None:
    """As if the deadline sweep had just run: deadlines may be judged (T-7)."""
    sweeps.finish(sweeps.DEADLINES, now)
