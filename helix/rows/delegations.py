"""What is owed to the peer of a remote child, and how the child ends here (R-202, R-203, R-211, R-214).

A debt is a row of the transaction that caused it: an answer with the stored answer, a stop with the recorded stop. It
says what is owed and to whom; what is sent is read from the rows when it is sent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from helix import conf, nudges
from helix.models import PendingCall, RemoteChild, RemoteDebt, Run, Session
from helix.rows import runs
from helix.rows.tree import Tree
from helix.statuses import DebtKind, DebtState, RemoteState, RunCause, RunStatus, StopKind


def owe_answer(tree: Tree, session: Session, call: PendingCall) -> RemoteDebt:
    """The answer that the call now holds is owed to the session's peer; an answer after a refusal renews the debt."""
    child = RemoteChild.objects.get(session_id=session.id)
    payload = {"toolCallId": call.provider_call_id}
    return _owe(tree, DebtKind.ANSWER, session, child, due=tree.now, call=call, payload=payload)


def owe_stop(tree: Tree, session: Session, kind: StopKind, reason: str) -> None:
    """The child is over here; its peer is owed the stop, unless nobody ever asked it to begin.

    The debt outlives the conversation: it bears no call, and names whose declaration knows the peer.
    """
    child = RemoteChild.objects.get(session_id=session.id)
    if child.is_over and child.state != RemoteState.LOST:
        return
    was_asked = child.last_attempt_at is not None
    # A start that is on its way is over by then: a stop that overtook it would find nothing to stop.
    due = max(tree.now, child.next_attempt_at) if child.state == RemoteState.STARTING else tree.now
    if not child.is_over:
        end_child(child, RemoteState.ENDED)
    if not was_asked:
        return
    payload = {"sessionId": child.named, "stop": str(kind), "reason": reason, **_declared_by(tree, session)}
    _owe(tree, DebtKind.STOP, session, child, due=due, call=None, payload=payload)


def owe_stop_again(tree: Tree, child: RemoteChild) -> None:
    """The child began at the peer after it was stopped here: whatever came of the stop, it is due now."""
    debts = RemoteDebt.objects.filter(kind=DebtKind.STOP, delegation_id=child.delegation_id, call=None)
    if debts.update(state=DebtState.OWED, next_attempt_at=tree.now):
        nudges.nudge_relay()


def end_child(child: RemoteChild, state: RemoteState, error: str = "") -> None:
    """Nobody asks the peer how this child stands any more."""
    child.state = state
    child.last_error = error
    child.save(update_fields=["state", "last_error"])


def last_run(tree: Tree, session: Session) -> Run:
    """The run that ends a child which its peer completed: a suspended run never completes by itself (4.1)."""
    run = tree.run(session.current_run_id)  # type: ignore[arg-type]
    new = runs.start_run(
        tree,
        session,
        cause=RunCause.CONTINUATION,
        started_by=run.started_by,
        continues=run,
        same_turn=True,
        status=RunStatus.RUNNING,
    )
    runs.update_run(new, started_at=tree.now)
    runs.take_over_calls(tree, run, new)
    return new


def _owe(
    tree: Tree,
    kind: DebtKind,
    session: Session,
    child: RemoteChild,
    *,
    due: datetime,
    call: PendingCall | None,
    payload: dict[str, Any],
) -> RemoteDebt:
    debt, _ = RemoteDebt.objects.update_or_create(
        kind=kind,
        delegation_id=child.delegation_id,
        call=call,
        defaults={
            "url": session.remote_url or "",
            "payload": payload,
            "state": DebtState.OWED,
            "attempts": 0,
            "next_attempt_at": due,
            "window_ends_at": tree.now + timedelta(seconds=conf.get("HELIX_REMOTE_DEBT_WINDOW_SECONDS")),
            "last_error": "",
        },
    )
    nudges.nudge_relay()
    return debt


def _declared_by(tree: Tree, session: Session) -> dict[str, str]:
    """Whose tool leads to the peer: its declaration holds the address and the credentials, and no row does."""
    call = PendingCall.objects.only("tool_name", "session_id").get(child=session)
    return {"agentType": tree.session(call.session_id).agent_type, "toolName": call.tool_name}
