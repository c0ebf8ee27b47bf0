"""What a watcher needs before its stream begins: the right to it, the root, and a cursor that the root knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from helix import selectors
from helix.answers import malformed
from helix.operations.bodies import checked_name, integer_field
from helix.principals import Principal


@dataclass(frozen=True)
class Attachment:
    """named: the session as its caller names it (R-365)."""

    root_id: UUID
    named: str
    principal: Principal
    after: int


def attach(principal: Principal, session_id: str, query: Mapping[str, str]) -> Attachment:
    """Where a watcher begins to read. Changes nothing and starts nothing (R-524, I-19).

    Raises: `ValidationFailed` for a cursor that is no number or that this stream never gave; `NotFound`, the same for
    a missing and a foreign session; `CursorTooOld` (R-368).
    """
    after = integer_field(query, "after", 0)
    root = selectors.session_for(principal, checked_name("sessionId", session_id))
    if after > root.stream_sequence:
        malformed("after is beyond the stream")
    # Asked now, so that the refusal comes before the stream begins.
    selectors.events_after(root.id, after, 1)
    return Attachment(root.id, session_id, principal, after)
