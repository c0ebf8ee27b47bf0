"""Give up a call whose body executes: the operator's last resort for work that is stuck (R-677).

A live worker with a stuck tool is never taken over by itself, since its lease says nothing about progress
(liveness Q-62). An operator may say so instead. The call becomes a failed result with the operator's text, and the
run goes on with another worker; whoever still executes the body meets the fence and writes nothing.
"""

from __future__ import annotations

import logging
from datetime import datetime

from helix import selectors
from helix.answers import scrubbed_error
from helix.errors import AlreadyRunning, Forbidden, UnknownToolCall
from helix.models import PendingCall, Run, RunLease
from helix.principals import Principal
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.calls import Outcome, audit, consume, on_wire
from helix.rows.tree import Tree, locked
from helix.statuses import AnswerKind, CallKind, CallState, RunStatus

log = logging.getLogger("helix.force")

CODE = "tool_execution_failed"


@tried_again
def fail_body(
    *,
    principal: Principal,
    session_id: str,
    tool_call_id: str,
    error: str,
    now: datetime,
    door: str,
    override: bool = False,
) -> None:
    """Settle an executing server call or approved body as failed, and queue its run for another worker.

    override: do it although the worker's lease is fresh. The body may have had effects, and may go on having them.
    Raises: `NotFound`; `Forbidden` for anybody but operators; `UnknownToolCall` when no body of that call executes
    or a stop is recorded; `AlreadyRunning` with the holder while the lease is fresh and nothing overrides it.
    """
    session = selectors.session_for(principal, session_id)
    if not principal.is_operator:
        raise Forbidden("Only operators give up a body that executes.", cause="not_permitted")
    text = scrubbed_error(error)
    with locked(session.id, now) as tree:
        call = PendingCall.objects.filter(root_id=session.id, tool_call_id=tool_call_id).first()
        if call is None:
            raise UnknownToolCall("There is no such call.", toolCallId=tool_call_id, reason="never_existed")
        if call.state != CallState.EXECUTING or call.kind == CallKind.SUBAGENT:
            raise UnknownToolCall("No body of this call executes.", toolCallId=tool_call_id, reason=call.state)
        run = tree.run(call.run_id)
        if run.stop_is_open:
            # The stop ends the call and the run with it; an abort does so at once.
            raise UnknownToolCall("A stop is recorded.", toolCallId=tool_call_id, reason="run_stopped")
        lease = RunLease.objects.filter(run_id=run.id).first()
        if not override:
            _refuse_fresh(tree, run, lease)
        before = {
            "state": call.state,
            "holder": lease.holder if lease else None,
            "leaseExpiresAt": on_wire(lease.expires_at) if lease else None,
        }
        audit(tree, call, "force_fail", principal, door=door, before=before, after={"override": override})
        consume(
            tree,
            tree.session(call.session_id),
            run,
            [Outcome(call, AnswerKind.ERROR, {"error": text}, error_code=CODE)],
        )
        if run.status == RunStatus.RUNNING:
            # The epoch is over with the body: its late result meets the fence.
            runs.move_run(tree, run, RunStatus.QUEUED, epoch=run.epoch + 1, next_attempt_at=now)
            tree.wake(run)
    log.warning("call.force_failed", extra={"sessionId": str(session.id), "toolCallId": tool_call_id})


def _refuse_fresh(tree: Tree, run: Run, lease: RunLease | None) -> None:
    """A lease that this very process holds is fresh whatever its clock says (L-6)."""
    if run.status != RunStatus.RUNNING:
        return
    if runs.is_held_here(run) or (lease is not None and lease.expires_at > tree.now):
        raise AlreadyRunning(
            "A worker with a fresh lease executes the body.",
            retryable=False,
            runId=str(run.id),
            holder=lease.holder if lease else None,
            leaseExpiresAt=on_wire(lease.expires_at) if lease else None,
        )
