"""Sessions and runs in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from helix.admin.explanation import explain
from helix.admin.inspection import Inspection, column
from helix.admin.interventions import Abort, Interrupt, Intervening
from helix.admin.shown import as_text, link
from helix.clock import utc_now
from helix.models import Run, Session


@admin.register(Session)
class SessionAdmin(Intervening):
    """A conversation or a sub-agent's session; its page explains the whole tree (R-667)."""

    interventions = (Interrupt(), Abort())
    uuid_keys = ("id", "root_id")
    text_keys = ("owner", "client_id")
    list_display = ("id", "agent_type", "owner", "status", "waiting_since", "of_root", "updated_at")
    list_filter = ("status",)
    ordering = ("-created_at",)
    fieldsets = (
        (None, {"fields": ("id", "client_id", "owner", "agent_type", "status", "waiting_since", "of_run")}),
        ("Tree", {"fields": ("of_root", "of_parent", "of_parent_call", "delegation_id")}),
        ("Declared", {"fields": ("max_open_calls", "continue_on_submit", "shown_tags", "shown_metadata")}),
        ("State", {"fields": ("shown_state", "version", "stream_sequence", "stream_floor", "message_position")}),
        ("Life", {"fields": ("created_at", "updated_at", "expires_at")}),
    )
    readonly_fields = (
        "of_run",
        "of_root",
        "of_parent",
        "of_parent_call",
        "shown_tags",
        "shown_metadata",
        "shown_state",
    )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page with the explanation of the tree that the session belongs to."""
        session = self.get_object(request, object_id)
        if session is not None and self.has_view_permission(request, session):
            extra_context = {**(extra_context or {}), "explanation": explain(session.root, utc_now())}
        return super().change_view(request, object_id, form_url, extra_context)

    @column("current run")
    def of_run(self, session: Session) -> SafeString:
        return link("run", session.current_run_id)

    @column("root")
    def of_root(self, session: Session) -> SafeString:
        return SafeString("itself") if session.is_root else link("session", session.root_id)

    @column("parent")
    def of_parent(self, session: Session) -> SafeString:
        return link("session", session.parent_id)

    @column("parent call")
    def of_parent_call(self, session: Session) -> SafeString:
        return link("pendingcall", session.parent_call_id)

    @column("tags")
    def shown_tags(self, session: Session) -> SafeString:
        return as_text(session.tags)

    @column("metadata")
    def shown_metadata(self, session: Session) -> SafeString:
        return as_text(session.metadata)

    @column("custom state")
    def shown_state(self, session: Session) -> SafeString:
        return as_text(session.state)


@admin.register(Run)
class RunAdmin(Inspection):
    """One execution and the lease of whoever holds it."""

    uuid_keys = ("id", "session_id", "session__root_id")
    text_keys = ("lease__holder",)
    list_display = ("id", "of_session", "number", "cause", "status", "of_lease", "error_code", "queued_at")
    list_filter = ("status", "cause", "stop_kind")
    list_select_related = ("lease",)
    ordering = ("-queued_at",)
    fieldsets = (
        (None, {"fields": ("id", "of_session", "number", "turn", "step_count", "cause", "started_by", "status")}),
        ("Chain", {"fields": ("of_continues", "of_superseding")}),
        ("Holder", {"fields": ("of_lease", "epoch", "crash_count", "model_attempts", "next_attempt_at")}),
        (
            "Stop",
            {
                "fields": (
                    "stop_kind",
                    "stop_requested_by",
                    "stop_reason",
                    "stop_requested_at",
                    "stop_resolved_at",
                )
            },
        ),
        ("End", {"fields": ("error_code", "shown_error", "shown_output", "finished_by_tool")}),
        ("Life", {"fields": ("start_sequence", "queued_at", "started_at", "ended_at")}),
    )
    readonly_fields = ("of_session", "of_continues", "of_superseding", "of_lease", "shown_error", "shown_output")

    @column("session")
    def of_session(self, run: Run) -> SafeString:
        return link("session", run.session_id)

    @column("continues")
    def of_continues(self, run: Run) -> SafeString:
        return link("run", run.continues_id)

    @column("superseded by")
    def of_superseding(self, run: Run) -> SafeString:
        return link("run", run.superseded_by_id)

    @column("lease")
    def of_lease(self, run: Run) -> str | None:
        lease = getattr(run, "lease", None)
        return f"{lease.holder}, epoch {lease.epoch}, until {lease.expires_at:%Y-%m-%d %H:%M:%S} UTC" if lease else None

    @column("error detail")
    def shown_error(self, run: Run) -> SafeString:
        return as_text(run.error_detail)

    @column("output")
    def shown_output(self, run: Run) -> SafeString:
        return as_text(run.output)
