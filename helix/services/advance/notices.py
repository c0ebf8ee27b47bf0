"""What has to enter the log before the model is asked: a message that waited, and notices of late answers.

A notice is a message row written with a message commit, so it cannot be sent twice (R-272, R-274).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from helix.loop.texts import late_notice
from helix.models import PendingCall, Run
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.log import append_message
from helix.rows.tree import locked
from helix.services.advance.claim import Claim
from helix.statuses import Role


@tried_again
def take_in(claim: Claim, clock: Callable[[], datetime]) -> None:
    """Write what waits; nothing is locked or written when nothing does. Raises: `LostFence`, `StopSeen`."""
    waits = Run.objects.filter(pk=claim.run_id, entry_message__isnull=False).exists()
    if not waits and not _late_calls(claim).exists():
        return
    with locked(claim.root_id, clock()) as tree:
        run = runs.fence(tree, claim.run_id, claim.epoch)
        session = tree.session(claim.session_id)
        for call in _late_calls(claim).order_by("seq"):
            text = late_notice(call.tool_name, call.tool_call_id, call.late_answer_json or "null")
            notice = append_message(tree, session, run, Role.NOTICE, [{"type": "text", "text": text}], hidden=True)
            call.late_notice = notice
            call.save(update_fields=["late_notice"])
        if run.entry_message:
            append_message(tree, session, run, Role.USER, run.entry_message)
            runs.update_run(run, entry_message=None)


def _late_calls(claim: Claim):  # type: ignore[no-untyped-def]
    return PendingCall.objects.filter(
        session_id=claim.session_id, late_answered_at__isnull=False, late_notice__isnull=True
    )
