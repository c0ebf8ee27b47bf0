"""Pay what a peer is owed: the answer of one of its calls, or the stop of a child (R-140, R-203, R-214).

A debt is tried with growing pauses until the peer takes it, refuses it for good, or the window ends. What is sent is
read from the rows as they are then; an answer that nobody needs any more is settled without a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from helix import clock as clocks
from helix import jsontext, nudges
from helix.models import CallOwnership, PendingCall, RemoteChild, RemoteDebt, Session
from helix.peers import PeerClosing, PeerRefused, PeerUnreachable, RemoteSubAgentClientToolUnsupportedError
from helix.rows import mirrors
from helix.rows.attempts import tried_again
from helix.rows.tree import Tree, locked
from helix.services.relay.children import fail_incapable
from helix.services.relay.declared import declared
from helix.services.relay.pauses import ERRAND, LONGEST_DEBT, pause
from helix.statuses import ANSWER_APPROVALS, AnswerKind, CallKind, CallState, DebtKind, DebtState

log = logging.getLogger("helix.relay")

# Another answer may be taken where this one was not: the mirror is opened again.
REOPENING = (400, 403, 413, 422)
ARGUMENTS_CHANGED = "state_arguments_changed"


@dataclass(frozen=True)
class Owed:
    """One debt on its way. ``answer``: the body of the submit; None for a stop."""

    debt: RemoteDebt
    agent_type: str
    tool_name: str
    named: str
    answer: dict[str, Any] | None = None
    root_id: UUID | None = None


def pay_debt(debt_id: int, *, clock: Callable[[], datetime] = clocks.utc_now) -> bool:
    """Take the debt, hand it on, record what the peer said. False: not due, paid, or another worker's."""
    owed = _take(debt_id, clock())
    if owed is None:
        return False
    try:
        _pay(owed, clock)
    except Session.DoesNotExist:
        log.info("relay.conversation_gone", extra={"delegationId": owed.debt.delegation_id})
    return True


def _pay(owed: Owed, clock: Callable[[], datetime]) -> None:
    try:
        _send(owed, clock)
    except PeerUnreachable as silence:
        _record_failure(owed, str(silence), {"code": "peer_unreachable", "error": str(silence)}, clock())
    except PeerRefused as refusal:
        _record_refusal(owed, refusal, clock())
    except RemoteSubAgentClientToolUnsupportedError as incapable:
        _settle(owed, str(incapable))
        if owed.root_id is not None and owed.debt.call is not None:
            fail_incapable(owed.root_id, owed.debt.call.session_id, str(incapable), clock())


def _send(owed: Owed, clock: Callable[[], datetime]) -> None:
    peer = declared(owed.agent_type, owed.tool_name).peer()
    if owed.answer is not None:
        peer.submit(owed.named, owed.answer)
        _record_taken(owed, clock())
        return
    stop = owed.debt.payload
    found = peer.stop(
        owed.named, kind=stop["stop"], delegation_id=owed.debt.delegation_id, reason=str(stop.get("reason") or "")
    )
    _settle(owed, "" if found else "there was nothing to stop")


@tried_again
@transaction.atomic(durable=True)
def _take(debt_id: int, now: datetime) -> Owed | None:
    due = RemoteDebt.objects.filter(pk=debt_id, state=DebtState.OWED, next_attempt_at__lte=now)
    debt = due.select_related("call__session__parent_call__session", "call__session__remote").first()
    if debt is None:
        return None
    if debt.kind == DebtKind.STOP:
        stop = debt.payload
        owed = Owed(debt, stop["agentType"], stop["toolName"], stop["sessionId"])
    else:
        found = _owed_answer(debt)
        if found is None:
            due.update(state=DebtState.SETTLED, last_error="nobody needs it any more")
            return None
        owed = found
    debt.attempts += 1
    return owed if due.update(next_attempt_at=now + ERRAND, attempts=debt.attempts) else None


def _owed_answer(debt: RemoteDebt) -> Owed | None:
    """The answer as the call holds it now; None when the call was stopped, lost or closed by the peer meanwhile."""
    call = debt.call
    if call is None or call.session.parent_call is None:
        return None
    if call.state == CallState.ANSWERED:
        answer = _stored_answer(call)
    elif call.state == CallState.CONSUMED and call.late_answer_json is not None:
        # The peer's model is told of it in the same words, whether it is a result or an error.
        answer = {"result": jsontext.loads(call.late_answer_json)}
    else:
        return None
    delegating = call.session.parent_call
    return Owed(
        debt,
        delegating.session.agent_type,
        delegating.tool_name,
        call.session.remote.named,
        {"toolCallId": call.provider_call_id, **answer},
        call.root_id,
    )


def _stored_answer(call: PendingCall) -> dict[str, Any]:
    if call.answer_kind == AnswerKind.RESULT:
        return {"result": jsontext.loads(call.answer_json or "null")}
    if call.kind == CallKind.CLIENT or call.answer_kind == AnswerKind.ERROR:
        return {"error": call.answer_error if call.answer_error is not None else call.error_code}
    said = jsontext.loads(call.answer_json or "{}") or {}
    verdict: dict[str, Any] = {
        "kind": "approval-response",
        "approvalId": _approval_id_at_peer(call),
        "approved": call.answer_kind in ANSWER_APPROVALS,
        # The peer holds the verdict to the arguments that were shown here.
        "argumentsDigest": call.arguments_digest,
    }
    if said.get("reason") is not None:
        verdict["reason"] = said["reason"]
    if call.edited_arguments_json is not None:
        verdict["editedArguments"] = jsontext.loads(call.edited_arguments_json)
    return verdict


def _approval_id_at_peer(call: PendingCall) -> str | None:
    owned = CallOwnership.objects.filter(root_id=call.root_id, tool_call_id=call.tool_call_id)
    return owned.values_list("remote_approval_id", flat=True).first()


# -- what the peer said ------------------------------------------------------------------------------------------------


def _record_refusal(owed: Owed, refusal: PeerRefused, now: datetime) -> None:
    is_answer = owed.answer is not None
    if is_answer and refusal.code == "unknown_tool_call":
        _record_closed(owed, refusal, now)
    elif is_answer and not refusal.may_pass and (refusal.status in REOPENING or refusal.code == ARGUMENTS_CHANGED):
        _record_reopened(owed, DebtState.SETTLED, refusal.code, refusal.body, now)
    else:
        _record_failure(owed, refusal.code, refusal.body, now)


def _record_failure(owed: Owed, why: str, told: dict[str, Any], now: datetime) -> None:
    """Try again after a pause, or give up at the end of the window: a call then waits for another answer."""
    debt = owed.debt
    if now < debt.window_ends_at:
        _try_later(debt, why, now)
        return
    if owed.answer is None:
        _settle(owed, why, DebtState.GIVEN_UP)
    else:
        _record_reopened(owed, DebtState.GIVEN_UP, why, told, now)
    log.error("debt.given_up", extra={"kind": debt.kind, "delegationId": debt.delegation_id, "attempts": debt.attempts})


@contextmanager
def _locked_call(owed: Owed, now: datetime) -> Iterator[tuple[Tree, Session, PendingCall | None]]:
    """The tree of the answered call under its lock; no call when it holds another answer by now."""
    if owed.root_id is None or owed.debt.call is None:
        raise LookupError("a stop has no call")
    with locked(owed.root_id, now) as tree:
        call = PendingCall.objects.get(pk=owed.debt.call.pk)
        yield tree, tree.session(call.session_id), call if call.answered_at == owed.debt.call.answered_at else None


@tried_again
def _record_taken(owed: Owed, now: datetime) -> None:
    """accepted, already completed or late: the answer is the peer's now, and its child is read next."""
    with _locked_call(owed, now) as (tree, session, call):
        if call is None:
            return
        _close(owed.debt, DebtState.SETTLED)
        if call.state == CallState.ANSWERED:
            mirrors.take_in(tree, session, tree.run(call.run_id), call)
        RemoteChild.objects.filter(pk=session.id, next_attempt_at__gt=now).update(next_attempt_at=now, quiet_attempts=0)
        nudges.nudge_relay()


@tried_again
def _record_closed(owed: Owed, refusal: PeerRefused, now: datetime) -> None:
    """R-140: the call is not open at the peer; it is closed here as the peer closed it."""
    reason = refusal.body.get("reason")
    with _locked_call(owed, now) as (tree, session, call):
        if call is None:
            return
        _close(owed.debt, DebtState.SETTLED, refusal.code)
        if call.state == CallState.ANSWERED:
            closing = PeerClosing(None, reason if isinstance(reason, str) else None)
            mirrors.close_mirror(tree, session, tree.run(call.run_id), call, closing)


@tried_again
def _record_reopened(owed: Owed, state: DebtState, why: str, told: dict[str, Any], now: datetime) -> None:
    """P-17: the refusal is final for this answer and not for the call."""
    with _locked_call(owed, now) as (tree, session, call):
        if call is None:
            return
        _close(owed.debt, state, why)
        if call.state == CallState.ANSWERED:
            mirrors.reopen(tree, session, tree.run(call.run_id), call, told)


@tried_again
@transaction.atomic(durable=True)
def _try_later(debt: RemoteDebt, why: str, now: datetime) -> None:
    due = min(now + pause(debt.attempts - 1, LONGEST_DEBT), debt.window_ends_at)
    RemoteDebt.objects.filter(pk=debt.pk, state=DebtState.OWED).update(next_attempt_at=due, last_error=why)


@tried_again
@transaction.atomic(durable=True)
def _settle(owed: Owed, why: str, state: DebtState = DebtState.SETTLED) -> None:
    _close(owed.debt, state, why)


def _close(debt: RemoteDebt, state: DebtState, why: str = "") -> None:
    RemoteDebt.objects.filter(pk=debt.pk, state=DebtState.OWED).update(state=state, last_error=why)
