"""Deliver one answer for one call: the door behind every door (5.C, 5.E, 5.F, R-323).

The order of refusals is the contract's. What costs time and needs no lock (the agent, the schema) is worked out
before the lock; its refusal waits for its turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix import conf, jsontext, schemas, selectors
from helix.agents import Agent, lookup
from helix.answers import Answer, Failure, Result, Verdict, check_result_size, scrubbed_error
from helix.errors import (
    AgentNotFound,
    ArgumentsChanged,
    CallNotExposed,
    Forbidden,
    HelixError,
    InvalidResult,
    RunSupersededError,
    UnknownToolCall,
    ValidationFailed,
)
from helix.models import CallTombstone, PendingCall, Run
from helix.policy import approval_policy
from helix.principals import Principal
from helix.rows.attempts import tried_again
from helix.rows.batch import after_an_answer, continuation_of
from helix.rows.calls import audit, store_answer
from helix.rows.delegations import owe_answer
from helix.rows.endings import settle_stop
from helix.rows.tree import Tree, locked
from helix.statuses import AnswerKind, CallKind, CallState, RemoteState, RunStatus

log = logging.getLogger("helix.submit")

ACCEPTED = "accepted"
ALREADY_COMPLETED = "already_completed"
LATE = "late_answer_after_timeout"


@dataclass(frozen=True)
class Submitted:
    """status: accepted, already_completed or late_answer_after_timeout. The first two carry a continuation (R-066)."""

    status: str
    continuation: dict[str, Any] | None = None

    def as_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"status": self.status}
        if self.continuation is not None:
            body["continuation"] = self.continuation
        return body


@tried_again
def submit_answer(
    *,
    principal: Principal,
    session_id: str,
    tool_call_id: str,
    answer: Answer,
    now: datetime,
    run_id: str | None = None,
    door: str = "python",
) -> Submitted:
    """Store the answer of a client or a reviewer, and queue what follows from it, in one transaction.

    session_id: the root's id, or the owner's alias for it. door: where it came in, for the audit row.
    Raises: the refusals of R-323 from step 5 on; nothing is stored then, but a recorded stop that nobody works on
    is resolved before it is answered (R-414).
    """
    check_result_size(answer)
    try:
        found = selectors.call_for(principal, session_id, tool_call_id)
    except UnknownToolCall as refusal:
        log.warning(
            "client_tool.submit_unknown",
            extra={"sessionId": session_id, "toolCallId": tool_call_id, "reason": refusal.why},
        )
        raise
    prepared = _Prepared(found, _scrubbed(answer))
    with locked(found.root_id, now) as tree:
        call = PendingCall.objects.select_related("session", "root").get(pk=found.pk)
        outcome = _decide(tree, call, prepared, principal, run_id, door)
    if isinstance(outcome, HelixError):
        raise outcome
    return outcome


def _decide(
    tree: Tree, call: PendingCall, prepared: _Prepared, principal: Principal, run_id: str | None, door: str
) -> Submitted | HelixError:
    """Steps 7 to 14 under the lock. A refusal is returned, so that a stop which was resolved on the way is kept."""
    run = tree.run(call.run_id)
    answer = prepared.answer
    over = _already_over(tree, call, prepared, principal)
    if over is not None:
        return over
    if run.stop_requested_at is not None:
        if run.stop_is_open and run.status != RunStatus.RUNNING and not run.is_over:
            settle_stop(tree, run)
        return _unknown(call, "run_stopped")
    answered = _already_answered(tree, call, run, prepared, principal)
    if answered is not None:
        return answered
    if call.state == CallState.HELD:
        return CallNotExposed("An earlier call has to be answered first.", toolCallId=call.tool_call_id)
    refusal = _refuse_binding(call, answer, principal, tree) or prepared.refusal
    if refusal is not None:
        return refusal
    if not _fence_holds(tree, call, run, run_id):
        return RunSupersededError("Another entry replaced the run of this call.", runId=str(run.id))
    _store(tree, call, prepared, principal, door)
    if call.session.is_remote:
        owe_answer(tree, call.session, call)
    continuation = after_an_answer(tree, tree.session(call.session_id))
    if continuation is not None:
        call.run_id = continuation.id
    return Submitted(ACCEPTED, continuation_of(tree, call))


# -- steps 7 to 9: what is over ----------------------------------------------------------------------------------------


def _already_over(
    tree: Tree, call: PendingCall, prepared: _Prepared, principal: Principal
) -> Submitted | HelixError | None:
    if call.state == CallState.DISCARDED:
        is_lost = call.session.is_remote and call.session.remote.state == RemoteState.LOST
        return _unknown(call, "owner_not_continuable" if is_lost else call.discard_reason)
    if call.state != CallState.CONSUMED:
        return None
    stone = CallTombstone.objects.filter(root_id=call.root_id, tool_call_id=call.tool_call_id).first()
    # Age is judged when it is read; whether the sweep has been here makes no difference (R-262a).
    if stone is None or tree.now >= stone.expires_at:
        return _unknown(call, "expired")
    if stone.settled_as == AnswerKind.TIMEOUT:
        return _keep_late_answer(tree, call, prepared, principal)
    return Submitted(ALREADY_COMPLETED, continuation_of(tree, call))


def _already_answered(
    tree: Tree, call: PendingCall, run: Run, prepared: _Prepared, principal: Principal
) -> Submitted | None:
    """A stored answer stands, but for a client call's timeout that nobody has consumed yet (R-065, R-271)."""
    if call.state not in (CallState.ANSWERED, CallState.EXECUTING):
        return None
    if call.answer_kind != AnswerKind.TIMEOUT:
        # Whoever asks again may have lost an answer on the way, and the worker its hint with it.
        tree.wake(run)
        return Submitted(ALREADY_COMPLETED, continuation_of(tree, call))
    if run.is_over or call.kind == CallKind.APPROVAL:
        # An ended run kept the timeout; an expired approval is not approved, whoever comes later.
        return _keep_late_answer(tree, call, prepared, principal)
    return None


def _keep_late_answer(tree: Tree, call: PendingCall, prepared: _Prepared, principal: Principal) -> Submitted:
    """Keep the first late answer that would have been accepted in time; the model gets one notice of it.

    R-272, R-273. The status is the same for every late answer; one of the wrong kind, by somebody who may not decide,
    or against the schema is not kept: it must not reach the model, nor take the place of a real one.
    """
    answer = prepared.answer
    if call.late_answered_at is None and not _is_refused(tree, call, prepared, principal):
        if isinstance(answer, Result):
            kept = answer.text
        elif isinstance(answer, Failure):
            kept = jsontext.dumps({"error": answer.error})
        else:
            kept = jsontext.dumps({"approved": answer.approved, "reason": answer.reason})
        call.late_answer_json = kept
        call.late_answered_at = tree.now
        call.save(update_fields=["late_answer_json", "late_answered_at"])
        if call.session.is_remote and call.kind == CallKind.CLIENT:
            owe_answer(tree, call.session, call)
    return Submitted(LATE)


def _is_refused(tree: Tree, call: PendingCall, prepared: _Prepared, principal: Principal) -> bool:
    refusal = _refuse_binding(call, prepared.answer, principal, tree) or prepared.refusal
    return isinstance(refusal, (ValidationFailed, InvalidResult, Forbidden, ArgumentsChanged))


def _unknown(call: PendingCall, reason: str | None) -> UnknownToolCall:
    return UnknownToolCall("There is no such open call.", toolCallId=call.tool_call_id, reason=reason)


# -- step 11: kind, approval id, right, digest -------------------------------------------------------------------------


def _is_of_kind(call: PendingCall, answer: Answer) -> bool:
    """An error alone fits both kinds (R-166); a result is a client's, a verdict a reviewer's (R-165, R-167)."""
    if isinstance(answer, Failure):
        return True
    return isinstance(answer, Verdict) == (call.kind == CallKind.APPROVAL)


def _refuse_binding(call: PendingCall, answer: Answer, principal: Principal, tree: Tree) -> HelixError | None:
    if not _is_of_kind(call, answer):
        return ValidationFailed("The answer is not of the call's kind.", toolCallId=call.tool_call_id, cause="kind")
    if not isinstance(answer, Verdict):
        return None
    if answer.approval_id != call.approval_id:
        return ValidationFailed("The approval id is not the call's.", toolCallId=call.tool_call_id, cause="approval_id")
    if not approval_policy().may_decide(principal, call):
        return Forbidden("You may not decide this call.", toolCallId=call.tool_call_id, cause="not_permitted")
    if call.forbid_self_approval and tree.run(call.emitted_by_id).started_by == principal.id:
        return Forbidden(
            "Whoever started the turn may not decide this call.", toolCallId=call.tool_call_id, cause="self_approval"
        )
    if answer.arguments_digest not in (None, call.arguments_digest):
        return ArgumentsChanged(
            "The arguments are not those that were shown.",
            toolCallId=call.tool_call_id,
            argumentsDigest=call.arguments_digest,
        )
    return None


# -- step 12: the agent, the schemas; worked out before the lock -------------------------------------------------------


class _Prepared:
    """The answer as it will be stored, and the refusal of step 12 if there is one."""

    def __init__(self, call: PendingCall, answer: Answer) -> None:
        self.answer = answer
        self.refusal: HelixError | None = None
        try:
            # The peer of a remote call resolves its own agent, and judges edits by a schema that is not known here.
            agent = None if call.session.is_remote else lookup(call.session.agent_type)
            if isinstance(answer, Result):
                self._check_result(call, answer)
            elif agent is not None and isinstance(answer, Verdict) and answer.approved:
                self._check_approval(agent, call, answer)
        except HelixError as refusal:
            self.refusal = refusal

    @staticmethod
    def _check_result(call: PendingCall, answer: Result) -> None:
        if call.output_schema is None or not conf.get("HELIX_VALIDATE_RESULTS"):
            return
        if schemas.first_violation(call.output_schema, answer.value) is None:
            return
        log.warning(
            "client_tool.validation_failed", extra={"toolName": call.tool_name, "toolCallId": call.tool_call_id}
        )
        fields: dict[str, Any] = {"toolName": call.tool_name, "toolCallId": call.tool_call_id}
        if conf.get("HELIX_VERBOSE_VALIDATION_ERRORS"):
            fields["issues"] = schemas.violations(call.output_schema, answer.value)
        raise InvalidResult("The result does not fit the tool's output schema.", **fields)

    @staticmethod
    def _check_approval(agent: Agent, call: PendingCall, answer: Verdict) -> None:
        """R-184: what was approved must still exist. R-177: edits obey the schema, whatever the agent opted out of."""
        tool = agent.tool(call.tool_name)
        if tool is None:
            raise AgentNotFound("The tool of this call is not registered any more.", toolCallId=call.tool_call_id)
        if answer.edited_arguments is None:
            return
        edited = jsontext.loads(answer.edited_arguments)
        if schemas.first_violation(tool.input_schema, edited) is None:
            return
        fields: dict[str, Any] = {"toolCallId": call.tool_call_id, "cause": "edited_arguments"}
        if conf.get("HELIX_VERBOSE_VALIDATION_ERRORS"):
            fields["issues"] = schemas.violations(tool.input_schema, edited)
        raise ValidationFailed("The edited arguments do not fit the tool's schema.", **fields)


def _scrubbed(answer: Answer) -> Answer:
    """The answer with its error as `HELIX_SCRUB` leaves it (R-390)."""
    return Failure(error=scrubbed_error(answer.error)) if isinstance(answer, Failure) else answer


# -- steps 13 and 14 ---------------------------------------------------------------------------------------------------


def _fence_holds(tree: Tree, call: PendingCall, run: Run, named: str | None) -> bool:
    """The call's run is the session's current one, and a named run is it or led to it by take-over (R-068)."""
    session = tree.session(call.session_id)
    if session.current_run_id != run.id or run.superseded_by_id is not None:
        return False
    return named is None or _leads_to(call, named)


def _leads_to(call: PendingCall, named: str) -> bool:
    if named in (str(call.run_id), str(call.emitted_by_id)):
        return True
    runs_of_session = dict(Run.objects.filter(session_id=call.session_id).values_list("id", "superseded_by_id"))
    step: Any = next((run_id for run_id in runs_of_session if str(run_id) == named), None)
    while step is not None and step != call.run_id:
        step = runs_of_session.get(step)
    return step is not None


def _store(tree: Tree, call: PendingCall, prepared: _Prepared, principal: Principal, door: str) -> None:
    answer = prepared.answer
    before = {"argumentsJson": call.arguments_json}
    if isinstance(answer, Result):
        store_answer(
            tree, call, AnswerKind.RESULT, outcome="result", answer_json=answer.text, answer_error=None, error_code=None
        )
        audit(tree, call, "submit", principal, door=door)
    elif isinstance(answer, Failure):
        code = "not_executed" if call.kind == CallKind.APPROVAL else None
        store_answer(
            tree, call, AnswerKind.ERROR, outcome="error", answer_error=answer.error, answer_json=None, error_code=code
        )
        audit(tree, call, "submit_error", principal, door=door)
    elif not answer.approved:
        store_answer(
            tree,
            call,
            AnswerKind.DENIED,
            outcome="denied",
            answer_json=jsontext.dumps({"reason": answer.reason}),
            error_code="approval_denied",
        )
        audit(tree, call, "deny", principal, door=door, before=before, after={"reason": answer.reason})
    else:
        edited = answer.edited_arguments
        store_answer(
            tree,
            call,
            AnswerKind.APPROVED if edited is None else AnswerKind.APPROVED_EDITED,
            outcome="approved",
            answer_json=jsontext.dumps({"reason": answer.reason}),
            edited_arguments_json=edited,
        )
        after = {"argumentsJson": edited or call.arguments_json, "reason": answer.reason}
        audit(
            tree,
            call,
            "approve" if edited is None else "approve_edited",
            principal,
            door=door,
            before=before,
            after=after,
        )
        log.debug("approval.decided", extra={"toolCallId": call.tool_call_id, "approved": True})
    log.debug(
        "client_tool.submitted",
        extra={
            "sessionId": str(tree.root.id),
            "toolCallId": call.tool_call_id,
            "hasError": isinstance(answer, Failure),
        },
    )
