"""What a step is: the transcript, the model port, and the work a tool does. Knows no rows.

Everything here happens between transactions (F-4): a driver claims, thinks with this package, and records.
Tool bodies run through ``helix.loop.execution``; the texts of result codes are in ``helix.loop.texts``.
"""

from __future__ import annotations

from helix.loop.cancel import Cancelled, CancelToken
from helix.loop.messages import (
    Delta,
    EmittedCall,
    LoggedMessage,
    ModelError,
    ModelRequest,
    Part,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    ToolSpec,
    Usage,
    result_text,
)
from helix.loop.port import complete_reply
from helix.loop.transcript import arrange, unpaired

__all__ = [
    "CancelToken",
    "Cancelled",
    "Delta",
    "EmittedCall",
    "LoggedMessage",
    "ModelError",
    "ModelRequest",
    "Part",
    "Reply",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolCallStarted",
    "ToolSpec",
    "Usage",
    "arrange",
    "complete_reply",
    "result_text",
    "unpaired",
]
