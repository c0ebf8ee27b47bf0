"""The chunks that every supported version of the AI SDK understands, and their framing.

The strict intersection: no key that one of them rejects, no null for what is absent, ``input`` and ``output`` always
there. Old patches end the page's turn at the first chunk they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from helix.edge.frames import encode

Chunk = dict[str, Any]

# The part that ends a step on the page when the model has nothing to say.
REJECTED: Final = "data-resume-rejected"
DISCARDED: Final = "data-step-discarded"
OUTPUT: Final = "data-output"
DONE_TEXT: Final = "data: [DONE]\n\n"
KEEP_ALIVE_TEXT: Final = ": keep-alive\n\n"

START_STEP: Final[Chunk] = {"type": "start-step"}
FINISH_STEP: Final[Chunk] = {"type": "finish-step"}
FINISH: Final[Chunk] = {"type": "finish"}


def start(message_id: str) -> Chunk:
    return {"type": "start", "messageId": message_id}


def text(kind: str, block: str, delta: str | None = None) -> Chunk:
    """kind: ``text-start``, ``reasoning-delta`` and so on; only a delta carries words."""
    return {"type": kind, "id": block} if delta is None else {"type": kind, "id": block, "delta": delta}


def input_available(tool_call_id: str, tool_name: str, given: Any, *, provider_executed: bool) -> Chunk:
    """A whole call. A page runs its handler for it unless the server ran it."""
    return _marked(
        {"type": "tool-input-available", "toolCallId": tool_call_id, "toolName": tool_name, "input": given},
        provider_executed,
    )


def input_without_dispatch(tool_call_id: str, tool_name: str, arguments_json: str) -> tuple[Chunk, Chunk]:
    """A whole call as a page shows it without running its handler: it was answered, or somebody runs it already."""
    return (
        {"type": "tool-input-start", "toolCallId": tool_call_id, "toolName": tool_name},
        {"type": "tool-input-delta", "toolCallId": tool_call_id, "inputTextDelta": arguments_json},
    )


def approval_request(tool_call_id: str, approval_id: str) -> Chunk:
    return {"type": "tool-approval-request", "toolCallId": tool_call_id, "approvalId": approval_id}


def output_available(tool_call_id: str, output: Any, *, provider_executed: bool) -> Chunk:
    return _marked({"type": "tool-output-available", "toolCallId": tool_call_id, "output": output}, provider_executed)


def output_error(tool_call_id: str, error: str, *, provider_executed: bool) -> Chunk:
    return _marked({"type": "tool-output-error", "toolCallId": tool_call_id, "errorText": error}, provider_executed)


def output_denied(tool_call_id: str) -> Chunk:
    return {"type": "tool-output-denied", "toolCallId": tool_call_id}


def data(kind: str, value: Any) -> Chunk:
    """A part that the page keeps."""
    return {"type": kind, "data": value}


def error(words: str) -> Chunk:
    return {"type": "error", "errorText": words}


def framed(chunk: Mapping[str, Any]) -> str:
    return f"data: {encode(chunk)}\n\n"


def _marked(chunk: Chunk, provider_executed: bool) -> Chunk:
    return {**chunk, "providerExecuted": True} if provider_executed else chunk
