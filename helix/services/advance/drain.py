"""Turn the stored answers of a batch into tool results, all in one commit (R-137, X-14).

Hooks see the results before, outside any transaction; when an answer changed meanwhile (a real one replaced a stored
timeout, R-271) the drain starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from helix.agents import Agent
from helix.models import PendingCall, Run, Session
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.calls import Outcome, consume, readable
from helix.rows.checkpoints import write_checkpoint
from helix.rows.log import append_message
from helix.rows.outcomes import outcome_of
from helix.rows.tree import locked
from helix.services.advance.claim import Claim
from helix.services.advance.hooks import body_told, call_told, fire, has_hooks
from helix.statuses import (
    CALL_EXTERNAL,
    AnswerKind,
    CallKind,
    CallState,
    Role,
)

Clock = Callable[[], datetime]
# By call: the version of the answer that the hooks saw, and the error text that one of them put in its place.
Heard = dict[Any, tuple[Any, str | None]]


def drain(claim: Claim, agent: Agent, clock: Clock) -> None:
    """Write the results of every answered call of the run, then the message that waited behind them (R-173).

    Raises: `LostFence`, `StopSeen`.
    """
    listened = has_hooks(agent, "after_tool", "message")
    while not _record(claim, _ask_hooks(claim, agent) if listened else {}, clock()):
        pass


@tried_again
def _record(claim: Claim, heard: Heard, now: datetime) -> bool:
    """Write the results with what the hooks said of them. False: an answer changed since they were asked."""
    with locked(claim.root_id, now) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        session = tree.session(claim.session_id)
        calls = _answered(run)
        if heard and any(heard.get(call.pk, (None, None))[0] != _version(call) for call in calls):
            return False
        outcomes = [_with_text(outcome_of(session, call), heard.get(call.pk)) for call in calls]
        outcomes += [_deferred(session, call) for call in _deferred_finish(run)]
        outcomes.sort(key=lambda outcome: outcome.call.seq)
        consume(tree, session, run, outcomes)
        write_checkpoint(tree, session, run)
        if run.entry_message:
            append_message(tree, session, run, Role.USER, run.entry_message)
            runs.update_run(run, entry_message=None)
        return True


def _answered(run: Run) -> list[PendingCall]:
    return list(
        PendingCall.objects.filter(
            session_id=run.session_id, run_id=run.id, state=CallState.ANSWERED, kind__in=CALL_EXTERNAL
        ).order_by("seq")
    )


def _deferred_finish(run: Run) -> Sequence[PendingCall]:
    """A finish call that stood beside external calls (R-045): the only server call that is still held here."""
    held = PendingCall.objects.filter(session_id=run.session_id, run_id=run.id, state=CallState.HELD)
    return list(held.filter(kind=CallKind.SERVER))


def _deferred(session: Session, call: PendingCall) -> Outcome:
    text = readable(session, "not_executed", call.kind)
    return Outcome(call, AnswerKind.ERROR, {"error": text}, error_code="not_executed")


def _version(call: PendingCall) -> Any:
    return (call.answer_kind, call.answered_at)


def _ask_hooks(claim: Claim, agent: Agent) -> Heard:
    """What the hooks say of each stored answer: its version when they saw it, and a replaced error text (R-653)."""
    run = Run.objects.select_related("session").get(pk=claim.run_id)
    heard: Heard = {}
    for call in _answered(run):
        outcome = outcome_of(run.session, call)
        told = call_told(call, **body_told(outcome.body, outcome.error_code))
        texts = [answer for answer in fire(agent, "after_tool", told) if isinstance(answer, str)]
        fire(agent, "message", told)
        heard[call.pk] = (_version(call), texts[-1] if texts else None)
    return heard


def _with_text(outcome: Outcome, heard: tuple[Any, str | None] | None) -> Outcome:
    text = heard[1] if heard else None
    if text is None or "error" not in outcome.body:
        return outcome
    return Outcome(outcome.call, outcome.settled_as, {"error": text}, outcome.error_code, outcome.note, outcome.extra)
