"""What readers are sent: each event encoded once, whoever reads it and however many they are (R-366, R-523)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

import orjson

from helix import jsontext, selectors, wire
from helix.models import Session, StreamEvent
from helix.statuses import EventType

PAGE = 200

# After one of these a turn may be over; a reader that ends with the turn looks at the rows then.
MAY_END_A_TURN = (
    EventType.SESSION_STATUS,
    EventType.RUN_COMPLETED,
    EventType.RUN_FAILED,
    EventType.RUN_INTERRUPTED,
)


@dataclass(frozen=True)
class Frame:
    """One event; its texts are made at first use and shared by every reader of the process."""

    sequence: int
    type: str
    payload: str

    @classmethod
    def of(cls, row: StreamEvent) -> Frame:
        return cls(row.sequence, row.type, encode(wire.event(row)))

    def socket_text(self, *, live: bool) -> str:
        return self._live_text if live else self._text("false")

    @cached_property
    def _live_text(self) -> str:
        return self._text("true")

    @cached_property
    def sse_text(self) -> str:
        # JSON has no raw line break, so one line carries it whole.
        return f"id: {self.sequence}\ndata: {self.payload}\n\n"

    def _text(self, live: str) -> str:
        return f'{{"type":"event","sequence":{self.sequence},"live":{live},"payload":{self.payload}}}'


def encode(value: Mapping[str, Any]) -> str:
    """Compact JSON. Rows hold nothing that orjson refuses but integers beyond 64 bits; those take the slow way."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return jsontext.dumps(value)


def head_text(sequence: int) -> str:
    """Says that the backlog was sent, up to ``sequence``."""
    return encode({"type": "head", "sequence": sequence})


def reply_text(request_id: str | None, status: int, body: Mapping[str, Any]) -> str:
    """The answer to one command: what the HTTP route of the same operation would have answered."""
    return encode({"type": "reply", "requestId": request_id, "status": status, "body": body})


def read_page(root_id: UUID, after: int) -> Sequence[Frame]:
    """The next frames after a cursor, at most `PAGE`. Raises: `CursorTooOld`."""
    return [Frame.of(row) for row in selectors.events_after(root_id, after, PAGE)]


def read_positions(root_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    """The newest committed sequence of each root; a root that is gone is missing."""
    return dict(Session.objects.filter(pk__in=root_ids).values_list("pk", "stream_sequence"))
