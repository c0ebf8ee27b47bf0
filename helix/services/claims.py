"""The one-time dispatch claim of a client tool: whoever wins runs the handler, for good (I-20, R-712)."""

from __future__ import annotations

from datetime import datetime

from helix import selectors
from helix.errors import UnknownToolCall
from helix.models import PendingCall
from helix.principals import Principal
from helix.rows.attempts import tried_again
from helix.rows.tree import locked
from helix.statuses import CallKind, CallState


@tried_again
def claim_call(*, principal: Principal, session_id: str, tool_call_id: str, claimant: str, now: datetime) -> bool:
    """True for the first claimant of a pending client call, and for nobody ever after (no expiry).

    A claim is not an answer: anybody with the right may still submit (I-46).
    Raises: `UnknownToolCall` for a call that is out of reach, no client call, or closed.
    """
    found = selectors.call_for(principal, session_id, tool_call_id)
    with locked(found.root_id, now):
        won = PendingCall.objects.filter(
            pk=found.pk, kind=CallKind.CLIENT, state=CallState.AWAITING, claimed_by=None
        ).update(claimed_by=claimant, claimed_at=now)
        if won:
            return True
        call = PendingCall.objects.get(pk=found.pk)
    if call.kind != CallKind.CLIENT or call.state != CallState.AWAITING:
        raise UnknownToolCall("There is no such open client call.", toolCallId=tool_call_id)
    return False
