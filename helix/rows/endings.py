"""How a run ends: completed, failed or stopped; and what that means for its calls and for its parent.

A child's terminal commit settles the parent's call and, when nothing else of that step is open, queues the parent's
continuation, all in one transaction (R-209). Each level climbs in the commit of the level below (R-192).
"""

from __future__ import annotations

from typing import Any

from helix.models import PendingCall, Run, Session
from helix.peers import RemoteSubAgentClientToolUnsupportedError
from helix.rows import runs
from helix.rows.batch import continue_if_complete
from helix.rows.calls import Outcome, consume, discard, open_calls, readable
from helix.rows.delegations import owe_stop
from helix.rows.log import append_message
from helix.rows.outcomes import result_body
from helix.rows.tree import Tree
from helix.statuses import (
    AnswerKind,
    CallState,
    DiscardReason,
    EventType,
    Role,
    RunStatus,
    StopKind,
)
from helix.waypoints import Waypoint, reach

# The code of a result whose child cannot be found at its peer any more.
SUBAGENT_LOST = "framework_subagent_lost"
# How readers of the stream tell a child that ended without output from one whose output is null (R-211, P-15).
NO_RESULT = "no_result"


def complete(tree: Tree, run: Run, *, output: Any = None, has_output: bool = False, by_tool: bool = False) -> None:
    """The final reply, or the finish tool, ended the turn (RT-02).

    has_output: no output at all is marked ``no_result`` for a parent, which tells it from an output of None (R-211).
    """
    session = tree.session(run.session_id)
    if has_output:
        tree.emit(EventType.FINAL_OUTPUT, session, run, output=output)
    runs.move_run(tree, run, RunStatus.COMPLETED, output=output, finished_by_tool=by_tool)
    tree.emit(EventType.RUN_COMPLETED, session, run, status=RunStatus.COMPLETED)
    _tell_parent(tree, session, run, output=output, has_output=has_output)


def fail(tree: Tree, run: Run, code: str, message: str, *, retryable: bool = False, cause: str | None = None) -> None:
    """A run fails with its typed detail: undecided calls go, answers that were given stay (R-565, R-172, RT-03).

    What no peer can take any more goes with the stand-in (R-204).
    """
    session = tree.session(run.session_id)
    dropped = [call for call in open_calls(session, run) if session.is_remote or not _is_kept_by_failure(call)]
    discard(tree, session, run, dropped, DiscardReason.RUN_FAILED)
    runs.fail_run(tree, run, code, message, retryable=retryable, cause=cause)
    _tell_parent(tree, session, run, failed_with=code, cause=cause)


def _is_kept_by_failure(call: PendingCall) -> bool:
    return call.state == CallState.ANSWERED


def settle_stop(tree: Tree, run: Run) -> None:
    """End a run by its recorded stop: calls closed and paired, no model call, no continuation (RT-07 to RT-11)."""
    session = tree.session(run.session_id)
    discard(tree, session, run, open_calls(session, run), DiscardReason.RUN_STOPPED)
    if run.entry_message:
        # The message was accepted: it belongs to the conversation even though nobody will answer it in this turn.
        append_message(tree, session, run, Role.USER, run.entry_message)
        runs.update_run(run, entry_message=None)
    runs.update_run(run, stop_resolved_at=tree.now)
    if run.stop_kind == StopKind.ABORT:
        runs.fail_run(tree, run, "framework_cancelled", run.stop_reason or "The run was aborted.", output=None)
        failed_with: str | None = "framework_cancelled"
    else:
        runs.move_run(tree, run, RunStatus.INTERRUPTED)
        tree.emit(EventType.RUN_INTERRUPTED, session, run, status=RunStatus.INTERRUPTED, reason=run.stop_reason)
        failed_with = "run_stopped"
    if session.is_remote and run.stop_kind is not None:
        owe_stop(tree, session, StopKind(run.stop_kind), run.stop_reason)
    _tell_parent(tree, session, run, failed_with=failed_with)


def _tell_parent(
    tree: Tree,
    session: Session,
    run: Run,
    *,
    output: Any = None,
    has_output: bool = False,
    failed_with: str | None = None,
    cause: str | None = None,
) -> None:
    if session.parent_call_id is None:
        return
    call = PendingCall.objects.get(pk=session.parent_call_id)
    if call.state != CallState.EXECUTING:
        return  # the parent was stopped or went on without this child
    parent = tree.session(call.session_id)
    if tree.run(call.run_id).stop_is_open:
        return  # a stop covers the tree: the parent's own end closes the call
    if failed_with is not None:
        outcome = _failed_child(parent, call, failed_with, cause)
    else:
        extra = {} if has_output else {"outcome": NO_RESULT}
        outcome = Outcome(call, AnswerKind.RESULT, result_body(output), extra=extra)
    consume(tree, parent, tree.run(call.run_id), [outcome])
    reach(Waypoint.CLOSED_MINE)
    continue_if_complete(tree, parent)


def _failed_child(parent: Session, call: PendingCall, code: str, cause: str | None) -> Outcome:
    """A peer that lost the child, or cannot serve it, has a code of its own; any other failure is the tool's."""
    extra = {"cause": cause or code}
    if code == RemoteSubAgentClientToolUnsupportedError.code:
        extra["failureReason"] = RemoteSubAgentClientToolUnsupportedError.failure_reason
    elif code != SUBAGENT_LOST:
        extra["cause"] = code
        text = readable(parent, "tool_execution_failed", call.kind, code)
        return Outcome(call, AnswerKind.ERROR, {"error": text}, error_code="tool_execution_failed", extra=extra)
    return Outcome(call, AnswerKind.ERROR, {"error": readable(parent, code, call.kind)}, error_code=code, extra=extra)
