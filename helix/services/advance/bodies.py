"""Run the body of one call: commit that it starts, run it with no transaction open, commit its result (R-169).

At most one execution: `body_started_at` is committed before the body starts, and a body that was started by a lost
worker runs again only with ``replay="safe"`` (R-016).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from helix import jsontext
from helix.agents import Agent, ToolContext, apply_state_writes
from helix.errors import StateTooLarge
from helix.loop import CancelToken
from helix.loop.execution import BodyResult, run_body
from helix.loop.texts import edited_note
from helix.models import PendingCall
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.beginnings import check_state_size
from helix.rows.calls import Outcome, consume, emit_tool_start, move_call, open_calls, readable
from helix.rows.checkpoints import write_checkpoint
from helix.rows.endings import complete
from helix.rows.outcomes import result_body
from helix.rows.tree import Tree, locked
from helix.services.advance.claim import Claim
from helix.services.advance.hooks import call_told, fire
from helix.statuses import AnswerKind, CallKind, CallState, EventType

Clock = Callable[[], datetime]


def execute_call(claim: Claim, agent: Agent, call_id: UUID, clock: Clock, token: CancelToken) -> bool:
    """Run one call from start to recorded result. True: it was a finish tool, and the run is completed.

    Raises: `LostFence`, `StopSeen`; nothing is recorded then.
    """
    call, context = _begin_body(claim, call_id, clock(), token)
    tool = agent.tool(call.tool_name)
    if tool is None or tool.body is None:
        result = BodyResult(
            "error",
            error=readable(call.session, "tool_execution_failed", call.kind, "The tool is not registered any more."),
            error_code="tool_execution_failed",
        )
    else:
        fire(agent, "before_tool", call_told(call))
        result = run_body(tool, _arguments_of(call), context)
    if result.kind == "cancelled":
        raise runs.StopSeen(token.kind)
    result = _heard_by_hooks(agent, call, result)
    finishes = tool is not None and tool.finish_with and result.kind == "result"
    _record_body(claim, call_id, result, context, clock(), finishes=finishes)
    return finishes


@tried_again
def _begin_body(claim: Claim, call_id: UUID, now: datetime, token: CancelToken) -> tuple[PendingCall, ToolContext]:
    """P-13, P-14: the start of a body is a committed fact before its first instruction."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        session = tree.session(claim.session_id)
        call = PendingCall.objects.select_related("session").get(pk=call_id)
        columns = {"body_started_at": now, "body_attempts": call.body_attempts + 1}
        move_call(call, CallState.EXECUTING, **columns)
        if call.kind == CallKind.SERVER:
            emit_tool_start(tree, session, run, call)
        context = ToolContext(
            session_id=str(session.id),
            root_id=str(tree.root.id),
            run_id=str(run.id),
            tool_call_id=call.tool_call_id,
            agent_type=session.agent_type,
            owner=session.owner,
            token=token,
            state=dict(session.state),
        )
        return call, context


def _arguments_of(call: PendingCall) -> dict[str, Any]:
    """What was decided is what runs: the approved edit, else the model's own arguments (R-181)."""
    if call.edited_arguments_json is not None:
        edited: dict[str, Any] = jsontext.loads(call.edited_arguments_json)
        return edited
    return call.arguments if isinstance(call.arguments, dict) else {}


@tried_again
def _record_body(
    claim: Claim, call_id: UUID, result: BodyResult, context: ToolContext, now: datetime, *, finishes: bool
) -> None:
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        session = tree.session(claim.session_id)
        call = PendingCall.objects.get(pk=call_id)
        if call.state != CallState.EXECUTING:
            raise runs.LostFence(str(call_id))
        result = _commit_state(tree, session, run, call, result, context)
        consume(tree, session, run, [outcome_of_body(call, result)])
        if not open_calls(session, run):
            write_checkpoint(tree, session, run)
        if finishes and result.kind == "result":
            complete(tree, run, output=result.value, has_output=True, by_tool=True)


def _commit_state(
    tree: Tree, session: Any, run: Any, call: PendingCall, result: BodyResult, context: ToolContext
) -> BodyResult:
    """The body's staged state writes, in one commit with its result; over the limit it failed (R-299, R-561)."""
    if result.kind != "result" or not context.state_writes:
        return result
    state = apply_state_writes(session.state, context.state_writes)
    try:
        check_state_size(state)
    except StateTooLarge as refusal:
        text = readable(session, "tool_execution_failed", call.kind, refusal.message)
        return BodyResult("error", error=text, error_code=StateTooLarge.code)
    session.state = state
    patch = [
        {"op": "add", "path": "".join(f"/{_pointer(key)}" for key in path), "value": value}
        for path, value in context.state_writes
    ]
    tree.emit(EventType.STATE_PATCH, session, run, patch=patch)
    return result


def _pointer(key: str) -> str:
    # RFC 6901
    return key.replace("~", "~0").replace("/", "~1")


def outcome_of_body(call: PendingCall, result: BodyResult) -> Outcome:
    note = edited_note(call.edited_arguments_json) if call.edited_arguments_json is not None else None
    if result.kind == "result":
        return Outcome(call, AnswerKind.RESULT, result_body(result.value), note=note)
    return Outcome(call, AnswerKind.ERROR, {"error": result.error or ""}, error_code=result.error_code, note=note)


def _heard_by_hooks(agent: Agent, call: PendingCall, result: BodyResult) -> BodyResult:
    """After-tool hooks see the result; a text that one returns replaces a failed result's error (R-654)."""
    told = call_told(call, result=result.value, error=result.error, errorCode=result.error_code)
    for answer in fire(agent, "after_tool", told):
        if result.kind == "error" and isinstance(answer, str):
            result = BodyResult("error", error=answer, error_code=result.error_code)
    return result
