"""Calls in the console, with what leads to them, remembers them and audits them. Private values are hidden (R-396)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from helix.admin.explanation import explained_call
from helix.admin.inspection import Inspection, column
from helix.admin.interventions import ForceFail, Intervening, MoveDeadline
from helix.admin.shown import call_texts, link
from helix.clock import utc_now
from helix.models import CallAudit, CallOwnership, CallTombstone, PendingCall


@admin.register(PendingCall)
class PendingCallAdmin(Intervening):
    """One call of a reply, from the model's words to its result."""

    interventions = (ForceFail(), MoveDeadline())
    uuid_keys = ("id", "root_id", "session_id", "run_id")
    text_keys = ("tool_call_id", "tool_name", "root__owner", "approval_id")
    list_display = ("tool_call_id", "tool_name", "kind", "state", "owned_by", "of_root", "exposed_at", "deadline_at")
    list_filter = ("state", "kind", "answer_kind", "discard_reason", "private")
    list_select_related = ("root",)
    ordering = ("-created_at",)
    computed = ("waits_for", "owned_by", "of_root", "of_session", "of_run", "of_emitting_run")

    def get_fieldsets(self, request: HttpRequest, obj: PendingCall | None = None) -> Any:
        return (
            (None, {"fields": ("tool_call_id", "tool_name", "kind", "private", "state", "waits_for")}),
            ("Belongs to", {"fields": ("owned_by", "of_root", "of_session", "of_run", "of_emitting_run", "seq")}),
            ("Asked", {"fields": (*self._asked(request), "arguments_digest", "provider_call_id")}),
            ("Answered", {"fields": (*self._answered(request), "answer_kind", "error_code", "answered_at")}),
            ("Wait", {"fields": ("exposed_at", "deadline_at", "wait_ms", "wait_from", "claimed_by", "claimed_at")}),
            ("Approval", {"fields": ("approval_id", "forbid_self_approval")}),
            ("Body", {"fields": ("body_started_at", "body_attempts", "replay_safe")}),
            ("End", {"fields": ("settled_at", "discard_reason", "retention_ms", "created_at")}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: PendingCall | None = None) -> tuple[Any, ...]:
        return (*self.computed, *self._asked(request), *self._answered(request))

    def _asked(self, request: HttpRequest) -> tuple[Any, ...]:
        return call_texts(
            request, ("arguments_json", "arguments"), ("edited_arguments_json", "arguments as a reviewer edited them")
        )

    def _answered(self, request: HttpRequest) -> tuple[Any, ...]:
        return call_texts(
            request, ("answer_json", "answer"), ("answer_error", "error"), ("late_answer_json", "late answer")
        )

    @column("waits for")
    def waits_for(self, call: PendingCall) -> str:
        return explained_call(call, utc_now()).waits_for

    @column("owner")
    def owned_by(self, call: PendingCall) -> str:
        return call.root.owner

    @column("root")
    def of_root(self, call: PendingCall) -> SafeString:
        return link("session", call.root_id)

    @column("session")
    def of_session(self, call: PendingCall) -> SafeString:
        return link("session", call.session_id)

    @column("run")
    def of_run(self, call: PendingCall) -> SafeString:
        return link("run", call.run_id)

    @column("emitted by")
    def of_emitting_run(self, call: PendingCall) -> SafeString:
        return link("run", call.emitted_by_id)


@admin.register(CallAudit)
class CallAuditAdmin(Inspection):
    """Who did what to a call, when and through which door (B-31)."""

    uuid_keys = ("call_id", "call__root_id")
    text_keys = ("call__tool_call_id", "actor", "action")
    list_display = ("at", "action", "actor", "door", "of_call")
    list_filter = ()
    list_select_related = ("call",)
    ordering = ("-id",)

    def get_fieldsets(self, request: HttpRequest, obj: CallAudit | None = None) -> Any:
        shown = ("at", "action", "actor", "door", "address", "of_call", *self._changes(request))
        return ((None, {"fields": shown}),)

    def get_readonly_fields(self, request: HttpRequest, obj: CallAudit | None = None) -> tuple[Any, ...]:
        return ("of_call", *self._changes(request))

    def _changes(self, request: HttpRequest) -> tuple[Any, ...]:
        return call_texts(request, ("before", "before"), ("after", "after"))

    @column("call")
    def of_call(self, row: CallAudit) -> SafeString:
        return link("pendingcall", row.call_id, str(row.call))


class OfRoot(Inspection):
    """A row that is found by its root and its call id, perhaps by the session that owns the call."""

    uuid_keys: tuple[str, ...] = ("root_id",)
    text_keys: tuple[str, ...] = ("tool_call_id",)
    ordering = ("-id",)
    readonly_fields = ("of_root", "of_owner")

    @column("root")
    def of_root(self, row: CallTombstone | CallOwnership) -> SafeString:
        return link("session", row.root_id)

    @column("owning session")
    def of_owner(self, row: CallOwnership) -> SafeString:
        return link("session", row.owner_session_id)


@admin.register(CallTombstone)
class CallTombstoneAdmin(OfRoot):
    """What is remembered of a consumed call; it holds no answer (R-266)."""

    list_display = ("tool_call_id", "of_root", "settled_as", "completed_at", "expires_at")
    list_filter = ("settled_as",)
    fields = ("tool_call_id", "of_root", "settled_as", "completed_at", "expires_at")


@admin.register(CallOwnership)
class CallOwnershipAdmin(OfRoot):
    """Where answers for an open call go: a session of the tree, or a peer."""

    uuid_keys = ("root_id", "owner_session_id")
    text_keys = ("tool_call_id", "delegation_id", "remote_session_id")
    list_display = ("tool_call_id", "of_root", "of_owner", "remote_url", "created_at")
    fields = (
        "tool_call_id",
        "of_root",
        "of_owner",
        "remote_url",
        "remote_session_id",
        "remote_tool_call_id",
        "remote_approval_id",
        "remote_deadline_at",
        "delegation_id",
        "created_at",
    )
