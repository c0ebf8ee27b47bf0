"""The form under each request of the inbox. Its hidden fields say what was shown, not only what was pressed."""

from __future__ import annotations

from django import forms

from approvals.services import Decision

MAX_ID_CHARACTERS = 300
# Characters; the door counts bytes and refuses the rest.
MAX_REASON_CHARACTERS = 8192


class DecisionForm(forms.Form):
    """One verdict. Anything missing makes it no verdict at all."""

    session_id = forms.CharField(max_length=MAX_ID_CHARACTERS)
    tool_call_id = forms.CharField(max_length=MAX_ID_CHARACTERS, strip=False)
    approval_id = forms.CharField(max_length=MAX_ID_CHARACTERS, strip=False)
    arguments_digest = forms.CharField(max_length=64)
    verdict = forms.ChoiceField(choices=[("approve", "Approve"), ("deny", "Deny")])
    reason = forms.CharField(max_length=MAX_REASON_CHARACTERS, required=False)

    def decision(self) -> Decision:
        """What the reviewer decided. Only after ``is_valid``."""
        given = self.cleaned_data
        return Decision(
            session_id=given["session_id"],
            tool_call_id=given["tool_call_id"],
            approval_id=given["approval_id"],
            arguments_digest=given["arguments_digest"],
            approved=given["verdict"] == "approve",
            reason=given["reason"],
        )
