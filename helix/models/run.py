"""Run: one execution inside a session, and the lease of the worker that holds it.

A queued run row is the work item; the message to a worker only shortens the wait (F-1).
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from helix.statuses import RUN_CLAIMABLE, RUN_FINAL, RUN_LIVE, RunCause, RunStatus, StopKind

from .columns import choice, exactly_when, identity, one_of


class Run(models.Model):
    id = identity()
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="runs", db_index=False)
    number = models.PositiveIntegerField()
    turn = models.PositiveIntegerField()
    step_count = models.PositiveIntegerField(default=0)
    step_id = models.CharField(max_length=64, default="", blank=True)
    cause = choice(RunCause)
    started_by = models.CharField(max_length=256)

    continues = models.ForeignKey("self", models.SET_NULL, related_name="+", null=True, db_index=False)
    superseded_by = models.ForeignKey("self", models.SET_NULL, related_name="+", null=True, db_index=False)

    status = choice(RunStatus, default=RunStatus.QUEUED)
    start_sequence = models.PositiveBigIntegerField(default=0)
    epoch = models.PositiveIntegerField(default=0)

    # A message that enters the log directly after the results of the batch that this run drains.
    entry_message = models.JSONField(null=True)
    client_message_id = models.CharField(max_length=256, null=True)
    stop_kind = choice(StopKind, null=True)
    stop_reason = models.TextField(default="", blank=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_requested_by = models.CharField(max_length=256, default="", blank=True)
    stop_resolved_at = models.DateTimeField(null=True)

    next_attempt_at = models.DateTimeField(default=timezone.now)
    # When the sweep hints at this run next. It backs off, so that a long outage of workers does not fill the broker.
    next_hint_at = models.DateTimeField(default=timezone.now)
    model_attempts = models.PositiveIntegerField(default=0)
    crash_count = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=64, null=True)
    error_detail = models.JSONField(null=True)
    output = models.JSONField(null=True)
    finished_by_tool = models.BooleanField(default=False)
    trace_context = models.JSONField(default=dict, blank=True)

    queued_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            one_of("helix_run_status", "status", RunStatus),
            one_of("helix_run_cause", "cause", RunCause),
            one_of("helix_run_stop_kind", "stop_kind", StopKind, null=True),
            models.UniqueConstraint(
                name="helix_run_one_live", fields=["session"], condition=Q(status__in=[s.value for s in RUN_LIVE])
            ),
            models.UniqueConstraint(
                name="helix_run_one_continuation", fields=["continues"], condition=Q(cause=RunCause.CONTINUATION)
            ),
            models.UniqueConstraint(name="helix_run_message_once", fields=["session", "client_message_id"]),
            models.UniqueConstraint(name="helix_run_number", fields=["session", "number"]),
            exactly_when("helix_run_stop_has_kind", Q(stop_kind__isnull=True), Q(stop_requested_at__isnull=True)),
            exactly_when(
                "helix_run_ended_when_final",
                Q(ended_at__isnull=False),
                Q(status__in=[s.value for s in RUN_FINAL]),
            ),
            exactly_when("helix_run_failed_has_code", Q(error_code__isnull=False), Q(status=RunStatus.FAILED)),
        ]
        indexes = [
            # read by selectors.claimable_runs: the sweep behind every nudge
            models.Index(
                name="helix_run_claimable",
                fields=["next_attempt_at", "queued_at"],
                condition=Q(status__in=[s.value for s in RUN_CLAIMABLE]),
            ),
        ]

    def __str__(self) -> str:
        return f"run {self.number} of {self.session_id}"

    @property
    def is_over(self) -> bool:
        """Final, or replaced by the run that took its calls over (4.1)."""
        return self.status in RUN_FINAL or self.superseded_by_id is not None

    @property
    def stop_is_open(self) -> bool:
        return self.stop_requested_at is not None and self.stop_resolved_at is None


class RunLease(models.Model):
    """Who works on a running run, and since when it was last heard of (L-1 to L-12)."""

    run = models.OneToOneField(Run, models.CASCADE, related_name="lease", primary_key=True)
    holder = models.CharField(max_length=128)
    epoch = models.PositiveIntegerField()
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [
            # read by selectors.stale_leases
            models.Index(name="helix_lease_expiry", fields=["expires_at"]),
            # read by services.leases.renew_leases
            models.Index(name="helix_lease_holder", fields=["holder"]),
        ]

    def __str__(self) -> str:
        return f"{self.holder} epoch {self.epoch}"
