"""One errand for a remote child: ask the peer to begin it, or how it stands, and record what was heard (R-213)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from helix import clock as clocks
from helix import schemas
from helix.models import Message, PendingCall, RemoteChild, Run, Session
from helix.peers import (
    PeerClosing,
    PeerRefused,
    PeerStatus,
    PeerUnreachable,
    RemoteSubAgentClientToolUnsupportedError,
)
from helix.rows import delegations, endings, mirrors
from helix.rows.attempts import tried_again
from helix.rows.tree import Tree, locked
from helix.services.relay.declared import Declared, declared
from helix.services.relay.pauses import (
    ERRAND,
    FIRST,
    GRACE,
    LONGEST_READING,
    LONGEST_SILENCE,
    observed_silence,
    pause,
)
from helix.statuses import REMOTE_LIVE, CallState, RemoteState, RunStatus, StopKind

log = logging.getLogger("helix.relay")

NOT_FOUND = "not_found"
UNREACHABLE = "status_unreachable"


@dataclass(frozen=True)
class Errand:
    """What was known when the errand was taken. ``waiting``: the peer's ids of calls that are open here."""

    session_id: UUID
    root_id: UUID
    delegation_id: str
    named: str
    is_started: bool
    before: datetime | None
    agent_type: str
    tool_name: str
    waiting: frozenset[str]


def attend_child(session_id: UUID, *, clock: Callable[[], datetime] = clocks.utc_now) -> bool:
    """Take the errand, ask, record. False: it is not due, over, or another worker's."""
    errand = _take(session_id, clock())
    if errand is None:
        return False
    try:
        _attend(errand, clock)
    except Session.DoesNotExist:
        log.info("relay.conversation_gone", extra={"delegationId": errand.delegation_id})
    return True


def _attend(errand: Errand, clock: Callable[[], datetime]) -> None:
    try:
        known = declared(errand.agent_type, errand.tool_name)
        if errand.is_started:
            _read(errand, known, clock)
        else:
            _begin(errand, known, clock)
    except PeerUnreachable as silence:
        _record_silence(errand, str(silence), clock())
    except PeerRefused as refusal:
        if refusal.may_pass:
            _record_silence(errand, refusal.code, clock())
        else:
            is_gone = errand.is_started and refusal.code == "NOT_FOUND"
            _record_lost(errand, NOT_FOUND if is_gone else f"refused:{refusal.code}", clock())
    except RemoteSubAgentClientToolUnsupportedError as incapable:
        fail_incapable(errand.root_id, errand.session_id, str(incapable), clock())


@tried_again
@transaction.atomic(durable=True)
def _take(session_id: UUID, now: datetime) -> Errand | None:
    """A conditional move of the due time: whoever makes it has the errand until then."""
    child = RemoteChild.objects.select_related("session__parent_call__session").filter(pk=session_id).first()
    if child is None:
        return None
    due = RemoteChild.objects.filter(pk=session_id, state__in=REMOTE_LIVE, next_attempt_at__lte=now)
    if not due.update(next_attempt_at=now + ERRAND, last_attempt_at=now):
        return None
    call = child.session.parent_call
    if call is None:
        return None
    waiting = PendingCall.objects.filter(session_id=session_id, state__in=(CallState.HELD, CallState.AWAITING))
    return Errand(
        session_id=session_id,
        root_id=child.session.root_id,
        delegation_id=child.delegation_id,
        named=child.named,
        is_started=child.state == RemoteState.RUNNING,
        before=child.last_attempt_at,
        agent_type=call.session.agent_type,
        tool_name=call.tool_name,
        waiting=frozenset(name for name in waiting.values_list("provider_call_id", flat=True) if name),
    )


# -- begin -------------------------------------------------------------------------------------------------------------


def _begin(errand: Errand, known: Declared, clock: Callable[[], datetime]) -> None:
    first = Message.objects.filter(session_id=errand.session_id).order_by("position").first()
    named = known.peer().start(
        agent_type=known.sub_agent.agent_name,
        message=first.parts[0]["text"] if first else "",
        delegation_id=errand.delegation_id,
    )
    _record_started(errand, named, clock())


@tried_again
def _record_started(errand: Errand, named: str, now: datetime) -> None:
    with locked(errand.root_id, now) as tree:
        child = RemoteChild.objects.get(pk=errand.session_id)
        child.remote_session_id = named
        if child.state == RemoteState.STARTING:
            child.state = RemoteState.RUNNING
            _heard(child, now, due=now + FIRST)
        else:
            child.save(update_fields=["remote_session_id"])
            # Stopped here while the start was on its way.
            delegations.owe_stop_again(tree, child)
    log.info("relay.child_started", extra={"sessionId": str(errand.root_id), "delegationId": errand.delegation_id})


# -- read --------------------------------------------------------------------------------------------------------------


def _read(errand: Errand, known: Declared, clock: Callable[[], datetime]) -> None:
    peer = known.peer()
    status = peer.status(errand.named)
    listed = {call.tool_call_id for call in status.calls}
    gone = {name: peer.closing(errand.named, name) for name in errand.waiting - listed}
    _record_status(errand, known, status, gone, clock())


@tried_again
def _record_status(
    errand: Errand, known: Declared, status: PeerStatus, gone: Mapping[str, PeerClosing | None], now: datetime
) -> None:
    """Take a reading in, unless a newer one was or the child is over here."""
    with locked(errand.root_id, now) as tree:
        child = RemoteChild.objects.get(pk=errand.session_id)
        if child.state != RemoteState.RUNNING or status.sequence < child.cursor:
            return
        session = tree.session(errand.session_id)
        run = tree.run(session.current_run_id)  # type: ignore[arg-type]
        has_news = status.sequence > child.cursor
        child.cursor = status.sequence
        waiting = PendingCall.objects.filter(
            session_id=session.id, state__in=(CallState.HELD, CallState.AWAITING), provider_call_id__in=list(gone)
        )
        for call in waiting.order_by("seq"):
            mirrors.close_mirror(tree, session, run, call, gone[call.provider_call_id or ""])
        if status.ended_as is None:
            mirrors.open_mirrors(
                tree,
                session,
                run,
                child,
                status.calls,
                retention_ms=known.agent.completed_tombstone_retention_ms,
            )
            quiet = 0 if has_news else child.quiet_attempts + 1
            _heard(child, now, due=now + pause(quiet, LONGEST_READING), quiet=quiet)
        else:
            _heard(child, now, due=now)
            delegations.end_child(child, RemoteState.ENDED)
            _end(tree, session, run, known, status)


def _end(tree: Tree, session: Session, run: Run, known: Declared, status: PeerStatus) -> None:
    """The child is over at its peer: its end climbs as that of any child (R-192, R-209, R-211)."""
    for call in PendingCall.objects.filter(session_id=session.id, state=CallState.ANSWERED).order_by("seq"):
        # The peer took it, or ended without it: nobody needs it any more, and its debt is settled unpaid.
        mirrors.take_in(tree, session, run, call)
    if status.ended_as == RunStatus.FAILED:
        code = (status.error_code or "tool_execution_failed")[:64]
        endings.fail(tree, run, code, "The sub-agent failed at its server.")
    elif status.ended_as == RunStatus.INTERRUPTED:
        endings.fail(tree, run, "run_stopped", "The sub-agent was stopped at its server.")
    elif status.output is not None and (wrong := schemas.first_violation(known.output_schema, status.output)):
        log.warning("relay.output_refused", extra={"sessionId": str(tree.root.id), "agentType": session.agent_type})
        endings.fail(tree, run, "INVALID_RESULT", f"The sub-agent's output does not fit its schema: {wrong}")
    else:
        last = delegations.last_run(tree, session)
        endings.complete(tree, last, output=status.output, has_output=status.output is not None, by_tool=True)


def _heard(child: RemoteChild, now: datetime, *, due: datetime, quiet: int = 0) -> None:
    child.last_heard_at = now
    child.silent_since = None
    child.last_error = ""
    child.quiet_attempts = quiet
    child.next_attempt_at = due
    child.save()


# -- silence and loss --------------------------------------------------------------------------------------------------


@tried_again
def _record_silence(errand: Errand, why: str, now: datetime) -> None:
    """A failed attempt; the child is lost once the silence is longer than declared, and its grace (R-202)."""
    try:
        silence_ms = declared(errand.agent_type, errand.tool_name).silence_ms
    except PeerUnreachable:
        # Nobody says any more how long to wait for a peer that nobody can name.
        silence_ms = 0
    with locked(errand.root_id, now) as tree:
        child = RemoteChild.objects.get(pk=errand.session_id)
        if child.is_over:
            return
        since = child.silent_since
        child.silent_since = now if since is None else observed_silence(since, errand.before, now)
        child.quiet_attempts += 1
        child.last_error = why
        child.next_attempt_at = now + pause(child.quiet_attempts - 1, LONGEST_SILENCE)
        child.save()
        if silence_ms is not None and now - child.silent_since > timedelta(milliseconds=silence_ms) + GRACE:
            _lose(tree, child, endings.SUBAGENT_LOST, UNREACHABLE)


@tried_again
def _record_lost(errand: Errand, cause: str, now: datetime) -> None:
    with locked(errand.root_id, now) as tree:
        child = RemoteChild.objects.get(pk=errand.session_id)
        if not child.is_over:
            # A start that was refused began nothing, and what is not found needs no stop.
            owes_stop = errand.is_started and cause != NOT_FOUND
            _lose(tree, child, endings.SUBAGENT_LOST, cause, owes_stop=owes_stop)


@tried_again
def fail_incapable(root_id: UUID, session_id: UUID, why: str, now: datetime) -> None:
    """R-200: the peer cannot take part in client tools; the delegation fails at once, its child has to stop."""
    with locked(root_id, now) as tree:
        child = RemoteChild.objects.get(pk=session_id)
        if not child.is_over:
            _lose(tree, child, RemoteSubAgentClientToolUnsupportedError.code, why)


def _lose(tree: Tree, child: RemoteChild, code: str, cause: str, *, owes_stop: bool = True) -> None:
    """Settle the child as failed; what it may still do at its peer is to be stopped there."""
    session = tree.session(child.session_id)
    run = tree.run(session.current_run_id)  # type: ignore[arg-type]
    delegations.end_child(child, RemoteState.LOST, cause)
    if owes_stop:
        delegations.owe_stop(tree, session, StopKind.ABORT, code)
    endings.fail(tree, run, code, "The sub-agent's server cannot go on with it.", cause=cause)
    log.warning(
        "relay.child_lost",
        extra={"sessionId": str(tree.root.id), "delegationId": child.delegation_id, "errorCode": code, "cause": cause},
    )
