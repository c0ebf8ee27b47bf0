"""Give up what is open because the user went on with a message (R-460, R-461)."""

from __future__ import annotations

from django.db.models import Q

from helix.errors import AlreadyRunning
from helix.models import PendingCall, Run, Session
from helix.rows import runs
from helix.rows.batch import unanswered_calls
from helix.rows.calls import Outcome, consume, open_calls, readable, store_answer
from helix.rows.delegations import owe_stop
from helix.rows.outcomes import outcome_of
from helix.rows.tree import Tree
from helix.statuses import (
    ANSWER_APPROVALS,
    RUN_CLAIMABLE,
    RUN_PAUSED,
    AnswerKind,
    CallKind,
    CallState,
    EventType,
    RunStatus,
    SessionStatus,
    StopKind,
)


def abandon_waiting(tree: Tree) -> None:
    """Answer every open external call of the root `client_tool_abandoned`; close children that only wait.

    Raises: `AlreadyRunning`, before any write, when a child computes: its work is not given up (R-461).
    """
    at_peers = Q(session__remote_url__isnull=False, session__status=SessionStatus.RUNNING)
    at_work = Q(status__in=(RunStatus.RUNNING, *RUN_CLAIMABLE)) | (
        at_peers & Q(status__in=RUN_PAUSED, superseded_by=None)
    )
    computing = Run.objects.filter(at_work, session__root_id=tree.root.id).first()
    if computing is not None:
        raise AlreadyRunning("A sub-agent is at work.", runId=str(computing.id))
    for call in unanswered_calls(tree.root):
        _abandon(tree, call)
    for call in open_calls(tree.root):
        if call.kind == CallKind.SUBAGENT and call.state == CallState.EXECUTING:
            _abandon_child(tree, call)


def _abandon(tree: Tree, call: PendingCall) -> None:
    store_answer(tree, call, AnswerKind.ABANDONED, outcome="abandoned", error_code="client_tool_abandoned")


def _abandon_child(tree: Tree, call: PendingCall) -> None:
    """End the child's waiting subtree, deepest first, and settle the delegating call as given up."""
    child = Session.objects.filter(parent_call_id=call.id).first()
    if child is not None:
        _close_subtree(tree, tree.session(child.id))
    parent = tree.session(call.session_id)
    consume(tree, parent, tree.run(call.run_id), [_given_up(parent, call)])


def _close_subtree(tree: Tree, session: Session) -> None:
    run = tree.current_run(session)
    if run is None or run.status not in RUN_PAUSED or run.superseded_by_id is not None:
        return
    for call in open_calls(session):
        if call.kind == CallKind.SUBAGENT and call.state == CallState.EXECUTING:
            _abandon_child(tree, call)
    consume(tree, session, run, [_given_up(session, call) for call in open_calls(session)])
    runs.move_run(tree, run, RunStatus.INTERRUPTED)
    tree.emit(EventType.RUN_INTERRUPTED, session, run, status=RunStatus.INTERRUPTED, reason="abandoned")
    if session.is_remote:
        owe_stop(tree, session, StopKind.INTERRUPT, "abandoned")


def _given_up(session: Session, call: PendingCall) -> Outcome:
    """An answer that was stored stays what it is; what was approved but never ran is given up like the rest."""
    if call.state == CallState.ANSWERED and call.answer_kind not in ANSWER_APPROVALS:
        return outcome_of(session, call)
    code = "not_executed" if call.kind == CallKind.SERVER else "client_tool_abandoned"
    return Outcome(call, AnswerKind.ABANDONED, {"error": readable(session, code, call.kind)}, error_code=code)
