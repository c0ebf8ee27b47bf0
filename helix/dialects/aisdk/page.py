"""What the page shows of one assistant message, and whether it would post again by itself.

A page that holds only finished tool calls after its last step boundary sends them, again and again, until a response
moves the boundary. So every response is played against this copy before it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from helix.answers import Answer, parse_submission
from helix.dialects.aisdk import chunks
from helix.dialects.aisdk.chunks import Chunk
from helix.statuses import AnswerKind, CallKind

OUTPUT_AVAILABLE: Final = "output-available"
OUTPUT_ERROR: Final = "output-error"
OUTPUT_DENIED: Final = "output-denied"
RESPONDED: Final = "approval-responded"
# One step boundary is stored with the first of these chunks that follows it, not by itself.
_NO_WRITE: Final = ("start", "start-step", "finish-step", "finish")
_FINAL: Final = (OUTPUT_AVAILABLE, OUTPUT_ERROR, OUTPUT_DENIED)
_STATE_AFTER: Final = {
    "tool-input-start": "input-streaming",
    "tool-input-available": "input-available",
    "tool-approval-request": "approval-requested",
    "tool-output-available": OUTPUT_AVAILABLE,
    "tool-output-error": OUTPUT_ERROR,
    "tool-output-denied": OUTPUT_DENIED,
}
NO_OUTPUT: Final = "The handler returned no value."


@dataclass(frozen=True)
class ToolPart:
    """One call as the page has it; ``raw`` is the whole part."""

    tool_call_id: str
    state: str
    provider_executed: bool
    raw: Mapping[str, Any]

    def answer_for(self, kind: str, approval_id: str | None) -> Answer | None:
        """What the page says to a call of that kind; None: nothing. A gated call has no answer, only a verdict (R-167).

        Raises: `ValidationFailed` for an answer whose shape no door takes.
        """
        body: dict[str, Any] = {"toolCallId": self.tool_call_id}
        if kind == CallKind.CLIENT and self.state == OUTPUT_AVAILABLE:
            body |= {"result": self.raw["output"]} if "output" in self.raw else {"error": NO_OUTPUT}
        elif kind == CallKind.CLIENT and self.state == OUTPUT_ERROR:
            body["error"] = self.raw.get("errorText") or NO_OUTPUT
        elif kind == CallKind.APPROVAL and self._decides(approval_id):
            verdict = self.raw["approval"]
            body |= {"kind": "approval-response", "approvalId": approval_id, "approved": verdict["approved"]}
            body["reason"] = verdict.get("reason")
        else:
            return None
        return parse_submission(body).answer

    def says_something(self) -> bool:
        """Whether the part would be an answer to some call of its page."""
        return not self.provider_executed and self.state in (OUTPUT_AVAILABLE, OUTPUT_ERROR, RESPONDED)

    def shows(self, settled_as: str, result: Mapping[str, Any]) -> bool:
        """Whether the part shows the result of the log: ``{"result": …}`` or ``{"error": …}``."""
        if self.state == OUTPUT_DENIED:
            return settled_as == AnswerKind.DENIED
        if "error" in result:
            return self.state == OUTPUT_ERROR and self.raw.get("errorText") == result["error"]
        return self.state == OUTPUT_AVAILABLE and "output" in self.raw and self.raw["output"] == result.get("result")

    def _decides(self, approval_id: str | None) -> bool:
        verdict = self.raw.get("approval")
        return (
            self.state == RESPONDED
            and isinstance(verdict, dict)
            and verdict.get("id") == approval_id
            and isinstance(verdict.get("approved"), bool)
        )


class Page:
    """message_id: None for a message that the page does not have yet.  steps: how many steps of the turn it has."""

    def __init__(self, message_id: str | None = None, parts: Iterable[Mapping[str, Any]] = ()) -> None:
        self.message_id = message_id
        self.steps = 0
        self.calls: dict[str, ToolPart] = {}
        self.failed = False
        # The calls after the last boundary: state, and whether the server ran them.
        self._last_step: dict[str, tuple[str, bool]] = {}
        self._boundary = False
        for part in parts:
            self._take(part)

    def _take(self, part: Mapping[str, Any]) -> None:
        kind = part["type"]
        if kind == "step-start":
            self.steps += 1
            self._last_step.clear()
        elif kind == chunks.REJECTED:
            # It stands in a step of its own, which is none of the turn's.
            self.steps -= 1
        elif kind.startswith("tool-") or kind == "dynamic-tool":
            named, state = part.get("toolCallId"), part.get("state")
            if isinstance(named, str) and named and isinstance(state, str):
                is_marked = part.get("providerExecuted") is True
                self.calls[named] = ToolPart(named, state, is_marked, part)
                self._last_step[named] = (state, is_marked)

    def see(self, chunk: Chunk) -> None:
        """Change the copy as the page changes its own."""
        kind = chunk["type"]
        if kind == "start-step":
            self._boundary = True
        if kind in _NO_WRITE:
            return
        if self._boundary:
            self._boundary = False
            self._last_step.clear()
        if kind == "error":
            self.failed = True
        state = _STATE_AFTER.get(kind)
        named = chunk.get("toolCallId")
        if state is None or named is None:
            return
        if kind.startswith("tool-input") or named in self._last_step:
            _, was_marked = self._last_step.get(named, ("", False))
            self._last_step[named] = (state, was_marked or "providerExecuted" in chunk)

    def would_post_again(self) -> bool:
        """Whether one of the SDK's two auto-send rules holds; an error keeps both back."""
        if self.failed:
            return False
        states = [state for state, _ in self._last_step.values()]
        own = [state for state, is_marked in self._last_step.values() if not is_marked]
        is_complete = bool(own) and all(state in _FINAL for state in own)
        is_decided = RESPONDED in states and all(state in (*_FINAL, RESPONDED) for state in states)
        return is_complete or is_decided
