"""How a value looks on a page: pretty, bounded, and hidden where it belongs to a private tool (R-396)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from helix import jsontext
from helix.admin.operators import may_view_private
from helix.models import CallAudit, PendingCall
from helix.rows.calls import PLACEHOLDER

MOST_CHARACTERS = 20_000
EMPTY = "-"


def as_text(value: Any) -> SafeString:
    """A JSON value, indented; the end of a very long one is left out and counted."""
    if value is None:
        return SafeString(EMPTY)
    return _bounded(json.dumps(value, indent=2, ensure_ascii=False))


def stored_text(text: str | None) -> SafeString:
    """A text from a row; indented when it is JSON, word for word when it is not."""
    if text is None:
        return SafeString(EMPTY)
    try:
        return as_text(jsontext.loads(text, unique_keys=False))
    except jsontext.JsonRefused:
        return _bounded(text)


def _bounded(text: str) -> SafeString:
    left_out = len(text) - MOST_CHARACTERS
    if left_out > 0:
        text = f"{text[:MOST_CHARACTERS]}\n… and {left_out} more characters"
    return format_html("<pre>{}</pre>", text)


@dataclass(frozen=True)
class CallText:
    """A field of a page about a call: one of its values, hidden when its tool is private and this request may not look.

    Pages make one per request. Two for the same look are equal, which is how Django finds a computed field again.
    """

    column: str
    short_description: str
    reveals: bool

    @property
    def __name__(self) -> str:
        return self.column

    def __call__(self, row: PendingCall | CallAudit) -> SafeString:
        call = row.call if isinstance(row, CallAudit) else row
        value = getattr(row, self.column)
        if value is not None and call.private and not self.reveals:
            return SafeString(PLACEHOLDER)
        return stored_text(value) if isinstance(value, str) else as_text(value)


def call_texts(request: HttpRequest, *columns: tuple[str, str]) -> tuple[CallText, ...]:
    """Fields for (column, title), as this request may see them."""
    reveals = may_view_private(request)
    return tuple(CallText(column, title, reveals) for column, title in columns)


def link(model: str, key: UUID | int | str | None, label: str | None = None) -> SafeString:
    """A link to the page of another row, without reading it."""
    if key is None:
        return SafeString(EMPTY)
    return format_html('<a href="{}">{}</a>', reverse(f"admin:helix_{model}_change", args=[key]), label or str(key))
