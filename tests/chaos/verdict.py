"""What must hold when the storm is over, read from the rows, the ledger and what the clients saw.

Every finding is one line that names its conversation; no finding is the promise kept. Counts say how much was at
stake: a storm in which nothing was lost has proven little.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from helix import jsontext, wire
from helix.models import Message, PendingCall, Run, RunLease, Session, StreamEvent
from helix.statuses import (
    ANSWER_APPROVALS,
    RUN_LIVE,
    SESSION_BUSY,
    AnswerKind,
    CallKind,
    CallState,
    EventType,
    Role,
    RunStatus,
    SessionStatus,
)
from tests.chaos.client import Conversation, Submit
from tests.chaos.company import Company
from tests.chaos.ledger import Body, read
from tests.chaos.plans import Given
from tests.kit.invariants import check_invariants

Part = Mapping[str, object]

MOST_SAFE_BODIES = 3
# A cut of the database that a body met came before it could be recorded, on however slow a machine.
CUT_SECONDS = 30.0
GIVEN_KINDS = (AnswerKind.RESULT, AnswerKind.ERROR, AnswerKind.DENIED, *ANSWER_APPROVALS)
# How a result row may differ from the accepted answer: the run was stopped, or the body's worker lost, on the way.
STOPPED = ("run_stopped", "aborted")
LOST = "interrupted"
# What was approved below a sub-agent and waits for others there goes with the sub-agent, and never runs.
GIVEN_UP = "client_tool_abandoned"
# What a run may fail of here: a client's abort, or a worker killed too often under it.
EXPECTED_FAILURES = ("framework_cancelled", "framework_auto_resume_exhausted")


class Verdict:
    """``findings``: what must not be.  ``counts``: what there was."""

    def __init__(self, company: Company, conversations: Sequence[Conversation]) -> None:
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self._company = company
        self._conversations = conversations
        self._begun = read(company.ledger)

    def judge(self) -> None:
        for conversation in self._conversations:
            judged = self._about(conversation)
            self.findings += [f"{conversation.plan.name} ({conversation.root_id}): {finding}" for finding in judged]
        self.findings += self._of_all()

    def _of_all(self) -> Iterator[str]:
        yield from self._company.deserted
        roots = Session.objects.filter(parent=None)
        self.counts.update(f"conversations {status}" for status in roots.values_list("status", flat=True))
        self.counts["runs"] = Run.objects.count()
        self.counts["continuations"] = Run.objects.filter(cause="continuation").count()
        self.counts["events"] = StreamEvent.objects.count()
        for lease in RunLease.objects.all():
            yield f"run {lease.run_id} still has a lease"
        known = set(PendingCall.objects.values_list("tool_call_id", flat=True))
        for call_id in self._begun.keys() - known:
            yield f"a body ran for {call_id}, which no row knows"
        if roots.count() != len(self._conversations):
            yield f"{roots.count()} conversations in the rows, {len(self._conversations)} were begun"

    def _about(self, conversation: Conversation) -> Iterator[str]:
        root = Session.objects.get(client_id=conversation.plan.name)
        conversation.root_id = str(root.id)
        yield from self._of_status(root)
        yield from self._of_stream(root, conversation)
        by_call: dict[str, list[Submit]] = defaultdict(list)
        for submit in conversation.submits:
            by_call[submit.call_id].append(submit)
        results: dict[str | None, list[Message]] = defaultdict(list)
        for message in Message.objects.filter(session__root_id=root.id, role=Role.TOOL):
            results[message.tool_call_id].append(message)
        for call in PendingCall.objects.filter(root_id=root.id).select_related("run", "session"):
            self.counts[f"{call.kind} calls"] += 1
            for finding in self._of_call(call, by_call[call.tool_call_id], results[call.tool_call_id]):
                yield f"{call.kind} {call.tool_name} {call.tool_call_id}: {finding}"

    # -- at rest, and nobody stuck ---------------------------------------------------------------------------------

    def _of_status(self, root: Session) -> Iterator[str]:
        if root.status in SESSION_BUSY and root.status != SessionStatus.AWAITING_CLIENT_TOOL:
            yield f"is still {root.status}"
        for run in Run.objects.filter(session__root_id=root.id):
            if run.status in RUN_LIVE:
                yield f"{run} is still {run.status}"
            if run.status == RunStatus.FAILED:
                self.counts[f"runs failed with {run.error_code}"] += 1
                if run.error_code not in EXPECTED_FAILURES:
                    yield f"{run} failed: {run.error_detail}"
        try:
            check_invariants(root.id)
        except AssertionError as broken:
            yield f"D-14: {broken}"

    # -- what clients read is what the rows say --------------------------------------------------------------------

    def _of_stream(self, root: Session, conversation: Conversation) -> Iterator[str]:
        rows = StreamEvent.objects.filter(root_id=root.id).order_by("sequence")
        stored = {row.sequence: json.loads(jsontext.dumps(wire.event(row))) for row in rows}
        conversation.heard |= conversation.read_from(conversation.cursor)
        for name, read_by in (("live", conversation.heard), ("again", conversation.read_from(0))):
            self.counts[f"events read {name}"] += len(read_by)
            if read_by != stored:
                differs = [n for n in stored.keys() | read_by.keys() if stored.get(n) != read_by.get(n)]
                yield f"the stream as it was read {name} is not the rows: {sorted(differs)[:10]}"
        self.counts["steps begun again"] += sum(
            event["type"] == EventType.STEP_DISCARDED for event in conversation.heard.values()
        )

    # -- one answer, one row, one body -----------------------------------------------------------------------------

    def _of_call(self, call: PendingCall, submits: Sequence[Submit], results: Sequence[Message]) -> Iterator[str]:
        is_closed = call.state in (CallState.CONSUMED, CallState.DISCARDED)
        if len(results) != is_closed:
            yield f"{len(results)} result rows, {call.state}"
        result = results[0].parts[0] if results else None
        yield from self.of_answer(call, submits, result)
        yield from self.of_body(call, result, self._begun.get(call.tool_call_id, ()))

    def of_answer(self, call: PendingCall, submits: Sequence[Submit], result: Part | None) -> Iterator[str]:
        accepted = [submit for submit in submits if submit.was_accepted]
        self.counts["answers given"] += len(submits)
        self.counts["answers accepted"] += len(accepted)
        for submit in submits:
            self.counts[f"answered {submit.answer.body.get('status') or submit.answer.body.get('code')}"] += 1
        if len(accepted) > 1:
            yield f"{len(accepted)} answers were accepted"
        candidates = [submit.given for submit in accepted or submits if submit.was_accepted or submit.answer.was_lost]
        if call.kind not in (CallKind.CLIENT, CallKind.APPROVAL) or call.answer_kind not in GIVEN_KINDS:
            if accepted:
                yield f"an accepted answer is gone: the row says {call.answer_kind}"
            return
        given = next((one for one in candidates if _is_stored(call, one)), None)
        if given is None:
            yield f"the row holds {call.answer_kind} {call.answer_json}, accepted was {candidates}"
            return
        self.counts["answers accepted whose sender never heard"] += not accepted
        if result is None:
            self.counts["answers that wait for the rest of their batch"] += 1
        elif result["errorCode"] in STOPPED:
            self.counts["answers that a stop made void"] += 1
            if call.discard_reason != "run_stopped":
                yield f"{result['errorCode']}, and {call.discard_reason}"
        elif result["errorCode"] == GIVEN_UP and call.session.parent_id is not None:
            self.counts["approvals that went with their sub-agent"] += 1
        else:
            self.counts["answers in their result row"] += 1
            if not _is_said(given, result):
                yield f"accepted was {given.value}, the result row says {result}"

    def of_body(self, call: PendingCall, result: Part | None, begun: Sequence[Body]) -> Iterator[str]:
        if not call.tool_name.startswith("ring"):
            return
        code = result["errorCode"] if result else None
        self.counts["bodies begun"] += len(begun)
        if len(begun) > (MOST_SAFE_BODIES if call.replay_safe else 1):
            yield f"its body began {len(begun)} times"
        may_run = call.kind == CallKind.SERVER or call.answer_kind in ANSWER_APPROVALS
        if not may_run and begun:
            yield f"its body ran though it was {call.answer_kind}"
        if not may_run or result is None or code in (*STOPPED, "not_executed", "run_failed"):
            return
        if code == GIVEN_UP and call.session.parent_id is not None:
            if begun:
                yield "its body ran, and then it was given up"
            return
        bell = jsontext.loads(call.edited_arguments_json or call.arguments_json)["bell"]
        if code == LOST:
            self.counts["bodies lost with their worker"] += 1
            yield from self._of_loss(call, begun)
        elif code is not None or result.get("text") != f"rang {bell}":
            yield f"its result is {result}"
        elif not begun or begun[-1].bell != bell:
            yield f"it says that it rang {bell}, the ledger says {begun}"
        else:
            self.counts[f"{call.kind} bodies with their result"] += 1

    def _of_loss(self, call: PendingCall, begun: Sequence[Body]) -> Iterator[str]:
        """A body may be lost only with its worker, or with the worker's connection to the rows."""
        if not StreamEvent.objects.filter(run_id=call.run_id, type=EventType.STEP_DISCARDED).exists():
            yield "its body was given up, and nobody took the run over"
        if not begun or begun[0].pid in self._company.killed:
            return
        self.counts["bodies lost by a worker that lives"] += 1
        if not any(begun[0].at - 1 < cut < begun[0].at + CUT_SECONDS for cut in self._company.cuts):
            yield f"its body was given up, and its worker {begun[0].pid} lives"


def _is_stored(call: PendingCall, given: Given) -> bool:
    """Whether the row of the call holds this answer."""
    if call.answer_kind != given.kind:
        return False
    if given.kind == AnswerKind.RESULT:
        return bool(jsontext.loads(call.answer_json or "null") == given.value)
    if given.kind == AnswerKind.ERROR:
        return call.answer_error == given.value
    if given.kind == AnswerKind.APPROVED_EDITED:
        return bool(jsontext.loads(call.edited_arguments_json or "{}") == {"bell": given.value})
    return True


def _is_said(given: Given, result: Part) -> bool:
    """Whether the model will read this answer, or for an approval what came of it."""
    if given.kind == AnswerKind.RESULT:
        return result.get("value") == given.value
    if given.kind == AnswerKind.ERROR:
        return str(given.value) in str(result.get("error"))
    if given.kind == AnswerKind.DENIED:
        return result["errorCode"] == "approval_denied"
    return result["errorCode"] in (None, LOST)


def busy_trees() -> list[UUID]:
    """Roots in whose tree somebody still computes."""
    live = Run.objects.filter(status__in=RUN_LIVE).values_list("session__root_id", flat=True)
    return list(live.distinct())
