"""What passes between this server and a peer, as frozen values, and the three ways in which a peer fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Exchange = Callable[[str, str, "dict[str, Any]"], "dict[str, Any]"]
"""(method, path below the base address, body or query) → the JSON object of a 2xx answer.

Raises: `PeerRefused` for a typed or 4xx answer; `PeerUnreachable` for everything that was not understood.
"""


@dataclass(frozen=True)
class Address:
    """Where a peer is and what every request to it carries. ``headers`` may be secret: never stored, never logged."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class PeerUnreachable(Exception):
    """The peer was not heard: no connection, silence, a failure of its own, or an answer that makes no sense."""


class PeerRefused(Exception):
    """The peer understood and declined. ``body`` is its answer, verbatim; ``code`` the code in it, or `http_<status>`.

    may_pass: the same request may be taken later.
    """

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = dict(body)
        code = body.get("code")
        self.is_typed = isinstance(code, str) and 1 <= len(code) <= 64
        self.code: str = code if isinstance(code, str) and self.is_typed else f"http_{status}"
        self.may_pass = status in (401, 408, 425, 429) or body.get("retryable") is True
        super().__init__(self.code)


class RemoteSubAgentClientToolUnsupportedError(Exception):
    """The peer cannot hand on calls that are answered from outside: the delegation fails at once (R-200)."""

    code = "framework_remote_client_tool_unsupported"
    failure_reason = "client-tool-unsupported"


@dataclass(frozen=True)
class PeerCall:
    """An exposed, unanswered call at the peer, with everything that an answer is judged by (R-213)."""

    tool_call_id: str
    tool_name: str
    kind: str
    arguments_json: str
    approval_id: str | None
    deadline_at: datetime | None
    output_schema: dict[str, Any] | None


@dataclass(frozen=True)
class PeerStatus:
    """One reading of a child at its peer.

    ended_as: completed, failed or interrupted once the child is over, else None.  sequence: the peer's place in its
    stream; a reading with a lower one is older.
    """

    sequence: int
    calls: tuple[PeerCall, ...]
    ended_as: str | None = None
    output: Any = None
    error_code: str | None = None


@dataclass(frozen=True)
class PeerClosing:
    """How the peer closed a call: ``answer_kind`` for an answered one, ``reason`` for a discarded one."""

    answer_kind: str | None
    reason: str | None
