"""What travels between the driver and a model: logged messages, a request, its deltas, the reply.

Plain frozen data without rows and without a provider's types, so that a stored message, a scripted model and a real
provider speak of the same things. Parts are the JSON of ``Message.parts``, version 1:

- user: ``{"type": "text", "text"}`` and ``{"type": "file", "url", "mediaType"}``
- assistant: ``{"type": "reasoning", "text"}``, ``{"type": "text", "text"}``, ``{"type": "tool_call", "toolCallId",
  "providerCallId", "toolName", "argumentsJson", "private"}`` and ``{"type": "provider", "format", "data"}``; the last
  is opaque and never shown to clients
- tool: one ``{"type": "tool_result", "toolCallId", "providerCallId", "toolName", "private", "errorCode", "note"}``
  with exactly one of ``text`` (kept verbatim, R-017), ``value`` (any JSON) and ``error`` (readable text)
- notice: ``{"type": "text", "text"}``, a hidden hint that the model reads as a user's text
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from helix import jsontext

Part = Mapping[str, Any]
Role = Literal["user", "assistant", "tool", "notice"]


@dataclass(frozen=True)
class LoggedMessage:
    """One live message of the log."""

    role: Role
    parts: Sequence[Part]
    tool_call_id: str | None = None
    error_code: str | None = None
    interrupted: bool = False

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return "".join(part["text"] for part in self.parts if part["type"] == "text")

    def calls(self) -> Iterator[Part]:
        """The tool calls that it asks for, in emission order."""
        return (part for part in self.parts if part["type"] == "tool_call")


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told about a tool."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """Everything one model call needs. ``model`` is ``<provider>:<name>``; ``messages`` are already arranged.

    metadata: ``sessionId``, ``runId`` and ``step``, for scripts and traces; a provider never sees it.
    """

    model: str
    instructions: str
    messages: tuple[LoggedMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EmittedCall:
    """A tool call of a reply. ``arguments_json`` is the model's text, character for character (R-053)."""

    provider_call_id: str | None
    tool_name: str
    arguments_json: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """A reply, whole or as far as it came (``complete`` False).

    provider: ``{"format", "data"}`` when the provider has to get something back that the parts cannot say (signatures
    of its reasoning, for example), else None. It becomes the assistant message's part of type ``provider``.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[EmittedCall, ...] = ()
    usage: Usage | None = None
    provider: dict[str, Any] | None = None
    complete: bool = True


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    text: str
    is_complete: bool = False


@dataclass(frozen=True)
class ToolCallStarted:
    """Call number ``index`` of the reply has begun; its arguments follow."""

    index: int
    provider_call_id: str | None
    tool_name: str


@dataclass(frozen=True)
class ToolCallDelta:
    index: int
    text: str


Delta = TextDelta | ThinkingDelta | ToolCallStarted | ToolCallDelta

ModelErrorCode = Literal["provider_error", "provider_rate_limited", "provider_stream_stalled"]


class ModelError(Exception):
    """A model failed, refused, or fell silent. ``retryable`` decides whether the run tries again (R-494).

    partial: what had been written when it failed; None when nothing had.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ModelErrorCode = "provider_error",
        retryable: bool = False,
        status_code: int | None = None,
        partial: Reply | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.status_code = status_code
        self.partial = partial


def result_text(part: Part) -> str:
    """What the model reads for a ``tool_result`` part: the note, then a text verbatim or a value as compact JSON."""
    if "text" in part:
        body = part["text"]
    elif "value" in part:
        body = jsontext.dumps(part["value"])
    else:
        body = part["error"]
    note = part.get("note")
    return f"{note}\n\n{body}" if note else body
