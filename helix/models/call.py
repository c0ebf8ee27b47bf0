"""PendingCall: one row per call of a reply, and the rows that lead to it, remember it and audit it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from helix.statuses import CALL_EXTERNAL, AnswerKind, CallKind, CallState, DiscardReason

from .columns import choice, exactly_when, identity, one_of

_ANSWERED = Q(state__in=[CallState.ANSWERED.value, CallState.CONSUMED.value])
_AWAITING = Q(state=CallState.AWAITING)


class PendingCall(models.Model):
    id = identity()
    root = models.ForeignKey("helix.Session", models.CASCADE, related_name="tree_calls", db_index=False)
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="calls", db_index=False)
    # The fence: the run that an answer has to meet; moves at a take-over of calls. `emitted_by` never moves.
    run = models.ForeignKey("helix.Run", models.CASCADE, related_name="calls", db_index=False)
    emitted_by = models.ForeignKey("helix.Run", models.CASCADE, related_name="emitted_calls", db_index=False)

    tool_call_id = models.CharField(max_length=256)
    provider_call_id = models.CharField(max_length=256, null=True)
    tool_name = models.CharField(max_length=256)
    kind = choice(CallKind)
    private = models.BooleanField(default=False)
    replay_safe = models.BooleanField(default=False)
    forbid_self_approval = models.BooleanField(default=False)
    step_id = models.CharField(max_length=64)
    seq = models.PositiveBigIntegerField()

    arguments_json = models.TextField()
    arguments = models.JSONField(null=True)
    arguments_digest = models.CharField(max_length=64)
    edited_arguments_json = models.TextField(null=True)

    state = choice(CallState, default=CallState.HELD)
    answer_kind = choice(AnswerKind, null=True)
    answer_json = models.TextField(null=True)
    answer_error = models.TextField(null=True)
    error_code = models.CharField(max_length=64, null=True)
    answered_at = models.DateTimeField(null=True)

    wait_ms = models.PositiveBigIntegerField(null=True)
    wait_from = models.CharField(max_length=16, default="", blank=True)
    exposed_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)

    approval_id = models.CharField(max_length=300, null=True, unique=True)
    retention_ms = models.PositiveBigIntegerField(default=0)
    output_schema = models.JSONField(null=True)
    schema_digest = models.CharField(max_length=64, default="", blank=True)

    body_started_at = models.DateTimeField(null=True)
    body_attempts = models.PositiveIntegerField(default=0)

    claimed_by = models.CharField(max_length=256, null=True)
    claimed_at = models.DateTimeField(null=True)

    late_answer_json = models.TextField(null=True)
    late_answered_at = models.DateTimeField(null=True)
    late_notice = models.ForeignKey("helix.Message", models.SET_NULL, related_name="+", null=True, db_index=False)

    settled_at = models.DateTimeField(null=True)
    discard_reason = choice(DiscardReason, null=True)
    trace_context = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            one_of("helix_call_state", "state", CallState),
            one_of("helix_call_kind", "kind", CallKind),
            one_of("helix_call_answer_kind", "answer_kind", AnswerKind, null=True),
            one_of("helix_call_discard", "discard_reason", DiscardReason, null=True),
            models.UniqueConstraint(name="helix_call_once_per_tree", fields=["root", "tool_call_id"]),
            # T-2: no clock on our own work.
            models.CheckConstraint(
                name="helix_call_deadline_external",
                condition=Q(deadline_at__isnull=True) | Q(kind__in=[k.value for k in CALL_EXTERNAL]),
            ),
            exactly_when("helix_call_approval_id", Q(approval_id__isnull=False), Q(kind=CallKind.APPROVAL)),
            exactly_when("helix_call_discard_reason", Q(discard_reason__isnull=False), Q(state=CallState.DISCARDED)),
            models.CheckConstraint(
                name="helix_call_resolved_has_answer",
                condition=~_ANSWERED | (Q(answered_at__isnull=False) & Q(answer_kind__isnull=False)),
            ),
            models.CheckConstraint(
                name="helix_call_awaiting_is_exposed", condition=~_AWAITING | Q(exposed_at__isnull=False)
            ),
        ]
        indexes = [
            # read by selectors.lapsed_calls: the deadline sweep
            models.Index(
                name="helix_call_due", fields=["deadline_at"], condition=_AWAITING & Q(deadline_at__isnull=False)
            ),
            # read by selectors.pending_tools
            models.Index(name="helix_call_pending", fields=["root", "seq"], condition=_AWAITING),
            # read by rows.tree: the oldest wait of a session
            models.Index(name="helix_call_waiting", fields=["session", "exposed_at"], condition=_AWAITING),
            # read by rows: batch and drain
            models.Index(name="helix_call_batch", fields=["session", "state"]),
            # read by services.advance: late answers that the model has not been told of
            models.Index(
                name="helix_call_late",
                fields=["session"],
                condition=Q(late_answered_at__isnull=False) & Q(late_notice__isnull=True),
            ),
            # read by rows.calls.expose: the next held call of a tree with max_open_calls
            models.Index(name="helix_call_held", fields=["root", "seq"], condition=Q(state=CallState.HELD)),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.tool_call_id}"

    @property
    def is_external(self) -> bool:
        return self.kind in CALL_EXTERNAL


class CallOwnership(models.Model):
    """Leads from (root, call id) to the session that owns the call, or to a remote address (R-191, R-193)."""

    root = models.ForeignKey("helix.Session", models.CASCADE, related_name="+", db_index=False)
    tool_call_id = models.CharField(max_length=256)
    owner_session = models.ForeignKey("helix.Session", models.CASCADE, related_name="owned_calls", null=True)
    remote_url = models.URLField(max_length=2048, null=True)
    remote_session_id = models.CharField(max_length=256, null=True)
    remote_tool_call_id = models.CharField(max_length=256, null=True)
    remote_approval_id = models.CharField(max_length=300, null=True)
    remote_deadline_at = models.DateTimeField(null=True)
    delegation_id = models.CharField(max_length=256, null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="helix_ownership_once", fields=["root", "tool_call_id"]),
            exactly_when("helix_ownership_one_form", Q(owner_session__isnull=True), Q(remote_url__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.tool_call_id} of {self.root_id}"


class CallTombstone(models.Model):
    """Remembers a consumed call, so that a repeat is recognised. Holds no answer (R-266)."""

    root = models.ForeignKey("helix.Session", models.CASCADE, related_name="+", db_index=False)
    tool_call_id = models.CharField(max_length=256)
    settled_as = choice(AnswerKind)
    completed_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="helix_tombstone_once", fields=["root", "tool_call_id"]),
            one_of("helix_tombstone_settled_as", "settled_as", AnswerKind),
        ]
        indexes = [
            # read by services.retention.sweep_tombstones
            models.Index(name="helix_tombstone_expiry", fields=["expires_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.tool_call_id} {self.settled_as}"


class CallAudit(models.Model):
    """Append only: who did what to a call, through which door (B-31)."""

    id = models.BigAutoField(primary_key=True)
    call = models.ForeignKey(PendingCall, models.CASCADE, related_name="audit")
    action = models.CharField(max_length=32)
    actor = models.CharField(max_length=256)
    door = models.CharField(max_length=32, default="", blank=True)
    address = models.CharField(max_length=64, default="", blank=True)
    at = models.DateTimeField()
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"
