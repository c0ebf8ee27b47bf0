"""Putting a reply together while it is being written.

Both ports feed their pieces through here, so that a reply, whole or cut, and the deltas that readers saw always tell
the same story. Argument text is joined exactly as it came (R-053).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helix.loop.messages import (
    Delta,
    EmittedCall,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)

# What a model that gave no argument text at all meant: some providers send nothing for a tool without parameters.
NO_ARGUMENTS = "{}"


@dataclass
class _Call:
    provider_call_id: str | None
    tool_name: str
    fragments: list[str] = field(default_factory=list)

    def emitted(self) -> EmittedCall:
        return EmittedCall(self.provider_call_id, self.tool_name, "".join(self.fragments) or NO_ARGUMENTS)


class ReplyAssembly:
    """Collects pieces, hands each on as a delta, and gives the reply at any moment."""

    def __init__(self, emit: Callable[[Delta], None]) -> None:
        self._emit = emit
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._thinking = False

    def text(self, text: str) -> None:
        if text:
            self.thinking_done()
            self._text.append(text)
            self._emit(TextDelta(text))

    def thinking(self, text: str) -> None:
        if text:
            self._thinking = True
            self._reasoning.append(text)
            self._emit(ThinkingDelta(text))

    def thinking_done(self) -> None:
        """The block of reasoning that is open, if any, is complete."""
        if self._thinking:
            self._thinking = False
            self._emit(ThinkingDelta("", is_complete=True))

    def call_started(self, tool_name: str, provider_call_id: str | None) -> int:
        """A call begins; returns its number, counted from 0 in the model's order."""
        self.thinking_done()
        self._calls.append(_Call(provider_call_id, tool_name))
        index = len(self._calls) - 1
        self._emit(ToolCallStarted(index, provider_call_id, tool_name))
        return index

    def call_arguments(self, index: int, fragment: str) -> None:
        if fragment:
            self._calls[index].fragments.append(fragment)
            self._emit(ToolCallDelta(index, fragment))

    def reply(self, *, complete: bool, usage: Usage | None = None, provider: dict[str, Any] | None = None) -> Reply:
        """The reply as far as it came. A cut one carries no ``provider`` part: it would not match the text."""
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=tuple(call.emitted() for call in self._calls),
            usage=usage,
            provider=provider if complete else None,
            complete=complete,
        )

    def partial(self) -> Reply | None:
        """The reply as far as it came, or None when nothing was written."""
        if self._text or self._reasoning or self._calls:
            return self.reply(complete=False)
        return None
