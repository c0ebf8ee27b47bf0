"""One question and its answer, whatever door it came through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix.principals import Principal


@dataclass(frozen=True)
class Asked:
    """session_id: the conversation as its caller named it (R-365); None only where the operation makes one.

    body: a parsed JSON object, or for a read the query, whose values are strings.  door: for the audit row.
    """

    principal: Principal
    session_id: str | None
    tool_call_id: str | None
    body: Mapping[str, Any]
    door: str
    now: datetime

    @property
    def session(self) -> str:
        """The named session, in an operation that has one."""
        if self.session_id is None:
            raise LookupError("this operation names no session")
        return self.session_id


@dataclass(frozen=True)
class Reply:
    """A 2xx answer: its status and its JSON body. Every refusal is an exception."""

    status: int
    body: dict[str, Any]
