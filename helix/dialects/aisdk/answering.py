"""The answers and verdicts in a page's message: which are new, which are echoes, and what became of each.

A page posts its whole message every time, with every answer that it ever gave. Only what could still matter is handed
to the submit; the rest is compared with the log, so that an echo of a stored result is never taken for a late answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from helix.answers import Answer, check_result_size
from helix.dialects.aisdk import reading
from helix.dialects.aisdk.page import Page, ToolPart
from helix.errors import HelixError, NotResumable, UnknownToolCall
from helix.models import PendingCall
from helix.operations.rate import count_submit
from helix.principals import Principal
from helix.services.submit import submit_answer
from helix.statuses import CALL_CLOSED, CALL_UNANSWERED, AnswerKind, CallState, DiscardReason

DOOR = "chat"


class Answering:
    """calls: those of the page's message by id. ``submit`` once, then ``notes``."""

    def __init__(self, principal: Principal, session_id: str, page: Page, calls: Mapping[str, PendingCall]) -> None:
        self.calls = calls
        self._principal = principal
        self._session_id = session_id
        self._page = page
        # Answers that are stored, by this request or by one before it whose batch is still open.
        self._stored: list[str] = []
        self._gone: dict[str, str] = {}

    def submit(self, now: datetime) -> None:
        """Store what is new, in the page's order.

        Raises: `RateLimited`; `PayloadTooLarge` before anything is stored (R-294); the first refusal of a submit, after
        the other answers; `NotResumable` or `UnknownToolCall` when no answer applies (R-356, R-357).
        """
        fresh = self._fresh()
        if fresh:
            count_submit(self._principal, self._session_id, now)
        for _, answer in fresh:
            check_result_size(answer)
        refusals = [refusal for call, answer in fresh if (refusal := self._submitted(call, answer, now))]
        if refusals:
            raise refusals[0]
        if self._gone and not self._stored:
            raise self._none_applies()

    def notes(self) -> tuple[Mapping[str, Any], ...]:
        """What the page is told of answers that do not apply, beside others that do (R-357)."""
        by_reason: dict[str, list[str]] = {}
        for named, reason in self._gone.items():
            by_reason.setdefault(_note(reason), []).append(named)
        return tuple({"reason": reason, "toolCallIds": named} for reason, named in by_reason.items())

    def _fresh(self) -> list[tuple[PendingCall, Answer]]:
        fresh = []
        closed = [call for call in self.calls.values() if call.state in CALL_CLOSED and call.is_external]
        in_log = reading.results_in_log(closed)
        for part in self._page.calls.values():
            call = self.calls.get(part.tool_call_id)
            if call is None:
                if part.says_something():
                    self._gone[part.tool_call_id] = "never_existed"
                continue
            answer = part.answer_for(call.kind, call.approval_id) if call.is_external else None
            if answer is not None and self._matters(call, part, in_log.get(part.tool_call_id)):
                fresh.append((call, answer))
        return fresh

    def _matters(self, call: PendingCall, part: ToolPart, in_log: Mapping[str, Any] | None) -> bool:
        """Whether the submit has something to decide about this answer."""
        if call.state in CALL_UNANSWERED:
            return True
        if in_log is not None and part.shows(call.answer_kind or "", in_log):
            return False
        if call.state == CallState.DISCARDED:
            return True
        if call.answer_kind == AnswerKind.TIMEOUT:
            # The first late answer is kept; a page repeats it for as long as it shows it.
            return call.late_answered_at is None
        if call.state != CallState.CONSUMED:
            self._stored.append(call.tool_call_id)
        return False

    def _submitted(self, call: PendingCall, answer: Answer, now: datetime) -> HelixError | None:
        try:
            submit_answer(
                principal=self._principal,
                session_id=self._session_id,
                tool_call_id=call.tool_call_id,
                answer=answer,
                now=now,
                door=DOOR,
            )
        except UnknownToolCall as gone:
            self._gone[call.tool_call_id] = str(gone.fields.get("reason"))
            return None
        except HelixError as refusal:
            return refusal
        self._stored.append(call.tool_call_id)
        return None

    def _none_applies(self) -> HelixError:
        ids, reasons = list(self._gone), set(self._gone.values())
        if DiscardReason.RUN_STOPPED in reasons:
            return NotResumable("The run was stopped.", cause="run_stopped", toolCallIds=ids)
        if reasons & {DiscardReason.RUN_FAILED, DiscardReason.REWOUND}:
            text = "The answer was not stored: its call is closed."
            return NotResumable(text, cause="answer_not_stored", toolCallIds=ids)
        return UnknownToolCall("There is no such open call.", toolCallId=ids[0], reason=self._gone[ids[0]])


def _note(reason: str) -> str:
    return "unknown-tool-call" if reason not in DiscardReason.values else reason.replace("_", "-")
