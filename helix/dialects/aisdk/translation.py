"""From stored events to chunks: one assistant message is one turn, however many runs it took.

The same events give the same steps in the same order, so the number of steps that a page has says where it is. What a
page has already is left out, but for results that it shows otherwise than the log; what it lacks is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from helix import jsontext
from helix.dialects.aisdk import chunks
from helix.dialects.aisdk.chunks import Chunk
from helix.dialects.aisdk.page import Page
from helix.statuses import CALL_EXTERNAL, CALL_LOCAL, AnswerKind, CallKind, EventType, RunCause

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """What one response follows.

    after: events are read from there on.  run_ids: the turn's runs when the response began, the newest last.
    steps_before: steps whose events are not read any more.  is_replay: nothing that waits is handed to a handler.
    notes: what the page is told at the end, each in an ended step.
    """

    root_id: UUID
    message_id: str
    after: int
    run_ids: tuple[str, ...]
    page: Page
    steps_before: int = 0
    is_replay: bool = False
    notes: tuple[Mapping[str, Any], ...] = field(default=())


class Translator:
    """Feed it events in order; ``over`` says that another turn has begun. ``close`` ends the response."""

    def __init__(self, turn: Turn, *, answered: Collection[str] = ()) -> None:
        """answered: the calls that have an answer among the events that were there when the response began."""
        self.over = False
        self._turn = turn
        self._root = str(turn.root_id)
        self._page = turn.page
        self._known_steps = turn.page.steps
        self._answered = frozenset(answered)
        self._runs = set(turn.run_ids)
        # Calls that the page has, or has been sent.
        self._shown = set(turn.page.calls)
        self._step = turn.steps_before
        self._is_open = False
        self._in_reply = False
        self._goes_on = False
        self._block: str | None = None
        self._block_kind = ""
        self._blocks = 0

    def begin(self) -> Iterator[Chunk]:
        yield from self._sent(chunks.start(self._turn.message_id))

    def translate(self, event: Event) -> Iterator[Chunk]:
        kind = event["type"]
        is_root = event["agentId"] == self._root
        if is_root and kind == EventType.RUN_QUEUED:
            self._queued(event)
        if self.over:
            # A later turn begins with the results of what this one left open; nothing else of it is this message's.
            if kind == EventType.TOOL_END and event["toolCallId"] in self._shown:
                yield from self._settled(event["toolCallId"], event)
            return
        if kind in (EventType.TOOL_START, EventType.TOOL_APPROVAL_REQUEST, EventType.TOOL_END):
            # Whoever is asked for an answer sees the call, whichever agent of the tree asks; the rest is the root's.
            if is_root or event.get("kind", CallKind.APPROVAL) in CALL_EXTERNAL:
                yield from self._call(kind, event)
        elif is_root:
            yield from self._of_root(kind, event)

    def close(self) -> Iterator[Chunk]:
        """Nothing more is computed now: end the step, and say what keeps the page from posting again."""
        yield from self._end_block()
        yield from self._end_step()
        notes = list(self._turn.notes)
        if self._page.would_post_again() and not notes:
            notes = [{"reason": "nothing-new"}]
        for note in notes if not self._page.failed else ():
            yield from self._sent(chunks.START_STEP, chunks.data(chunks.REJECTED, note), chunks.FINISH_STEP)
        yield from self._sent(chunks.FINISH)

    # -- runs and replies ------------------------------------------------------------------------------------------

    def _queued(self, event: Event) -> None:
        if event["cause"] == RunCause.CONTINUATION:
            self._runs.add(event["runId"])
        self.over = event["runId"] not in self._runs
        # What a failed run left half written stays on the page; the run that tries again writes a step of its own.
        self._in_reply = self._goes_on = False

    def _of_root(self, kind: str, event: Event) -> Iterator[Chunk]:
        if kind == EventType.TEXT_DELTA:
            yield from self._words("text", event["delta"])
        elif kind == EventType.THINKING:
            yield from self._words("reasoning", event["content"])
            if event["isComplete"]:
                yield from self._end_block()
        elif kind in (EventType.TOOL_ARG_STREAM_START, EventType.STEP_COMMITTED):
            # Arguments are sent whole, once the call's id and kind are facts: a call that is never recorded would
            # stay unfinished on the page for good.
            yield from self._begin_reply()
            yield from self._end_block()
            self._in_reply = kind != EventType.STEP_COMMITTED
        elif kind == EventType.STEP_DISCARDED:
            yield from self._discard(event)
        elif kind == EventType.FINAL_OUTPUT and not self._is_known():
            yield from self._sent(chunks.data(chunks.OUTPUT, event["output"]))
        elif kind == EventType.RUN_FAILED and event["runId"] not in self._turn.run_ids[:-1]:
            # An earlier failure was made good by the run that tried again.
            yield from self._fail(event["error"])

    def _fail(self, detail: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._end_block()
        # Whoever aborts a turn knows it; for everybody else it ended.
        if detail["code"] != "framework_cancelled":
            yield from self._sent(chunks.error(detail["message"]))

    def _begin_reply(self) -> Iterator[Chunk]:
        if self._in_reply:
            return
        self._in_reply = True
        if self._goes_on:
            self._goes_on = False
        else:
            yield from self._end_step()
            yield from self._begin_step()

    def _discard(self, event: Event) -> Iterator[Chunk]:
        """A reply that was being written is written anew, in the same step; what was said of it cannot be unsaid."""
        yield from self._end_block()
        if self._in_reply:
            self._in_reply = False
            self._goes_on = True
            if not self._is_known():
                yield from self._sent(chunks.data(chunks.DISCARDED, {"reason": event["reason"]}))

    def _words(self, kind: str, delta: str) -> Iterator[Chunk]:
        yield from self._begin_reply()
        if self._block is not None and self._block_kind != kind:
            yield from self._end_block()
        if not delta or self._is_known():
            return
        if self._block is None:
            self._blocks += 1
            self._block, self._block_kind = f"{kind}-{self._step}-{self._blocks}", kind
            yield from self._sent(chunks.text(f"{kind}-start", self._block))
        yield from self._sent(chunks.text(f"{kind}-delta", self._block, delta))

    def _end_block(self) -> Iterator[Chunk]:
        if self._block is not None:
            yield from self._sent(chunks.text(f"{self._block_kind}-end", self._block))
            self._block = None

    def _begin_step(self) -> Iterator[Chunk]:
        self._step += 1
        if not self._is_known():
            self._is_open = True
            yield from self._sent(chunks.START_STEP)

    def _end_step(self) -> Iterator[Chunk]:
        if self._is_open:
            self._is_open = False
            yield from self._sent(chunks.FINISH_STEP)

    def _is_known(self) -> bool:
        return self._step <= self._known_steps

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, kind: str, event: Event) -> Iterator[Chunk]:
        named = event["toolCallId"]
        if kind == EventType.TOOL_START:
            if named not in self._shown:
                self._shown.add(named)
                yield from self._asked(named, event)
        elif kind == EventType.TOOL_APPROVAL_REQUEST:
            on_page = self._page.calls.get(named)
            if named not in self._answered and (on_page is None or "approval" not in on_page.raw):
                yield from self._sent(chunks.approval_request(named, event["approvalId"]))
        elif named in self._shown:
            # A result without its call ends the page's turn; one of an earlier message is none of this one's.
            yield from self._settled(named, event)

    def _asked(self, named: str, event: Event) -> Iterator[Chunk]:
        if not self._step:
            yield from self._begin_step()
        kind, arguments_json = event["kind"], event["argumentsJson"]
        if kind in CALL_EXTERNAL and (self._turn.is_replay or named in self._answered):
            yield from self._sent(*chunks.input_without_dispatch(named, event["toolName"], arguments_json))
            return
        yield from self._sent(
            chunks.input_available(
                named, event["toolName"], _parsed(arguments_json), provider_executed=kind in CALL_LOCAL
            )
        )

    def _settled(self, named: str, event: Event) -> Iterator[Chunk]:
        settled_as = event["settledAs"]
        on_page = self._page.calls.get(named)
        if on_page is not None and on_page.shows(settled_as, event):
            return
        is_ours = event["kind"] != CallKind.CLIENT
        if settled_as == AnswerKind.DENIED:
            yield from self._sent(chunks.output_denied(named))
        elif "error" in event:
            yield from self._sent(chunks.output_error(named, event["error"], provider_executed=is_ours))
        else:
            yield from self._sent(chunks.output_available(named, event.get("result"), provider_executed=is_ours))

    def _sent(self, *sent: Chunk) -> Iterator[Chunk]:
        for chunk in sent:
            self._page.see(chunk)
            yield chunk


def answered_among(events: Collection[Event]) -> frozenset[str]:
    """The calls that somebody answered, or that ended otherwise."""
    over = (EventType.CALL_ANSWERED, EventType.TOOL_END)
    return frozenset(event["toolCallId"] for event in events if event["type"] in over)


def _parsed(arguments_json: str) -> Any:
    """What the model wrote, as JSON where it is JSON (R-031)."""
    try:
        return jsontext.loads(arguments_json, unique_keys=False)
    except jsontext.JsonRefused:
        return arguments_json
