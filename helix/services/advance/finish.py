"""The commits that end a worker's hold on a run: suspend, complete, fail, stop, try later, give back (contract 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from helix.agents import Agent
from helix.loop import ModelError, Reply
from helix.models import PendingCall, Run
from helix.rows import endings, runs
from helix.rows.attempts import tried_again
from helix.rows.batch import continue_if_complete
from helix.rows.calls import expose
from helix.rows.checkpoints import write_checkpoint
from helix.rows.takeover import budget_is_spent, close_lost_bodies
from helix.rows.tree import Tree, has_open_subagents, locked
from helix.services.advance.claim import Claim
from helix.services.advance.delegating import Delegates, delegate
from helix.services.advance.deltas import Pending, write_pending
from helix.services.advance.reply import PreparedCall, record_reply, unasked_calls
from helix.statuses import (
    CALL_EXTERNAL,
    CallKind,
    CallState,
    EventType,
    RunCause,
    RunStatus,
    StopKind,
)

# a retryable model error is tried again after these pauses, in seconds, as due times on the run row.
MODEL_RETRY_SECONDS = (1, 2, 4)


@tried_again
def commit_reply(
    claim: Claim,
    agent: Agent,
    reply: Reply,
    prepared: Sequence[PreparedCall],
    delegates: Delegates,
    rest: list[Pending],
    now: datetime,
    *,
    may_suspend: bool = True,
) -> bool:
    """Record a whole reply. True: the worker goes on with its server calls, its suspension or its next step.

    A reply without calls completes the run; one with nothing for this worker to do suspends it, all in this commit,
    unless the caller has something to do before (``may_suspend``). Raises: `LostFence`, `StopSeen`.
    """
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        write_pending(tree, run, rest)
        calls = record_reply(tree, run, agent, reply, prepared)
        if not calls:
            write_checkpoint(tree, tree.session(run.session_id), run)
            endings.complete(tree, run, output=None)
            return False
        held = [call for call in calls if call.state == CallState.HELD]
        if not held:
            write_checkpoint(tree, tree.session(run.session_id), run)
            return True
        if not may_suspend or any(call.kind == CallKind.SERVER and not is_deferred(agent, call) for call in held):
            return True
        _suspend(tree, run, delegates)
        return False


def is_deferred(agent: Agent, call: PendingCall) -> bool:
    """A finish call of a step that also asked somebody else: the drain pairs it, it never runs (R-045)."""
    tool = agent.tool(call.tool_name)
    if call.kind != CallKind.SERVER or tool is None or not tool.finish_with:
        return False
    step = PendingCall.objects.filter(session_id=call.session_id, step_id=call.step_id)
    return step.exclude(kind=CallKind.SERVER).exists()


@tried_again
def suspend(claim: Claim, delegates: Delegates, now: datetime) -> None:
    """RT-04, RT-05: the step's server calls are done; the rest waits for somebody outside or for children."""
    with locked(claim.root_id, now) as tree:
        _suspend(tree, runs.fence(tree, claim.run_id, claim.epoch), delegates)


def _suspend(tree: Tree, run: Run, delegates: Delegates) -> None:
    session = tree.session(run.session_id)
    held = list(PendingCall.objects.filter(session_id=session.id, run_id=run.id, state=CallState.HELD).order_by("seq"))
    external = [call for call in held if call.kind in CALL_EXTERNAL]
    children = [delegate(tree, run, call, delegates) for call in held if call.kind == CallKind.SUBAGENT]
    status = RunStatus.SUSPENDED_CLIENT_TOOL if external else RunStatus.SUSPENDED_AWAITING_CHILDREN
    runs.move_run(tree, run, status)
    expose(tree, session)
    suspended: dict[str, object] = {"status": status, "stepId": run.step_id}
    if external:
        suspended["toolCallIds"] = [call.tool_call_id for call in external]
    if any(children):
        suspended["children"] = [child for child in children if child]
    tree.emit(EventType.RUN_SUSPENDED, session, run, **suspended)
    write_checkpoint(tree, session, run)
    if not external and not has_open_subagents(session):
        # Every child failed to begin: the step is complete as it stands.
        continue_if_complete(tree, session)


@contextmanager
def _unless_stopped(claim: Claim, now: datetime) -> Iterator[tuple[Tree, Run] | None]:
    """The fenced run, or None: a recorded stop outranks what the caller came for, and has ended the run instead."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch, ignore_stop=True)
        if run.stop_is_open:
            endings.settle_stop(tree, run)
            yield None
        else:
            yield tree, run


@tried_again
def fail_run(claim: Claim, code: str, message: str, now: datetime, *, cause: str | None = None) -> None:
    """RT-03: the run fails with its typed detail."""
    with _unless_stopped(claim, now) as ours:
        if ours:
            endings.fail(*ours, code, message, cause=cause)


@tried_again
def complete_run(claim: Claim, now: datetime) -> None:
    """The agent's own condition ended the turn after a step (R-014)."""
    with locked(claim.root_id, now) as tree:
        endings.complete(tree, runs.fence(tree, claim.run_id, claim.epoch))


@tried_again
def model_failed(claim: Claim, error: ModelError, rest: list[Pending], now: datetime) -> None:
    """RT-22: a retryable model error is tried again at a due time on the row; any other, or a fourth, fails (R-494)."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        session = tree.session(run.session_id)
        if rest or error.partial:
            tree.emit(EventType.STEP_DISCARDED, session, run, reason=error.code)
        if not error.retryable or run.model_attempts >= len(MODEL_RETRY_SECONDS):
            endings.fail(tree, run, error.code, str(error), retryable=error.retryable)
            return
        pause = MODEL_RETRY_SECONDS[run.model_attempts]
        runs.move_run(
            tree,
            run,
            RunStatus.QUEUED,
            model_attempts=run.model_attempts + 1,
            next_attempt_at=now + timedelta(seconds=pause),
        )
        tree.emit(
            EventType.ERROR, session, run, error={"code": error.code, "retryable": True, "retryInMs": pause * 1000}
        )


@tried_again
def start_failed(claim: Claim, code: str, message: str, now: datetime) -> None:
    """R-132: a start that may succeed later is tried again under the crash budget, then exhausted."""
    with _unless_stopped(claim, now) as ours:
        if ours:
            _start_later(*ours, code, message)


@tried_again
def driver_failed(claim: Claim, cause: str, now: datetime, *, has_begun: bool) -> None:
    """An exception that nobody foresaw. A continuation that had asked for nothing yet starts again (R-132); else the
    run fails: what was begun may have had effects.
    """
    message = "An unexpected failure ended the run."
    with _unless_stopped(claim, now) as ours:
        if ours is None:
            return
        tree, run = ours
        if run.cause == RunCause.CONTINUATION and not has_begun:
            _start_later(tree, run, cause, message)
        else:
            endings.fail(tree, run, "framework_internal", message, cause=cause)


def _start_later(tree: Tree, run: Run, cause: str, message: str) -> None:
    if budget_is_spent(run):
        endings.fail(tree, run, "framework_auto_resume_exhausted", message, cause=cause)
        return
    runs.move_run(
        tree,
        run,
        RunStatus.QUEUED,
        crash_count=run.crash_count + 1,
        next_attempt_at=tree.now + timedelta(seconds=2**run.crash_count),
    )


@tried_again
def stop_run(
    claim: Claim,
    agent: Agent | None,
    written: Reply | None,
    rest: list[Pending],
    now: datetime,
) -> None:
    """RT-07, RT-08: end the run by its stop. An interrupt keeps the reply that was being written (R-419)."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch, ignore_stop=True)
        if not run.stop_is_open:
            return
        write_pending(tree, run, rest)
        kept = written if run.stop_kind == StopKind.INTERRUPT else None
        if agent is not None and kept is not None and (kept.text or kept.calls):
            record_reply(tree, run, agent, kept, unasked_calls(agent, kept), interrupted=True)
        endings.settle_stop(tree, run)


@tried_again
def give_back(claim: Claim, now: datetime) -> None:
    """RT-06: the worker shuts down inside a step; another one claims the run."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        close_lost_bodies(tree, run)
        runs.move_run(tree, run, RunStatus.SUSPENDED_STEP_PARTIAL, next_attempt_at=now)
        tree.wake(run)
