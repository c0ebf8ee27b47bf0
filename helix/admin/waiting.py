"""What a run, a call or a debt waits for, as a sentence drawn from its row (R-667, B-32).

Sentences name ids, people, instants and codes, never arguments or results: they may be logged and pasted (R-389).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from helix.models import CallOwnership, PendingCall, RemoteDebt, Run, RunLease, Session
from helix.statuses import (
    RUN_CLAIMABLE,
    RUN_FINAL,
    CallKind,
    CallState,
    DebtState,
    RunStatus,
)

NOTHING = "nothing"


def instant(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def run_waits_for(
    run: Run, lease: RunLease | None, open_calls: Sequence[PendingCall], session: Session, now: datetime
) -> str:
    """open_calls: those that this run has to see closed."""
    if run.status in RUN_FINAL:
        return f"{NOTHING}: it is {run.status}" + (f" ({run.error_code})" if run.error_code else "")
    if run.superseded_by_id is not None:
        return f"{NOTHING}: run {run.superseded_by_id} took over"
    if run.status == RunStatus.RUNNING:
        return _running(run, lease, open_calls, now)
    if run.stop_is_open:
        return f"whoever comes next, to settle {_stop(run)}"
    if run.status in RUN_CLAIMABLE:
        if run.next_attempt_at > now:
            return f"its next attempt at {instant(run.next_attempt_at)}"
        return f"a free worker, since {instant(run.next_attempt_at)}"
    return _paused(open_calls, session)


def _stop(run: Run) -> str:
    since = f" ({instant(run.stop_requested_at)})" if run.stop_requested_at else ""
    return f"the {run.stop_kind} of {run.stop_requested_by}{since}"


def _running(run: Run, lease: RunLease | None, open_calls: Sequence[PendingCall], now: datetime) -> str:
    if lease is None or lease.expires_at <= now:
        lost = f": the lease of {lease.holder} ended {instant(lease.expires_at)}" if lease else ": it has no lease"
        return f"another worker to take it over{lost}"
    held = f"worker {lease.holder} (epoch {run.epoch}, lease until {instant(lease.expires_at)})"
    if run.stop_is_open:
        return f"{held} to honour {_stop(run)}"
    bodies = [call for call in open_calls if call.state == CallState.EXECUTING and call.kind != CallKind.SUBAGENT]
    doing = f"the body of {bodies[0].tool_name} {bodies[0].tool_call_id}" if bodies else "the model"
    return f"{doing}, at {held}"


def _paused(open_calls: Sequence[PendingCall], session: Session) -> str:
    outside = [call for call in open_calls if call.state == CallState.AWAITING]
    held = [call for call in open_calls if call.state == CallState.HELD]
    children = [call for call in open_calls if call.state == CallState.EXECUTING]
    owed = []
    if outside:
        owed.append(f"{_counted(len(outside), 'answer')} from outside")
    if held:
        owed.append(f"{_counted(len(held), 'call')} not shown yet")
    if children:
        owed.append(_counted(len(children), "sub-agent"))
    if owed:
        return ", ".join(owed)
    if session.is_remote:
        return f"its peer {session.remote_url}, which computes"
    if not session.continue_on_submit:
        return "its caller, who resumes (continue_on_submit is off)"
    return "nobody: every call is answered and no continuation is queued, which should not be"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def call_waits_for(
    call: PendingCall,
    *,
    run: Run | None,
    owner: str,
    remote: CallOwnership | None,
    child_id: UUID | None,
    now: datetime,
    deadlines_are_judged: bool,
) -> str:
    """owner: who the conversation belongs to.  remote: the peer that owns the call.  child_id: the sub-agent's session.

    deadlines_are_judged: False after an outage, until the sweep has shifted the open deadlines (R-242).
    """
    if call.state == CallState.CONSUMED:
        return f"{NOTHING}: consumed as {call.answer_kind}"
    if call.state == CallState.DISCARDED:
        return f"{NOTHING}: discarded, {call.discard_reason}"
    if call.state == CallState.ANSWERED and remote is not None:
        return f"{remote.remote_url} to take its {call.answer_kind}"
    if call.state == CallState.ANSWERED:
        return f"run {run.number if run else '?'} to take its {call.answer_kind} in"
    if call.state == CallState.EXECUTING:
        if call.kind == CallKind.SUBAGENT:
            return f"sub-agent session {child_id}" if child_id else "a remote sub-agent"
        since = f" since {instant(call.body_started_at)}" if call.body_started_at else ""
        return f"its body, attempt {call.body_attempts}{since}"
    if call.state == CallState.HELD:
        if call.is_external:
            return "its turn: it is shown when the run suspends or an earlier call is closed"
        return "its run to begin it"
    return f"{_whom(call, owner, remote)}, {_until(call, now, deadlines_are_judged)}"


def _whom(call: PendingCall, owner: str, remote: CallOwnership | None) -> str:
    kind = "a reviewer's verdict" if call.kind == CallKind.APPROVAL else f"a client of {owner}"
    if remote is not None:
        return f"{kind}, on behalf of {remote.remote_url}"
    return f"{kind}, claimed by {call.claimed_by}" if call.claimed_by else kind


def _until(call: PendingCall, now: datetime, judged: bool) -> str:
    if call.deadline_at is None:
        return "without deadline"
    if call.deadline_at > now:
        return f"until {instant(call.deadline_at)}"
    overdue = f"overdue since {instant(call.deadline_at)}"
    return overdue if judged else f"{overdue}; nobody lapses it before the deadline sweep has run"


def debt_waits_for(debt: RemoteDebt) -> str:
    if debt.state != DebtState.OWED:
        return f"{NOTHING}: {debt.state}"
    failure = f"; last failure: {debt.last_error}" if debt.last_error else ""
    return (
        f"{debt.url} to take the {debt.kind}, attempt {debt.attempts + 1} at {instant(debt.next_attempt_at)},"
        f" given up {instant(debt.window_ends_at)}{failure}"
    )
