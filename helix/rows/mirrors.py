"""Mirrors: a remote child's open calls as rows of this tree (R-201, P-17).

A mirror is an ordinary external call of the stand-in session: exposed, answered and audited like any other. What is
different stands in its ownership row, which leads to the peer. It has no deadline of its own: the peer's governs and is
shown. ``provider_call_id`` is the call's id at the peer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from helix import jsontext
from helix.models import CallOwnership, PendingCall, RemoteChild, Run, Session
from helix.peers import PeerCall, PeerClosing
from helix.rows.calls import Outcome, consume, discard, expose, move_call, on_wire, readable, store_answer
from helix.rows.outcomes import outcome_of
from helix.rows.tree import Tree
from helix.schemas import schema_digest
from helix.statuses import ANSWER_APPROVALS, AnswerKind, CallKind, CallState, DiscardReason, EventType


def open_mirrors(
    tree: Tree, session: Session, run: Run, child: RemoteChild, listed: Iterable[PeerCall], *, retention_ms: int
) -> list[PendingCall]:
    """Register and expose what the peer lists and this tree has not seen; returns the new rows.

    A call that was seen is never opened again by a reading: the reading may be older than the answer. Of an open one
    a changed deadline is taken over.
    """
    seen = {call.provider_call_id: call for call in PendingCall.objects.filter(session_id=session.id)}
    new = []
    for one in listed:
        known = seen.get(one.tool_call_id)
        if known is None:
            new.append((one, _row(tree, session, run, one, retention_ms)))
        elif known.state in (CallState.HELD, CallState.AWAITING):
            _take_deadline(tree, session, run, known, one)
    if not new:
        return []
    _mint_known_ids(tree, [row for _, row in new])
    rows = PendingCall.objects.bulk_create([row for _, row in new], batch_size=500)
    CallOwnership.objects.bulk_create(
        [
            CallOwnership(
                root_id=tree.root.id,
                tool_call_id=row.tool_call_id,
                remote_url=session.remote_url,
                remote_session_id=child.named,
                remote_tool_call_id=one.tool_call_id,
                remote_approval_id=one.approval_id,
                remote_deadline_at=one.deadline_at,
                delegation_id=child.delegation_id,
                created_at=tree.now,
            )
            for one, row in new
        ],
        batch_size=500,
    )
    expose(tree, session)
    return rows


def take_in(tree: Tree, session: Session, run: Run, call: PendingCall) -> None:
    """The peer has the answer: the mirror is consumed, and a repeat is recognised by its tombstone (P-06)."""
    if call.answer_kind in ANSWER_APPROVALS:
        # The body runs at the peer, and its result stays there.
        outcome = Outcome(call, AnswerKind(call.answer_kind), {"value": None})
    else:
        outcome = outcome_of(session, call)
    consume(tree, session, run, [outcome])


def close_mirror(tree: Tree, session: Session, run: Run, call: PendingCall, closing: PeerClosing | None) -> None:
    """The peer closed the call without an answer from here: it is closed in the same way, then the next is shown."""
    if closing is not None and closing.answer_kind in AnswerKind.values:
        kind = AnswerKind(closing.answer_kind)
        code = "client_tool_timeout" if kind == AnswerKind.TIMEOUT else None
        body: dict[str, Any] = {"value": None} if code is None else {"error": readable(session, code, call.kind)}
        store_answer(tree, call, kind, outcome=str(kind), error_code=code)
        consume(tree, session, run, [Outcome(call, kind, body, error_code=code, extra={"closedBy": "peer"})])
    else:
        said = (closing.reason if closing is not None else None) or ""
        known = said in DiscardReason.values
        discard(tree, session, run, [call], DiscardReason(said) if known else DiscardReason.RUN_FAILED)
    expose(tree)


def reopen(tree: Tree, session: Session, run: Run, call: PendingCall, refusal: dict[str, Any]) -> None:
    """P-17: the peer refused the answer, typed; the call is pending again and its readers are told why (R-140)."""
    move_call(
        call,
        CallState.AWAITING,
        answer_kind=None,
        answer_json=None,
        answer_error=None,
        error_code=None,
        answered_at=None,
        edited_arguments_json=None,
    )
    tree.emit(
        EventType.CALL_REOPENED,
        session,
        run,
        toolCallId=call.tool_call_id,
        toolName=call.tool_name,
        kind=call.kind,
        refusal=refusal,
    )
    tree.changed(session)


def _row(tree: Tree, session: Session, run: Run, one: PeerCall, retention_ms: int) -> PendingCall:
    tree.root.call_sequence += 1
    return PendingCall(
        root_id=tree.root.id,
        session_id=session.id,
        run_id=run.id,
        emitted_by_id=run.id,
        tool_call_id=one.tool_call_id,
        provider_call_id=one.tool_call_id,
        tool_name=one.tool_name,
        kind=one.kind,
        step_id=str(run.id),
        seq=tree.root.call_sequence,
        arguments_json=one.arguments_json,
        arguments=_parsed(one.arguments_json),
        arguments_digest=jsontext.digest(one.arguments_json),
        state=CallState.HELD,
        wait_from="peer",
        retention_ms=retention_ms,
        output_schema=one.output_schema,
        schema_digest=schema_digest(one.output_schema) if one.output_schema else "",
        created_at=tree.now,
    )


def _parsed(text: str) -> Any:
    try:
        return jsontext.loads(text, unique_keys=False)
    except jsontext.JsonRefused:
        return None


def _mint_known_ids(tree: Tree, rows: Sequence[PendingCall]) -> None:
    """Two servers may give two calls the same id; here each has its own (R-052, R-161)."""
    named = [row.tool_call_id for row in rows]
    known = set(
        PendingCall.objects.filter(root_id=tree.root.id, tool_call_id__in=named).values_list("tool_call_id", flat=True)
    )
    for row in rows:
        if row.tool_call_id in known:
            row.tool_call_id = f"call_{uuid4().hex}"
        known.add(row.tool_call_id)
        if row.kind == CallKind.APPROVAL:
            row.approval_id = f"{row.run_id}::{row.tool_call_id}"


def _take_deadline(tree: Tree, session: Session, run: Run, call: PendingCall, one: PeerCall) -> None:
    moved = (
        CallOwnership.objects.filter(root_id=tree.root.id, tool_call_id=call.tool_call_id)
        .exclude(remote_deadline_at=one.deadline_at)
        .update(remote_deadline_at=one.deadline_at)
    )
    if moved and call.state == CallState.AWAITING:
        tree.emit(
            EventType.DEADLINE_CHANGED,
            session,
            run,
            toolCallId=call.tool_call_id,
            deadlineAt=on_wire(one.deadline_at),
        )
