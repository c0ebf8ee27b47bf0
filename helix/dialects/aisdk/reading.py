"""Which turn an assistant message is, and what its page cannot know: read from rows, under the owner's reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from helix import selectors, wire
from helix.dialects.aisdk.page import Page
from helix.dialects.aisdk.translation import Turn
from helix.models import Message, PendingCall, Run, Session, StreamEvent
from helix.statuses import RUN_PAUSED, Role, SessionStatus, StreamStatus

MESSAGE_PREFIX = "msg-"
# SQLite's oldest limit of variables in a statement is 999.
IDS_A_QUERY = 500


def turn_of(root: Session, run: Run, page: Page, **more: Any) -> Turn:
    """The turn that a run belongs to, as it stands; the page's own name for its message is kept (one message, one id).

    Events may have been swept meanwhile; then what comes from now on follows what the page has.
    """
    runs = list(Run.objects.filter(session_id=root.id, turn=run.turn).order_by("number"))
    after, before = runs[0].start_sequence - 1, 0
    if after + 1 < root.stream_floor:
        after, before = root.stream_sequence, page.steps
    return Turn(
        root_id=root.id,
        message_id=page.message_id or f"{MESSAGE_PREFIX}{runs[0].id}",
        after=after,
        run_ids=tuple(str(one.id) for one in runs),
        page=page,
        steps_before=before,
        **more,
    )


def run_of_page(root: Session, page: Page, calls: Mapping[str, PendingCall]) -> Run | None:
    """A run of the turn that the page's message shows; None: the conversation has not begun."""
    named = selectors.as_uuid((page.message_id or "").removeprefix(MESSAGE_PREFIX))
    runs = Run.objects.filter(session_id=root.id)
    if named is not None and (found := runs.filter(pk=named).first()) is not None:
        return found
    own = [call for call in calls.values() if call.session_id == root.id]
    if own:
        return runs.get(pk=max(own, key=lambda call: call.seq).emitted_by_id)
    return root.current_run


def calls_of_page(root: Session, page: Page) -> dict[str, PendingCall]:
    """The calls that the page names, whichever session of the tree owns them."""
    found = PendingCall.objects.filter(root_id=root.id).select_related("session")
    return {
        call.tool_call_id: call
        for ids in _by_pages(list(page.calls))
        for call in found.filter(tool_call_id__in=ids).order_by("seq")
    }


def results_in_log(calls: Sequence[PendingCall]) -> dict[str, dict[str, Any]]:
    """The results of closed calls as a page sees them: ``{"result": …}`` or ``{"error": …}``."""
    found: dict[str, dict[str, Any]] = {}
    rows = Message.objects.filter(role=Role.TOOL, rolled_back_by=None)
    for page in _by_pages(calls):
        ids = [call.tool_call_id for call in page]
        sessions = {call.session_id for call in page}
        for row in rows.filter(session_id__in=sessions, tool_call_id__in=ids):
            part = wire.part(row.parts[0])
            shown = {"error": part["error"]} if "error" in part else {"result": part.get("text", part.get("value"))}
            found[str(row.tool_call_id)] = shown
    return found


def message_of_run(run: Run) -> list[dict[str, Any]]:
    """What the user said when the run began, as its first event tells it; after a lost run also what waited before."""
    event = StreamEvent.objects.filter(root_id=run.session_id, sequence=run.start_sequence).first()
    return [] if event is None else event.payload.get("message", [])


def waits_for_its_caller(root: Session) -> bool:
    """Whether every answer is there and the agent leaves it to the caller to go on (R-143)."""
    run = root.current_run if root.status == SessionStatus.QUEUED else None
    return run is not None and run.status in RUN_PAUSED and run.superseded_by_id is None


def resting_at(root_id: UUID) -> int | None:
    """The newest event of a conversation in which nothing is computed; None: something is.

    One that waits for an answer rests too, even while a sub-agent works: a page sends no answer while it reads.
    """
    with selectors.consistent_read():
        root = Session.objects.select_related("current_run").get(pk=root_id)
        is_waiting = root.status == SessionStatus.AWAITING_CLIENT_TOOL
        if not is_waiting and selectors.stream_status(root, root.current_run) == StreamStatus.ACTIVE:
            return None
        return root.stream_sequence


def _by_pages(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return [rows[start : start + IDS_A_QUERY] for start in range(0, len(rows), IDS_A_QUERY)]
