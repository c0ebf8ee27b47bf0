"""What waits for one person: approvals to decide and own conversations that await an answer (I-32, I-34, I-49)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from helix import selectors
from helix.edge.frames import encode
from helix.errors import Forbidden
from helix.principals import Principal
from helix.streaming.gate import Scope, principal_of

# Any event of any conversation may change an inbox. A burst of them is one reading, and lost wakes cost this long.
CALM_SECONDS: Final = 0.25
REREAD_SECONDS: Final = 5.0
# What is compared; a person with more than this sees the change when the first page of it changes.
MOST_COMPARED: Final = 500


@dataclass(frozen=True)
class Waiting:
    """Two inboxes are equal when nothing that a list shows first has changed: membership, order, deadlines."""

    approvals: tuple[Any, ...]
    conversations: tuple[Any, ...]

    def text(self) -> str:
        return encode({"type": "inbox", "approvals": len(self.approvals), "conversations": len(self.conversations)})


def principal_for(operation: str, scope: Scope) -> Principal:
    """Who watches an inbox. A token that is bound to one session covers no list. Raises: as `principal_of`."""
    principal = principal_of(operation, scope)
    if principal.session_id is not None:
        raise Forbidden("This credential belongs to one session.", cause="session_mismatch")
    return principal


def read_waiting(principal: Principal) -> Waiting:
    """The same queries as the lists (I-34), in one consistent read: counts and lists cannot disagree."""
    calls = selectors.reviewable_calls(principal).order_by("exposed_at", "id")
    conversations = selectors.awaiting_sessions(principal)
    with selectors.consistent_read():
        return Waiting(
            approvals=tuple(calls.values_list("id", "exposed_at", "deadline_at")[:MOST_COMPARED]),
            conversations=tuple(conversations.values_list("id", "waiting_since")[:MOST_COMPARED]),
        )


async def pause(stirred: asyncio.Event) -> None:
    """Wait for something to happen anywhere, then for the burst to pass."""
    with suppress(TimeoutError):
        async with asyncio.timeout(REREAD_SECONDS):
            await stirred.wait()
    await asyncio.sleep(CALM_SECONDS)
