"""Decide one approval through the same door as every other client: same order of refusals, same rate (R-168, R-323)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helix.operations import perform
from helix.principals import Principal

SUBMIT = "submit-tool-result"


@dataclass(frozen=True)
class Decision:
    """A reviewer's verdict with everything that was shown to the reviewer: the digest is always sent (R-179)."""

    session_id: str
    tool_call_id: str
    approval_id: str
    arguments_digest: str
    approved: bool
    reason: str = ""

    def as_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "approval-response",
            "toolCallId": self.tool_call_id,
            "approvalId": self.approval_id,
            "argumentsDigest": self.arguments_digest,
            "approved": self.approved,
        }
        if self.reason:
            body["reason"] = self.reason
        return body


def decide(*, principal: Principal, decision: Decision, now: datetime) -> str:
    """Store the verdict; returns the status word: accepted, already_completed or late_answer_after_timeout.

    Raises: the refusals of a submit, as `HelixError`; nothing is stored then.
    """
    reply = perform(
        SUBMIT, principal=principal, session_id=decision.session_id, body=decision.as_body(), door="inbox", now=now
    )
    status: str = reply.body["status"]
    return status
