"""Entries: whatever starts a run from outside — start, message, resume (5.O).

One writer per session: an entry on a live session is refused before it writes. Every entry locks the root, judges what
it finds there and queues at most one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from helix import selectors
from helix.agents import lookup
from helix.errors import AgentNotFound, AlreadyCompleted, AlreadyRunning, NotFound, NotResumable
from helix.models import Run, RunLease, Session
from helix.principals import Principal
from helix.rows import runs
from helix.rows.abandon import abandon_waiting
from helix.rows.attempts import tried_again
from helix.rows.batch import batch_is_partial, continue_run, lapse_the_rest, unanswered_calls
from helix.rows.beginnings import insert_root
from helix.rows.calls import open_calls
from helix.rows.endings import settle_stop
from helix.rows.log import append_message
from helix.rows.takeover import interrupt_stale
from helix.rows.tree import Tree, has_open_subagents, locked
from helix.statuses import RUN_PAUSED, SESSION_BUSY, Role, RunCause, RunStatus, SessionStatus

Parts = list[dict[str, Any]]


@tried_again
def start(
    *,
    principal: Principal,
    agent_type: str,
    message: Parts,
    now: datetime,
    session_id: str | None = None,
    state: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    delegation_id: str | None = None,
    expires_after: timedelta | None = None,
) -> runs.Entered:
    """Begin a conversation with its first message; while that run is live a repeat gives the same answer (R-359).

    session_id: the alias under which the client knows the conversation. expires_after: how long a conversation that
    this call creates lives (R-048); None: for ever. Raises: `NotFound` for an unknown agent type,
    `AlreadyCompleted` for a session that has ended a turn, `StateTooLarge`.
    """
    try:
        agent = lookup(agent_type)
    except AgentNotFound as gone:
        raise NotFound("There is no such agent type.", agentType=agent_type) from gone
    session = _own_session(principal, session_id)
    if session is None:
        try:
            with transaction.atomic(durable=True):
                session = insert_root(
                    agent,
                    owner=principal.id,
                    now=now,
                    client_id=session_id,
                    metadata=metadata,
                    state=state,
                    delegation_id=delegation_id,
                    expires_after=expires_after,
                )
                return _enter_fresh(session, principal, message, now)
        except IntegrityError:
            # A twin of this request was first: answer as a repeat.
            session = selectors.session_for(principal, session_id or "")
    with locked(session.id, now) as tree:
        run = tree.current_run(tree.root)
        if run is None:
            return _begin(tree, tree.root, principal, message, RunCause.EXECUTE)
        if run.number > 1 or run.is_over or run.status in RUN_PAUSED:
            raise AlreadyCompleted("This session has begun already.", runId=str(run.id))
        return runs.entered(tree, run)


def _own_session(principal: Principal, session_id: str | None) -> Session | None:
    if session_id is None:
        return None
    try:
        return selectors.session_for(principal, session_id)
    except NotFound:
        return None


def _enter_fresh(session: Session, principal: Principal, message: Parts, now: datetime) -> runs.Entered:
    """The first run of a session that this transaction inserted: nobody else can hold its lock."""
    tree = Tree(session, now)
    entered = _begin(tree, session, principal, message, RunCause.EXECUTE)
    tree.close()
    return entered


@tried_again
def send_message(
    *,
    principal: Principal,
    session_id: str,
    message: Parts,
    now: datetime,
    abandon_pending: bool = False,
    client_message_id: str | None = None,
) -> runs.Entered:
    """The next turn of a conversation (RT-01), or with ``abandon_pending`` one that gives open calls up (R-460).

    A message repeated under the same ``client_message_id`` is answered with its run and stored once (R-276).
    Raises: `NotFound`, `AlreadyRunning`, `NotResumable` with the calls that wait.
    """
    session = selectors.session_for(principal, session_id)
    with locked(session.id, now) as tree:
        repeated = _repeat(tree, client_message_id)
        if repeated is not None:
            return runs.entered(tree, repeated)
        _clear_the_way(tree)
        return _with_message(tree, principal, message, abandon_pending, client_message_id)


@tried_again
def resume(
    *,
    principal: Principal,
    session_id: str,
    now: datetime,
    mode: str = "continue",
    message: Parts | None = None,
    abandon_pending: bool = False,
) -> runs.Entered:
    """Go on with a session that is suspended or interrupted (R-451 to R-462).

    mode: ``continue`` or ``with_message``; a rewind is `services.rewind`. A continuation that exists already is
    adopted: same run, one model call (R-123).
    Raises: `NotFound`, `AlreadyCompleted`, `AlreadyRunning`, `NotResumable`. A recorded stop that the resume finds is
    resolved and then answered (R-110).
    """
    session = selectors.session_for(principal, session_id)
    with locked(session.id, now) as tree:
        stopped = _settle_recorded_stop(tree)
        if stopped is None:
            if mode == "with_message":
                _clear_the_way(tree)
                return _with_message(tree, principal, message or [], abandon_pending, None)
            return _continue(tree, principal)
    raise NotResumable("The run was stopped.", cause="run_stopped", runId=str(stopped.id))


# -- under the lock ----------------------------------------------------------------------------------------------------


def _begin(
    tree: Tree,
    session: Session,
    principal: Principal,
    message: Parts | None,
    cause: RunCause,
    client_message_id: str | None = None,
) -> runs.Entered:
    run = runs.start_run(
        tree,
        session,
        cause=cause,
        started_by=principal.id,
        client_message_id=client_message_id,
        message=message,
    )
    if message:
        append_message(tree, session, run, Role.USER, message)
    return runs.entered(tree, run)


def _repeat(tree: Tree, client_message_id: str | None) -> Run | None:
    if client_message_id is None:
        return None
    return Run.objects.filter(session_id=tree.root.id, client_message_id=client_message_id).first()


def _clear_the_way(tree: Tree) -> None:
    """Refuse a live session; a running one whose foreign worker is lost is interrupted first (L-9, RT-20)."""
    root = tree.root
    run = tree.current_run(root)
    if run is not None and run.status == RunStatus.RUNNING and not run.stop_is_open:
        lease = RunLease.objects.filter(run_id=run.id).first()
        if lease is not None and lease.expires_at <= tree.now and not runs.is_held_here(run):
            interrupt_stale(tree, run)
            return
    if root.status in (SessionStatus.RUNNING, SessionStatus.STOPPING) or (
        root.status == SessionStatus.QUEUED and not _waits_for_caller(run)
    ):
        raise AlreadyRunning("A turn is running.", runId=str(run.id) if run else None)


def _waits_for_caller(run: Run | None) -> bool:
    """A complete batch that its agent leaves to the caller (R-021)."""
    return run is not None and run.status in RUN_PAUSED and run.superseded_by_id is None


def _with_message(
    tree: Tree, principal: Principal, message: Parts, abandon_pending: bool, client_message_id: str | None
) -> runs.Entered:
    root = tree.root
    run = tree.current_run(root)
    if run is None or not (_waits_for_caller(run) or _left_answers(root, run)):
        return _begin(tree, root, principal, message, RunCause.EXECUTE, client_message_id)
    partial = root.status == SessionStatus.AWAITING_CLIENT_TOOL and not _batch_is_complete(tree)
    if partial and not abandon_pending:
        raise _partial(tree)
    if partial:
        abandon_waiting(tree)
    elif _waits_for_caller(run):
        lapse_the_rest(tree, root)
    new = runs.start_run(
        tree,
        root,
        cause=RunCause.RESUME_WITH_MESSAGE,
        started_by=principal.id,
        continues=run,
        # A message that the lost run had not yet logged stands before this one.
        entry_message=[*(run.entry_message or []), *message],
        client_message_id=client_message_id,
    )
    runs.take_over_calls(tree, run, new)
    return runs.entered(tree, new)


def _left_answers(session: Session, run: Run) -> bool:
    """A run that ended before it drained: stored answers or a message wait to enter the log first (R-456, R-565)."""
    if run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED) or run.superseded_by_id is not None:
        return False
    return bool(run.entry_message) or bool(open_calls(session, run))


def _batch_is_complete(tree: Tree) -> bool:
    return not batch_is_partial(tree, tree.root) and not has_open_subagents(tree.root)


def _partial(tree: Tree) -> NotResumable:
    missing = [call.tool_call_id for call in unanswered_calls(tree.root)] or [
        call.tool_call_id for call in selectors.pending_tools(tree.root)
    ]
    return NotResumable("Calls are not answered yet.", retryable=True, toolCallIds=missing)


def _settle_recorded_stop(tree: Tree) -> Run | None:
    run = tree.current_run(tree.root)
    if run is None or not run.stop_is_open or run.status == RunStatus.RUNNING or run.is_over:
        return None
    settle_stop(tree, run)
    return run


def _continue(tree: Tree, principal: Principal) -> runs.Entered:
    root = tree.root
    run = tree.current_run(root)
    if run is None:
        raise AlreadyCompleted("There is nothing to resume.", runId=None)
    if _waits_for_caller(run):
        if has_open_subagents(root):
            below = _continue_below(tree)
            if below is not None:
                return runs.Entered(str(root.id), str(run.id), below.start_sequence)
            if root.status == SessionStatus.AWAITING_CLIENT_TOOL:
                raise _partial(tree)
            raise AlreadyRunning("A turn is running.", runId=str(run.id))
        if not lapse_the_rest(tree, root):
            raise _partial(tree)
        return runs.entered(tree, continue_run(tree, root, run))
    if run.status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUSPENDED_STEP_PARTIAL):
        if run.cause == RunCause.CONTINUATION and not run.stop_is_open:
            return runs.entered(tree, run)
        raise AlreadyRunning("A turn is running.", runId=str(run.id))
    if root.status in SESSION_BUSY:
        # A sub-agent's worker has not yet honoured the stop that ended this run.
        raise AlreadyRunning("The stop is not resolved yet.", runId=str(run.id))
    if run.status == RunStatus.INTERRUPTED:
        if not _left_answers(root, run):
            return _begin(tree, root, principal, None, RunCause.RESUME_CONTINUE)
        new = runs.start_run(
            tree,
            root,
            cause=RunCause.RESUME_CONTINUE,
            started_by=principal.id,
            continues=run,
            entry_message=run.entry_message,
        )
        runs.take_over_calls(tree, run, new)
        return runs.entered(tree, new)
    raise AlreadyCompleted("There is nothing to resume.", runId=str(run.id))


def _continue_below(tree: Tree) -> Run | None:
    """Continue every descendant whose complete batch was left to the caller (R-192); the first run that begins."""
    waiting = Run.objects.filter(
        session__root_id=tree.root.id, session__remote_url=None, status__in=RUN_PAUSED, superseded_by=None
    )
    begun: list[Run] = []
    for row in waiting.exclude(session_id=tree.root.id).order_by("queued_at", "id"):
        run, session = tree.know(row), tree.session(row.session_id)
        if not has_open_subagents(session) and lapse_the_rest(tree, session):
            begun.append(continue_run(tree, session, run))
    return begun[0] if begun else None
