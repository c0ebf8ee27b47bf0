"""What an operator has to say before something is done."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms

from helix.answers import MAX_ERROR_BYTES, MAX_REASON_BYTES


def _refuse_long(text: str, limit: int) -> None:
    if len(text.encode()) > limit:
        raise forms.ValidationError(f"At most {limit} bytes.")


class ForceFailForm(forms.Form):
    """The words that the model reads as the call's failure (R-665)."""

    error = forms.CharField(
        label="Reason",
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80}),
        help_text="The model reads this text as the failed result of the call.",
    )
    override = forms.BooleanField(
        label="Fail it although its worker is alive",
        required=False,
        help_text="The body may have had effects and may go on having them; its result will be refused.",
    )

    def __init__(self, *args: Any, body_executes: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        if not body_executes:
            del self.fields["override"]

    def clean_error(self) -> str:
        text: str = self.cleaned_data["error"]
        _refuse_long(text, MAX_ERROR_BYTES)
        return text


class ConfirmForm(forms.Form):
    """Nothing has to be said, but a glance at the consequences has to be confirmed."""

    confirmed = forms.BooleanField(label="I have read what will happen")


class StopForm(forms.Form):
    """Why a conversation is stopped; shown to everybody who reads its stream."""

    reason = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3, "cols": 80}))

    def clean_reason(self) -> str:
        text: str = self.cleaned_data["reason"]
        _refuse_long(text, MAX_REASON_BYTES)
        return text


class DeadlineForm(forms.Form):
    """A later deadline, or none (R-241)."""

    deadline_at = forms.DateTimeField(
        label="New deadline (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}, format="%Y-%m-%dT%H:%M:%S"),
    )
    remove = forms.BooleanField(label="Remove the deadline", required=False)

    def __init__(self, *args: Any, now: datetime, **options: Any) -> None:
        super().__init__(*args, **options)
        self._now = now

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        moment, remove = cleaned.get("deadline_at"), cleaned.get("remove")
        if self.errors:
            return cleaned
        if remove:
            cleaned["deadline_at"] = None
        elif moment is None:
            self.add_error("deadline_at", "Say when, or remove the deadline.")
        elif moment <= self._now:
            self.add_error("deadline_at", "That is past. To end the wait now, force-fail the call.")
        return cleaned
