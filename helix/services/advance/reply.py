"""Record a model's reply: the message, its calls, and what can be settled at once, in one commit (R-042).

What needs the agent's functions (validation, the approval question) is asked before the transaction; under the lock
only rows are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from helix import jsontext
from helix.agents import (
    FINISH_TOOL_NAME,
    Agent,
    ApprovalRequest,
    ArgumentsRefused,
    Tool,
    read_arguments,
)
from helix.loop import EmittedCall, Reply
from helix.models import CallOwnership, PendingCall, Run, Session, UsageRecord
from helix.rows import runs
from helix.rows.calls import Outcome, consume, emit_tool_start, readable
from helix.rows.log import append_message
from helix.rows.tree import Tree
from helix.schemas import schema_digest
from helix.services.advance.claim import Claim
from helix.statuses import (
    CALL_EXTERNAL,
    AnswerKind,
    CallKind,
    CallState,
    EventType,
    Role,
    UsageKind,
)

MAX_CALL_ID = 256


@dataclass(frozen=True)
class PreparedCall:
    """A call of the reply with everything that was asked before the lock.

    kind: `server` when the call cannot be carried out as it stands; ``problem`` then is its result's error.
    """

    emitted: EmittedCall
    tool: Tool | None
    kind: CallKind
    arguments: Any
    problem: str | None = None
    problem_code: str | None = None


def prepare_calls(agent: Agent, claim: Claim, reply: Reply) -> list[PreparedCall]:
    """Parse, validate and classify the calls of a reply, in emission order (R-008, R-030, R-031)."""
    return [_prepare(agent, claim, emitted) for emitted in reply.calls]


def _prepare(agent: Agent, claim: Claim, emitted: EmittedCall) -> PreparedCall:
    tool = agent.tool(emitted.tool_name)
    if tool is None:
        return PreparedCall(
            emitted, None, CallKind.SERVER, None, f"There is no tool {emitted.tool_name!r}.", "tool_execution_failed"
        )
    checked = agent.validates(tool) or tool.name == FINISH_TOOL_NAME
    try:
        arguments = read_arguments(tool, emitted.arguments_json) if checked else _as_far_as_json(emitted.arguments_json)
    except ArgumentsRefused as refusal:
        return PreparedCall(emitted, tool, CallKind.SERVER, None, str(refusal), "validation_failed")
    needs_approval = tool.needs_approval(
        ApprovalRequest(
            tool_name=tool.name,
            arguments=arguments,
            arguments_json=emitted.arguments_json,
            session_id=str(claim.session_id),
            run_id=str(claim.run_id),
            agent_type=claim.agent_type,
            owner=claim.owner,
        )
    )
    return PreparedCall(emitted, tool, CallKind(tool.call_kind(needs_approval)), arguments)


def unasked_calls(agent: Agent, reply: Reply) -> list[PreparedCall]:
    """The calls of a reply that a stop cut: nothing of them is judged, since none of them will be carried out.

    Their arguments may end in the middle; whoever wrote the tool is not asked whether they need approval.
    """
    prepared = []
    for emitted in reply.calls:
        tool = agent.tool(emitted.tool_name)
        kind = CallKind.SERVER if tool is None else CallKind(tool.call_kind(False))
        prepared.append(PreparedCall(emitted, tool, kind, _as_far_as_json(emitted.arguments_json)))
    return prepared


def _as_far_as_json(text: str) -> Any:
    """R-031: unvalidated arguments are surfaced as they are; the parsed value is only there when they are JSON."""
    try:
        return jsontext.loads(text, unique_keys=False)
    except jsontext.JsonRefused:
        return None


def record_reply(
    tree: Tree, run: Run, agent: Agent, reply: Reply, prepared: Sequence[PreparedCall], *, interrupted: bool = False
) -> list[PendingCall]:
    """Write the assistant message and register its calls; returns the rows in emission order.

    Invalid calls are consumed at once as failed results; valid ones are `held` (P-00). An empty reply without calls
    keeps no row when it was interrupted (R-419).
    """
    session = tree.session(run.session_id)
    step_id = str(uuid4())
    runs.update_run(run, step_count=run.step_count + 1, step_id=step_id, crash_count=0, model_attempts=0)
    calls = [_row(tree, session, run, agent, one, step_id) for one in prepared]
    _mint_known_ids(tree, calls)
    parts = _parts(reply, calls, interrupted)
    if parts:
        append_message(tree, session, run, Role.ASSISTANT, parts, interrupted=interrupted)
    PendingCall.objects.bulk_create(calls, batch_size=500)
    external = [call for call in calls if call.kind in CALL_EXTERNAL]
    CallOwnership.objects.bulk_create(
        [
            CallOwnership(
                root_id=tree.root.id,
                tool_call_id=call.tool_call_id,
                owner_session_id=session.id,
                created_at=tree.now,
            )
            for call in external
        ],
        batch_size=500,
    )
    _count_tokens(tree, session, run, reply)
    tree.emit(
        EventType.STEP_COMMITTED,
        session,
        run,
        stepId=step_id,
        text=storable(reply.text),
        toolCallIds=[c.tool_call_id for c in calls],
    )
    _settle_invalid(tree, session, run, calls, prepared)
    return calls


def _row(tree: Tree, session: Session, run: Run, agent: Agent, one: PreparedCall, step_id: str) -> PendingCall:
    tree.root.call_sequence += 1
    emitted, tool = one.emitted, one.tool
    call = PendingCall(
        root_id=tree.root.id,
        session_id=session.id,
        run_id=run.id,
        emitted_by_id=run.id,
        tool_call_id=emitted.provider_call_id or "",
        provider_call_id=emitted.provider_call_id,
        tool_name=storable(emitted.tool_name)[:MAX_CALL_ID],
        kind=one.kind,
        private=bool(tool and tool.private),
        replay_safe=bool(tool and tool.replay == "safe"),
        forbid_self_approval=bool(tool and tool.forbid_self_approval),
        step_id=step_id,
        seq=tree.root.call_sequence,
        arguments_json=storable(emitted.arguments_json),
        arguments=one.arguments,
        arguments_digest=jsontext.digest(storable(emitted.arguments_json)),
        state=CallState.HELD,
        retention_ms=agent.completed_tombstone_retention_ms,
        created_at=tree.now,
    )
    if tool is not None and one.kind in (CallKind.CLIENT, CallKind.APPROVAL):
        call.wait_ms, call.wait_from = agent.wait_for(tool, one.kind.value)  # type: ignore[arg-type]
        call.output_schema = tool.output_schema if one.kind == CallKind.CLIENT else None
        call.schema_digest = schema_digest(call.output_schema) if call.output_schema else ""
    return call


def _mint_known_ids(tree: Tree, calls: Sequence[PendingCall]) -> None:
    """A call id that the tree knows, or that cannot be an id, is replaced by a minted one (R-052)."""
    named = [call.tool_call_id for call in calls]
    known: set[str] = set()
    for start in range(0, len(named), 500):
        known.update(
            PendingCall.objects.filter(root_id=tree.root.id, tool_call_id__in=named[start : start + 500]).values_list(
                "tool_call_id", flat=True
            )
        )
    for call in calls:
        if not 1 <= len(call.tool_call_id) <= MAX_CALL_ID or call.tool_call_id in known:
            call.tool_call_id = f"call_{uuid4().hex}"
        known.add(call.tool_call_id)
        if call.provider_call_id is not None and len(call.provider_call_id) > MAX_CALL_ID:
            call.provider_call_id = None
        if call.kind == CallKind.APPROVAL:
            call.approval_id = approval_id(call.run_id, call.tool_call_id)


def approval_id(run_id: UUID, tool_call_id: str) -> str:
    """R-161: from the run that asked."""
    return f"{run_id}::{tool_call_id}"


def _parts(reply: Reply, calls: Sequence[PendingCall], interrupted: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    # An interrupted reply keeps text and calls, no reasoning.
    if reply.reasoning and not interrupted:
        parts.append({"type": "reasoning", "text": storable(reply.reasoning)})
    if reply.text:
        parts.append({"type": "text", "text": storable(reply.text)})
    parts.extend(
        {
            "type": "tool_call",
            "toolCallId": call.tool_call_id,
            "providerCallId": call.provider_call_id,
            "toolName": call.tool_name,
            "argumentsJson": call.arguments_json,
            "private": call.private,
        }
        for call in calls
    )
    if reply.provider and not interrupted:
        parts.append({"type": "provider", **reply.provider})
    return parts


def storable(text: str) -> str:
    """A model may write what a database cannot hold alike everywhere: U+0000 and lone surrogates become U+FFFD."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8") if not _is_clean(text) else text


def _is_clean(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _settle_invalid(
    tree: Tree, session: Session, run: Run, calls: Sequence[PendingCall], prepared: Sequence[PreparedCall]
) -> None:
    outcomes = []
    for call, one in zip(calls, prepared, strict=True):
        if one.problem is None or one.problem_code is None:
            continue
        emit_tool_start(tree, session, run, call)
        text = readable(session, one.problem_code, call.kind, one.problem)
        outcomes.append(Outcome(call, AnswerKind.ERROR, {"error": text}, error_code=one.problem_code))
    if outcomes:
        consume(tree, session, run, outcomes)


def _count_tokens(tree: Tree, session: Session, run: Run, reply: Reply) -> None:
    if reply.usage is None:
        return
    usage = reply.usage
    UsageRecord.objects.create(
        root_id=tree.root.id,
        session_id=session.id,
        run_id=run.id,
        timestamp=int(tree.now.timestamp() * 1000),
        step_count=run.step_count,
        kind=UsageKind.TOKENS,
        source_type="model",
        source_name=session.agent_type,
        data={
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cacheRead": usage.cache_read_tokens,
            "cacheWrite": usage.cache_write_tokens,
        },
        dedupe_key=f"tokens:{run.id}:{run.step_count}",
    )
