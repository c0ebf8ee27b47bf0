"""What accumulates: the stream, checkpoints, usage, debts to peers, and the marks of the sweeps."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from helix.admin.inspection import Inspection, column
from helix.admin.interventions import Intervening, Rewind
from helix.admin.shown import as_text, link
from helix.models import Checkpoint, RemoteChild, RemoteDebt, StreamEvent, SweepMark, UsageRecord


@admin.register(StreamEvent)
class StreamEventAdmin(Inspection):
    """The stream as clients read it. Values of private tools never enter it (R-395)."""

    uuid_keys = ("root_id", "session_id", "run_id")
    text_keys = ("type",)
    list_display = ("id", "of_root", "sequence", "type", "step", "created_at")
    list_filter = ("type",)
    ordering = ("-id",)
    fields = ("of_root", "sequence", "of_session", "of_run", "step", "type", "shown_payload", "created_at")
    readonly_fields = ("of_root", "of_session", "of_run", "shown_payload")

    @column("root")
    def of_root(self, event: StreamEvent) -> SafeString:
        return link("session", event.root_id)

    @column("session")
    def of_session(self, event: StreamEvent) -> SafeString:
        return link("session", event.session_id)

    @column("run")
    def of_run(self, event: StreamEvent) -> SafeString:
        return link("run", event.run_id)

    @column("payload")
    def shown_payload(self, event: StreamEvent) -> SafeString:
        return as_text(event.payload)


@admin.register(Checkpoint)
class CheckpointAdmin(Intervening):
    """What a session was after a step. Of its calls only ids and states are shown."""

    interventions = (Rewind(),)
    key = "int"
    list_select_related = ("session",)
    uuid_keys = ("session_id", "run_id")
    text_keys = ("checkpoint_id",)
    list_display = ("checkpoint_id", "of_session", "step_count", "stream_sequence", "created_at")
    ordering = ("-id",)
    fields = (
        "checkpoint_id",
        "of_session",
        "of_run",
        "step_count",
        "message_position",
        "stream_sequence",
        "shown_calls",
        "shown_state",
        "created_at",
    )
    readonly_fields = ("of_session", "of_run", "shown_calls", "shown_state")

    @column("session")
    def of_session(self, checkpoint: Checkpoint) -> SafeString:
        return link("session", checkpoint.session_id)

    @column("run")
    def of_run(self, checkpoint: Checkpoint) -> SafeString:
        return link("run", checkpoint.run_id)

    @column("open calls")
    def shown_calls(self, checkpoint: Checkpoint) -> SafeString:
        return as_text({call["toolCallId"]: call["state"] for call in checkpoint.calls})

    @column("custom state")
    def shown_state(self, checkpoint: Checkpoint) -> SafeString:
        return as_text(checkpoint.state)


@admin.register(UsageRecord)
class UsageRecordAdmin(Inspection):
    """One measured thing (R-630)."""

    uuid_keys = ("root_id", "session_id", "run_id")
    text_keys = ("source_type", "source_name")
    list_display = ("id", "of_root", "kind", "source_type", "source_name", "step_count", "shown_data")
    list_filter = ("kind",)
    ordering = ("-id",)
    fields = ("of_root", "of_run", "timestamp", "step_count", "kind", "source_type", "source_name", "shown_data")
    readonly_fields = ("of_root", "of_run", "shown_data")

    @column("root")
    def of_root(self, usage: UsageRecord) -> SafeString:
        return link("session", usage.root_id)

    @column("run")
    def of_run(self, usage: UsageRecord) -> SafeString:
        return link("run", usage.run_id)

    @column("data")
    def shown_data(self, usage: UsageRecord) -> SafeString:
        return as_text(usage.data)


@admin.register(RemoteDebt)
class RemoteDebtAdmin(Inspection):
    """An answer or a stop that is still owed to a peer (R-203, R-214)."""

    uuid_keys = ("call_id", "call__root_id")
    text_keys = ("delegation_id",)
    list_display = ("id", "kind", "state", "url", "attempts", "next_attempt_at", "window_ends_at")
    list_filter = ("state", "kind")
    ordering = ("-id",)
    fields = (
        "kind",
        "state",
        "of_call",
        "delegation_id",
        "url",
        "attempts",
        "next_attempt_at",
        "window_ends_at",
        "last_error",
    )
    readonly_fields = ("of_call",)

    @column("call")
    def of_call(self, debt: RemoteDebt) -> SafeString:
        return link("pendingcall", debt.call_id)


@admin.register(RemoteChild)
class RemoteChildAdmin(Inspection):
    """A sub-agent that a peer runs, and when the peer was last heard (R-202, R-213)."""

    uuid_keys = ("session_id", "session__root_id")
    text_keys = ("delegation_id", "remote_session_id")
    list_display = ("delegation_id", "of_root", "state", "at_peer", "last_heard_at", "silent_since", "next_attempt_at")
    list_filter = ("state",)
    list_select_related = ("session",)
    ordering = ("-session__created_at",)
    fields = (
        "of_root",
        "of_session",
        "at_peer",
        "delegation_id",
        "remote_session_id",
        "state",
        "cursor",
        "last_heard_at",
        "silent_since",
        "last_attempt_at",
        "next_attempt_at",
        "quiet_attempts",
        "last_error",
    )
    readonly_fields = ("of_root", "of_session", "at_peer")

    @column("root")
    def of_root(self, child: RemoteChild) -> SafeString:
        return link("session", child.session.root_id)

    @column("session")
    def of_session(self, child: RemoteChild) -> SafeString:
        return link("session", child.session_id)

    @column("peer")
    def at_peer(self, child: RemoteChild) -> str | None:
        return child.session.remote_url


@admin.register(SweepMark)
class SweepMarkAdmin(Inspection):
    """When each sweep last finished; past its grace it shifts deadlines before it judges them (T-7)."""

    text_keys = ("name",)
    list_display = ("name", "last_completed_at")
    ordering = ("name",)
