"""Write what a model streams as events, few rows for many deltas (R-511, R-512).

A first delta is written at once, so that a reader sees the reply begin; after that at most one write per interval.
The interval is a matter of load, never of outcome: what is left when the reply ends goes out with its record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from helix.loop import CancelToken, Delta, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.tree import Tree, locked
from helix.services.advance.claim import Claim
from helix.statuses import EventType

INTERVAL_SECONDS = 0.25

Pending = tuple[EventType, dict[str, Any]]


class DeltaWriter:
    """Collects deltas of one reply and writes them in order."""

    def __init__(
        self,
        claim: Claim,
        clock: Callable[[], datetime],
        token: CancelToken,
        *,
        is_private: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claim = claim
        self._clock = clock
        self._token = token
        self._is_private = is_private
        self._monotonic = monotonic
        self._written_at: float | None = None
        self._pending: list[Pending] = []
        self._private_calls: set[int] = set()

    def __call__(self, delta: Delta) -> None:
        self._collect(delta)
        written = self._written_at
        if self._pending and (written is None or self._monotonic() - written >= INTERVAL_SECONDS):
            self._flush()

    def rest(self) -> list[Pending]:
        """What was not written yet: it belongs into the commit that records the reply."""
        rest, self._pending = self._pending, []
        return rest

    def _flush(self) -> None:
        """One small transaction; it also reads the stop and the fence, so that every chunk is a checkpoint (Q-21)."""
        try:
            _write_chunk(self._claim, self._pending, self._clock())
        except runs.StopSeen:
            self._token.cancel("stop")
        except runs.LostFence:
            self._token.cancel("superseded")
        else:
            self._pending = []
            self._written_at = self._monotonic()

    def _collect(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._join(EventType.TEXT_DELTA, "delta", delta.text)
        elif isinstance(delta, ThinkingDelta):
            self._join(EventType.THINKING, "content", delta.text, isComplete=delta.is_complete)
        elif isinstance(delta, ToolCallStarted):
            if self._is_private(delta.tool_name):
                self._private_calls.add(delta.index)
                return
            start = {"index": delta.index, "toolCallId": delta.provider_call_id, "toolName": delta.tool_name}
            self._pending.append((EventType.TOOL_ARG_STREAM_START, start))
        elif isinstance(delta, ToolCallDelta) and delta.index not in self._private_calls:
            self._join(EventType.TOOL_ARG_STREAM_DELTA, "delta", delta.text, index=delta.index)

    def _join(self, kind: EventType, key: str, text: str, **rest: Any) -> None:
        """Append to the last pending event when it is of the same block, else begin another."""
        if self._pending:
            last_kind, last = self._pending[-1]
            same = last_kind == kind and last.get("index") == rest.get("index") and not last.get("isComplete")
            if same:
                last[key] += text
                last.update(rest)
                return
        self._pending.append((kind, {key: text, **rest}))


@tried_again
def _write_chunk(claim: Claim, pending: list[Pending], now: datetime) -> None:
    """Raises: `LostFence`, `StopSeen`."""
    with locked(claim.root_id, now) as tree:
        write_pending(tree, runs.fence(tree, claim.run_id, claim.epoch), pending)


def write_pending(tree: Tree, run: Any, pending: list[Pending]) -> None:
    for kind, payload in pending:
        tree.emit(kind, tree.session(run.session_id), run, **payload)
