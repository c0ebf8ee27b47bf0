"""Retry a failed turn from its last committed point (5.P)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from helix import selectors
from helix.errors import AlreadyRunning, NotResumable
from helix.models import Message, Run, StreamEvent
from helix.principals import Principal
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.tree import Tree, locked
from helix.statuses import SESSION_BUSY, EventType, Role, RunCause, RunStatus

# What a reader has seen of a step that was never committed.
_UNCOMMITTED = (
    EventType.TEXT_DELTA,
    EventType.THINKING,
    EventType.TOOL_ARG_STREAM_START,
    EventType.TOOL_ARG_STREAM_DELTA,
)


@tried_again
def retry_run(
    *, principal: Principal, session_id: str, now: datetime, message: list[dict[str, Any]] | None = None
) -> runs.Entered:
    """Queue a new run after a failed one, with a fresh step budget; answers that were given are kept (R-565).

    message: needed when the failed run committed a step (R-492); without one it runs again from its own input.
    Raises: `NotFound`; `AlreadyRunning`; `NotResumable` when nothing failed, the run was aborted (R-495), or a
    message is needed. A retry never touches a turn that another entry finished (R-497).
    """
    session = selectors.session_for(principal, session_id)
    with locked(session.id, now) as tree:
        run = tree.current_run(tree.root)
        if tree.root.status in SESSION_BUSY:
            raise AlreadyRunning("A turn is running.", runId=str(run.id) if run else None)
        if run is None or run.status != RunStatus.FAILED:
            raise NotResumable("No turn has failed.", cause="not_failed")
        if run.error_code == "framework_cancelled":
            raise NotResumable("The turn was aborted; send a new message.", cause="aborted", runId=str(run.id))
        if message is None and _has_committed(run):
            raise NotResumable("The failed turn had committed steps; say how to go on.", cause="message_needed")
        waiting = [*(run.entry_message or []), *(message or [])]
        new = runs.start_run(
            tree,
            tree.root,
            cause=RunCause.RETRY,
            started_by=principal.id,
            continues=run,
            same_turn=message is None,
            fresh_budget=True,
            entry_message=waiting or None,
        )
        runs.take_over_calls(tree, run, new)
        if _was_seen_further(tree, run):
            tree.emit(EventType.STREAM_RESYNC, tree.root, new, reason="retry")
        return runs.entered(tree, new)


def _has_committed(run: Run) -> bool:
    return Message.objects.filter(
        session_id=run.session_id, run_id=run.id, role=Role.ASSISTANT, rolled_back_by=None
    ).exists()


def _was_seen_further(tree: Tree, run: Run) -> bool:
    """Whether readers got deltas that no commit stands behind: they have to read the snapshot again (R-493, R-522)."""
    events = StreamEvent.objects.filter(root_id=tree.root.id, run_id=run.id)
    committed = events.filter(type=EventType.STEP_COMMITTED).order_by("-sequence").first()
    after = committed.sequence if committed else 0
    return events.filter(type__in=_UNCOMMITTED, sequence__gt=after).exists()
