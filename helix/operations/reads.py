"""Operations that only read: status, snapshot, events and the paged lists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from helix import clock, selectors, wire
from helix.answers import malformed, required_text, text_field
from helix.operations.asked import Asked, Reply
from helix.operations.bodies import (
    checked_name,
    choice_field,
    cursor_field,
    cursor_of,
    instant_field,
    integer_field,
    members_field,
    uuid_field,
)
from helix.selectors import SessionFilters
from helix.statuses import CallState, SessionStatus

EVENTS_PAGE = 200
LARGEST_EVENTS_PAGE = 1000


def status(asked: Asked) -> Reply:
    return Reply(200, wire.status(selectors.snapshot_rows(asked.principal, asked.session, with_messages=False)))


def snapshot(asked: Asked) -> Reply:
    return Reply(200, wire.snapshot(selectors.snapshot_rows(asked.principal, asked.session), asked.now))


def events(asked: Asked) -> Reply:
    """Events N+1 onward, and the number of the newest: equal to ``nextAfter`` when the reader has seen all (R-518)."""
    after = integer_field(asked.body, "after", 0)
    limit = integer_field(asked.body, "limit", EVENTS_PAGE, low=1, high=LARGEST_EVENTS_PAGE, clamp=True)
    with selectors.consistent_read():
        root = selectors.session_for(asked.principal, asked.session)
        if after > root.stream_sequence:
            malformed("after is beyond the stream")
        found = selectors.events_after(root.id, after, limit)
    body: dict[str, Any] = {
        "events": [wire.event(row) for row in found],
        "nextAfter": found[-1].sequence if found else after,
        "head": root.stream_sequence,
    }
    return Reply(200, body)


def calls(asked: Asked) -> Reply:
    state = choice_field(asked.body, "state", CallState.values)
    tool_call_id = text_field(asked.body, "toolCallId")
    (after,) = cursor_field(asked.body, int) or (0,)
    limit = _limit(asked)
    with selectors.consistent_read():
        root = selectors.session_for(asked.principal, asked.session)
        found = selectors.calls_page(root, state=state, tool_call_id=tool_call_id, limit=limit, after=after)
    return _page("calls", found, limit, wire.call, lambda row: cursor_of(row.seq))


def checkpoints(asked: Asked) -> Reply:
    (before,) = cursor_field(asked.body, int) or (None,)
    limit = _limit(asked)
    with selectors.consistent_read():
        root = selectors.session_for(asked.principal, asked.session)
        found = selectors.checkpoints_page(root, limit=limit, before=before)
    return _page("checkpoints", found, limit, wire.checkpoint, lambda row: cursor_of(row.pk))


def checkpoint(asked: Asked) -> Reply:
    """One checkpoint with the state and the open calls that a rewind would restore (R-566)."""
    name = checked_name("checkpointId", required_text(asked.body, "checkpointId"))
    with selectors.consistent_read():
        root = selectors.session_for(asked.principal, asked.session)
        found = selectors.checkpoint_of(root, name)
    return Reply(200, wire.checkpoint_in_full(found))


def sessions(asked: Asked) -> Reply:
    """Newest first; a conversation that begins meanwhile moves no page (R-567)."""
    filters = SessionFilters(
        agent_type=text_field(asked.body, "agentType"),
        status=choice_field(asked.body, "status", SessionStatus.values),
        tag=text_field(asked.body, "tag"),
        owner=text_field(asked.body, "owner"),
        created_after=instant_field(asked.body, "createdAfter"),
        created_before=instant_field(asked.body, "createdBefore"),
        metadata=members_field(asked.body, "metadata"),
        parent=uuid_field(asked.body, "parent"),
    )
    limit = _limit(asked)
    found = selectors.sessions_page(asked.principal, filters, limit=limit, after=_after_session(asked))
    return _page(
        "sessions", found, limit, wire.session_row, lambda row: cursor_of(row.created_at.isoformat(), str(row.pk))
    )


def _after_session(asked: Asked) -> tuple[datetime, UUID] | None:
    keys = cursor_field(asked.body, str, str)
    if keys is None:
        return None
    try:
        created_at, key = clock.in_utc(datetime.fromisoformat(keys[0])), UUID(keys[1])
    except ValueError:
        malformed("cursor is not one of this server's")
    if created_at is None:
        malformed("cursor is not one of this server's")
    return created_at, key


def _limit(asked: Asked) -> int:
    return integer_field(asked.body, "limit", selectors.PAGE, low=1, high=selectors.LARGEST_PAGE, clamp=True)


def _page(name: str, found: list[Any], limit: int, shown: Callable[[Any], Any], cursor: Callable[[Any], str]) -> Reply:
    """One page; ``nextCursor`` is null on the last."""
    rows = found[:limit]
    more = len(found) > limit
    return Reply(200, {name: [shown(row) for row in rows], "nextCursor": cursor(rows[-1]) if more else None})


READS: dict[str, Callable[[Asked], Reply]] = {
    "status": status,
    "session": snapshot,
    "events": events,
    "calls": calls,
    "checkpoints": checkpoints,
    "checkpoint": checkpoint,
    "sessions-list": sessions,
}
