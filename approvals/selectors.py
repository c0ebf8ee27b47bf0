"""What the inbox shows: the approvals that somebody may decide, oldest wait first (I-49), and who waits for what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Q

from helix import clock, jsontext, wire
from helix.agents import lookup
from helix.errors import HelixError
from helix.models import PendingCall, Session
from helix.principals import Principal
from helix.selectors import agent_path, awaiting_sessions, remote_deadlines, reviewable_calls

PAGE = 50


@dataclass(frozen=True)
class Argument:
    """One argument as a reviewer reads it; ``value`` is a text, or JSON on several lines."""

    name: str
    value: str


@dataclass(frozen=True)
class InboxItem:
    """One approval: the call, who asks and for whom, and everything that the verdict has to name."""

    call: PendingCall
    shown: dict[str, Any]
    started_by: str
    summary: str
    arguments: list[Argument]

    @property
    def path(self) -> str:
        return " › ".join(self.shown["agentPath"])


@dataclass(frozen=True)
class InboxPage:
    """``total`` counts all pages, by the same condition as the rows. ``next_cursor`` is empty on the last page."""

    items: list[InboxItem]
    total: int
    next_cursor: str


def inbox(principal: Principal, *, cursor: str = "", limit: int = PAGE) -> InboxPage:
    """One page of the inbox. A cursor names the last row that was seen, so that answered rows hide nobody (I-35)."""
    calls = reviewable_calls(principal)
    total = calls.count()
    if (seen := _read_cursor(cursor)) is not None:
        exposed_at, call_id = seen
        calls = calls.filter(Q(exposed_at__gt=exposed_at) | Q(exposed_at=exposed_at, pk__gt=call_id))
    rows = list(calls.select_related("root", "session", "emitted_by").order_by("exposed_at", "id")[: limit + 1])
    page = rows[:limit]
    names = _names(call.emitted_by.started_by for call in page)
    items = [_item(call, names) for call in page]
    return InboxPage(items, total, _cursor(page[-1]) if len(rows) > limit else "")


def waiting_conversations(principal: Principal, *, limit: int = PAGE) -> list[Session]:
    """The principal's own conversations that await somebody outside, oldest wait first (I-32)."""
    return list(awaiting_sessions(principal)[:limit])


def _item(call: PendingCall, names: dict[str, str]) -> InboxItem:
    starter = call.emitted_by.started_by
    arguments = _parsed(call)
    at_peer = [call.tool_call_id] if call.session.is_remote else []
    return InboxItem(
        call=call,
        shown=wire.pending_tool(call, agent_path(call.session), remote_deadlines(call.root_id, at_peer)),
        started_by=names.get(starter, starter),
        summary=_summary(call, arguments),
        arguments=[Argument(name, _readable(value)) for name, value in arguments.items()],
    )


def _parsed(call: PendingCall) -> dict[str, Any]:
    """The arguments in the model's order, read from its exact text: a database may order an object's keys anew.

    Empty when the text cannot be read alike by everybody; the page shows the text itself in any case (R-053).
    """
    try:
        arguments = jsontext.loads(call.arguments_json)
    except jsontext.JsonRefused:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _readable(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _summary(call: PendingCall, arguments: dict[str, Any]) -> str:
    """The tool's template filled with plain arguments; empty when it has none or is gone."""
    try:
        tool = lookup(call.session.agent_type).tool(call.tool_name)
    except HelixError:
        return ""
    if tool is None or tool.summary is None or not arguments:
        return ""
    # No str.format: a template must not reach into objects, and a brace in an argument is only text.
    return re.sub(r"{(\w+)}", lambda found: _inline(arguments.get(found[1], found[0])), tool.summary)


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.dumps(value)


def _names(ids: Iterable[str]) -> dict[str, str]:
    """Login names by principal id, for those who are users here; one query."""
    users = get_user_model()
    keys: dict[Any, str] = {}
    for one in set(ids):
        try:
            keys[users._meta.pk.to_python(one)] = one
        except ValidationError:
            continue  # another installation's id; it is shown as it is
    return {keys[key]: user.get_username() for key, user in users._default_manager.in_bulk(keys).items()}


def _cursor(call: PendingCall) -> str:
    return f"{call.exposed_at:%Y-%m-%dT%H:%M:%S.%f%z}~{call.pk}"


def _read_cursor(text: str) -> tuple[datetime, UUID] | None:
    """None: no cursor, or one that nobody was given; the list then begins at its start."""
    instant, _, call_id = text.partition("~")
    try:
        exposed_at, key = clock.in_utc(datetime.fromisoformat(instant)), UUID(call_id)
    except ValueError:
        return None
    return None if exposed_at is None else (exposed_at, key)
