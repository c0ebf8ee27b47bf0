"""Expose, answer, close and remember calls under the lock (contract 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from helix.loop.texts import text_for
from helix.models import CallAudit, CallOwnership, CallTombstone, Message, PendingCall, Run, Session, UsageRecord
from helix.principals import Principal
from helix.rows.log import new_message
from helix.rows.tree import Tree
from helix.selectors import remote_deadlines
from helix.statuses import (
    CALL_EXTERNAL,
    CALL_MOVES,
    CALL_OPEN,
    RUN_PAUSED,
    AnswerKind,
    CallKind,
    CallState,
    DiscardReason,
    EventType,
    Role,
    UsageKind,
)

log = logging.getLogger("helix.calls")

# What a client sees instead of a private tool's input, result and error.
PLACEHOLDER = "[private]"


@dataclass(frozen=True)
class Outcome:
    """How a call ends in the log: the parts of its result message beside its identity.

    body: exactly one of {"text": str}, {"value": any}, {"error": str}.
    note: a sentence that the model reads before the result (R-178).
    """

    call: PendingCall
    settled_as: AnswerKind
    body: dict[str, Any]
    error_code: str | None = None
    note: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


# -- exposure ----------------------------------------------------------------------------------------------------------


def expose(tree: Tree, session: Session | None = None) -> list[PendingCall]:
    """Make the next held external calls visible and answerable (R-051); returns them in recorded order.

    session: the one that was just suspended. Without a bound all of its held calls are exposed; with `max_open_calls`
    the next of the whole tree among suspended runs, so that never more than that many are open.
    """
    held = PendingCall.objects.filter(state=CallState.HELD, kind__in=CALL_EXTERNAL).order_by("seq")
    limit = tree.root.max_open_calls
    if limit is None:
        if session is None:
            return []
        calls = list(held.filter(session_id=session.id))
    else:
        open_now = PendingCall.objects.filter(root_id=tree.root.id, state=CallState.AWAITING).count()
        room = max(0, limit - open_now)
        waiting = held.filter(root_id=tree.root.id, run__status__in=RUN_PAUSED, run__superseded_by=None)
        calls = list(waiting[:room]) if room else []
    for call in calls:
        call.state = CallState.AWAITING
        call.exposed_at = tree.now
        call.deadline_at = None if call.wait_ms is None else tree.now + timedelta(milliseconds=call.wait_ms)
    _write_exposure(calls, tree)
    at_peers = [call.tool_call_id for call in calls if tree.session(call.session_id).is_remote]
    peer_deadlines = remote_deadlines(tree.root.id, at_peers)
    for call in calls:
        owner = tree.session(call.session_id)
        run = tree.run(call.run_id)
        tree.changed(owner)
        deadline_at = peer_deadlines.get(call.tool_call_id, call.deadline_at)
        emit_tool_start(tree, owner, run, call, deadline_at=deadline_at)
        if call.kind == CallKind.APPROVAL:
            tree.emit(
                EventType.TOOL_APPROVAL_REQUEST,
                owner,
                run,
                toolCallId=call.tool_call_id,
                toolName=call.tool_name,
                approvalId=call.approval_id,
                input=call.arguments,
                argumentsJson=call.arguments_json,
                argumentsDigest=call.arguments_digest,
                deadlineAt=on_wire(deadline_at),
            )
        log.debug(
            "client_tool.suspended",
            extra={
                "sessionId": str(tree.root.id),
                "runId": str(call.run_id),
                "toolCallId": call.tool_call_id,
                "toolName": call.tool_name,
                "deadlineAt": on_wire(deadline_at),
            },
        )
    return calls


def _write_exposure(calls: Sequence[PendingCall], tree: Tree) -> None:
    """One statement per distinct wait, however many calls a step exposes."""
    by_wait: dict[int | None, list[PendingCall]] = {}
    for call in calls:
        by_wait.setdefault(call.wait_ms, []).append(call)
    for group in by_wait.values():
        for page in _pages(group):
            PendingCall.objects.filter(pk__in=[call.pk for call in page]).update(
                state=CallState.AWAITING, exposed_at=tree.now, deadline_at=group[0].deadline_at
            )


def _pages(rows: Sequence[Any], size: int = 500) -> Iterable[Sequence[Any]]:
    # SQLite bounds the number of parameters of a statement.
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def emit_tool_start(
    tree: Tree, session: Session, run: Run, call: PendingCall, *, deadline_at: datetime | None = None
) -> None:
    """The call is in execution, or with somebody outside (R-032, R-513)."""
    shown = "{}" if call.private else call.arguments_json
    tree.emit(
        EventType.TOOL_START,
        session,
        run,
        toolCallId=call.tool_call_id,
        toolName=call.tool_name,
        kind=call.kind,
        requiresClientResponse=call.kind == CallKind.CLIENT,
        argumentsJson=shown,
        deadlineAt=on_wire(deadline_at),
    )


def on_wire(instant: Any) -> str | None:
    return None if instant is None else instant.isoformat().replace("+00:00", "Z")


# -- answers -----------------------------------------------------------------------------------------------------------


def move_call(call: PendingCall, state: CallState, **columns: Any) -> None:
    """Move one call along its table and write the columns with it. Raises: ValueError for an unknown move."""
    if state not in CALL_MOVES[CallState(call.state)] and state != call.state:
        raise ValueError(f"a call does not move from {call.state} to {state}")
    for name, value in {**columns, "state": state}.items():
        setattr(call, name, value)
    call.save(update_fields=[*columns, "state"])


def store_answer(tree: Tree, call: PendingCall, kind: AnswerKind, *, outcome: str, **columns: Any) -> None:
    """Store what closes an external call (P-02 to P-05) and say so in the stream. The drain makes a result of it."""
    move_call(call, CallState.ANSWERED, answer_kind=kind, answered_at=tree.now, **columns)
    session = tree.session(call.session_id)
    extra: dict[str, Any] = {}
    if call.kind == CallKind.APPROVAL:
        extra["approvalId"] = call.approval_id
        extra["approved"] = kind in (AnswerKind.APPROVED, AnswerKind.APPROVED_EDITED)
        extra["edited"] = kind == AnswerKind.APPROVED_EDITED
    tree.emit(
        EventType.CALL_ANSWERED,
        session,
        tree.run(call.run_id),
        toolCallId=call.tool_call_id,
        toolName=call.tool_name,
        kind=call.kind,
        outcome=outcome,
        **extra,
    )
    tree.changed(session)


def store_timeout(tree: Tree, call: PendingCall) -> None:
    """A lapse: the call counts as answered (R-107, R-232)."""
    store_answer(tree, call, AnswerKind.TIMEOUT, outcome="timeout", error_code="client_tool_timeout")
    count(tree, call, "client_tool_timeout", 1)
    log.warning(
        "client_tool.timeout",
        extra={
            "sessionId": str(tree.root.id),
            "toolCallId": call.tool_call_id,
            "deadlineAt": on_wire(call.deadline_at),
        },
    )


def audit(
    tree: Tree,
    call: PendingCall,
    action: str,
    principal: Principal,
    *,
    door: str,
    before: Any = None,
    after: Any = None,
) -> None:
    CallAudit.objects.create(
        call=call,
        action=action,
        actor=principal.id,
        door=door,
        address=principal.address,
        at=tree.now,
        before=before,
        after=after,
    )


def count(tree: Tree, call: PendingCall, metric: str, value: float) -> None:
    """One custom usage row per occurrence (R-631, R-632); a repeat adds none (R-638)."""
    UsageRecord.objects.bulk_create([_usage(tree, call, metric, value)], ignore_conflicts=True)


def _usage(tree: Tree, call: PendingCall, metric: str, value: float) -> UsageRecord:
    return UsageRecord(
        root_id=tree.root.id,
        session_id=call.session_id,
        run_id=call.run_id,
        timestamp=int(tree.now.timestamp() * 1000),
        kind=UsageKind.CUSTOM,
        source_type=metric,
        source_name=call.tool_name,
        data={"value": value},
        dedupe_key=f"{metric}:{call.id}",
    )


# -- closing -----------------------------------------------------------------------------------------------------------


def consume(tree: Tree, session: Session, run: Run, outcomes: Sequence[Outcome]) -> list[Message]:
    """Turn outcomes into tool results: message, state, tombstone, `tool_end`; ownership goes (P-06, P-15, R-260)."""
    messages = _append_results(tree, session, run, outcomes)
    tombstones, usage = [], []
    for outcome in outcomes:
        call = outcome.call
        call.state = CallState.CONSUMED
        call.settled_at = tree.now
        call.answer_kind = call.answer_kind or outcome.settled_as
        call.answered_at = call.answered_at or tree.now
        call.error_code = outcome.error_code
        if not call.is_external:
            continue
        if call.retention_ms:
            tombstones.append(
                CallTombstone(
                    root_id=tree.root.id,
                    tool_call_id=call.tool_call_id,
                    settled_as=call.answer_kind,
                    completed_at=tree.now,
                    expires_at=tree.now + timedelta(milliseconds=call.retention_ms),
                )
            )
        if call.exposed_at:
            usage.append(
                _usage(
                    tree, call, "client_tool_wait_ms", (call.answered_at - call.exposed_at) / timedelta(milliseconds=1)
                )
            )
    PendingCall.objects.bulk_update(
        [outcome.call for outcome in outcomes],
        ["state", "settled_at", "answer_kind", "answered_at", "error_code"],
        batch_size=200,
    )
    CallTombstone.objects.bulk_create(tombstones, batch_size=500)
    UsageRecord.objects.bulk_create(usage, ignore_conflicts=True, batch_size=500)
    _forget_ownership(tree, [outcome.call for outcome in outcomes])
    tree.changed(session)
    return messages


def discard(tree: Tree, session: Session, run: Run, calls: Sequence[PendingCall], reason: DiscardReason) -> None:
    """Close open calls without an answer and pair each with a not-executed result (P-07, P-09, R-418).

    A stop that cuts an executing body is `aborted` in the log; everything else bears the reason as its code.
    """
    outcomes = []
    for call in calls:
        cut = reason == DiscardReason.RUN_STOPPED and call.state == CallState.EXECUTING
        code = "aborted" if cut else str(reason)
        outcomes.append(Outcome(call, AnswerKind.ERROR, {"error": readable(session, code, call.kind)}, error_code=code))
    _append_results(tree, session, run, outcomes)
    for outcome in outcomes:
        call = outcome.call
        if reason == DiscardReason.RUN_STOPPED and call.state == CallState.AWAITING:
            count(tree, call, "client_tool_abort", 1)
            log.warning("client_tool.aborted", extra={"sessionId": str(tree.root.id), "toolCallId": call.tool_call_id})
        call.state = CallState.DISCARDED
        call.discard_reason = reason
        call.settled_at = tree.now
        call.error_code = outcome.error_code
    PendingCall.objects.bulk_update(calls, ["state", "discard_reason", "settled_at", "error_code"], batch_size=200)
    _forget_ownership(tree, calls)
    tree.changed(session)


def readable(session: Session, code: str, kind: str, detail: str | None = None) -> str:
    """The text of a built-in code for this call, with the agent's own words where it has some (R-745)."""
    return text_for(code, kind=kind, agent_texts=session.error_texts, detail=detail)


def _append_results(tree: Tree, session: Session, run: Run, outcomes: Sequence[Outcome]) -> list[Message]:
    """The result messages, one per call; a call that has one already is skipped and logged (R-269, R-671)."""
    ids = [outcome.call.tool_call_id for outcome in outcomes]
    answered: set[str | None] = set()
    for page in _pages(ids):
        answered.update(
            Message.objects.filter(
                session_id=session.id, role=Role.TOOL, rolled_back_by=None, tool_call_id__in=page
            ).values_list("tool_call_id", flat=True)
        )
    messages = []
    for outcome in outcomes:
        call = outcome.call
        if call.tool_call_id in answered:
            log.warning(
                "client_tool.orphan_resolved",
                extra={
                    "sessionId": str(tree.root.id),
                    "toolCallId": call.tool_call_id,
                    "outcome": str(outcome.settled_as),
                    "errorCode": outcome.error_code,
                    "skippedAppend": True,
                },
            )
            continue
        part = {
            "type": "tool_result",
            "toolCallId": call.tool_call_id,
            "providerCallId": call.provider_call_id,
            "toolName": call.tool_name,
            "private": call.private,
            "errorCode": outcome.error_code,
            **outcome.body,
            **({"note": outcome.note} if outcome.note else {}),
        }
        messages.append(
            new_message(
                tree,
                session,
                run,
                Role.TOOL,
                [part],
                tool_call_id=call.tool_call_id,
                error_code=outcome.error_code,
            )
        )
        if call.kind == CallKind.SUBAGENT and call.state == CallState.EXECUTING:
            _emit_subagent_end(tree, session, run, call)
        tree.emit(EventType.TOOL_END, session, run, **tool_end_payload(outcome))
    return Message.objects.bulk_create(messages, batch_size=500)


def _emit_subagent_end(tree: Tree, session: Session, run: Run, call: PendingCall) -> None:
    """Whatever closes a delegating call, its end stands directly before the call's own (R-205)."""
    child_id = Session.objects.filter(parent_call_id=call.pk).values_list("id", flat=True).first()
    # The tree's own copies: the run that ends a remote child begins in this very transaction.
    child_run = tree.current_run(tree.session(child_id)) if child_id is not None else None
    ended: dict[str, Any] = {"toolCallId": call.tool_call_id}
    if child_run is not None:
        ended.update(childSessionId=str(child_id), status=child_run.status)
    tree.emit(EventType.SUBAGENT_END, session, run, **ended)


def tool_end_payload(outcome: Outcome) -> dict[str, Any]:
    call = outcome.call
    payload: dict[str, Any] = {
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "kind": call.kind,
        "settledAs": outcome.settled_as,
        **outcome.extra,
    }
    if outcome.error_code:
        payload["errorCode"] = outcome.error_code
    if "error" in outcome.body:
        payload["error"] = PLACEHOLDER if call.private else outcome.body["error"]
    else:
        payload["result"] = PLACEHOLDER if call.private else outcome.body.get("text", outcome.body.get("value"))
    return payload


def _forget_ownership(tree: Tree, calls: Sequence[PendingCall]) -> None:
    for page in _pages([call.tool_call_id for call in calls if call.is_external]):
        CallOwnership.objects.filter(root_id=tree.root.id, tool_call_id__in=page).delete()


def open_calls(session: Session, run: Run | None = None) -> list[PendingCall]:
    """The session's open calls in recorded order, of one run or of all."""
    calls = PendingCall.objects.filter(session_id=session.id, state__in=CALL_OPEN)
    if run is not None:
        calls = calls.filter(run_id=run.id)
    return list(calls.order_by("seq"))
