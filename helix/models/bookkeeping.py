"""Checkpoints, usage, remote debts and the marks of the sweeps."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from helix.statuses import DebtKind, DebtState, UsageKind

from .columns import choice, one_of


class Checkpoint(models.Model):
    """What a session was after a step. The identity is the order (R-465, B-27)."""

    id = models.BigAutoField(primary_key=True)
    checkpoint_id = models.CharField(max_length=128, unique=True)
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="checkpoints", db_index=False)
    run = models.ForeignKey("helix.Run", models.CASCADE, related_name="+", db_index=False)
    step_count = models.PositiveIntegerField()
    message_position = models.PositiveBigIntegerField()
    state = models.JSONField(default=dict)
    calls = models.JSONField(default=list)
    stream_sequence = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            # read by selectors.checkpoints_page
            models.Index("session", models.F("id").desc(), name="helix_checkpoint_latest"),
        ]

    def __str__(self) -> str:
        return self.checkpoint_id


class UsageRecord(models.Model):
    """One measured thing: tokens, a tool, a sub-agent or a custom metric (R-630)."""

    id = models.BigAutoField(primary_key=True)
    root = models.ForeignKey("helix.Session", models.CASCADE, related_name="+", db_index=False)
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="usage", db_index=False)
    run = models.ForeignKey("helix.Run", models.CASCADE, related_name="usage", null=True, db_index=False)
    timestamp = models.BigIntegerField()
    step_count = models.PositiveIntegerField(default=0)
    kind = choice(UsageKind)
    source_type = models.CharField(max_length=64)
    source_name = models.CharField(max_length=256)
    data = models.JSONField(default=dict)
    dedupe_key = models.CharField(max_length=400, null=True, unique=True)

    class Meta:
        constraints = [one_of("helix_usage_kind", "kind", UsageKind)]
        indexes = [
            # read by the rate queries of the runbook
            models.Index(name="helix_usage_rates", fields=["kind", "source_type", "timestamp"]),
            # read by services.retention.forget_usage
            models.Index(name="helix_usage_age", fields=["timestamp"]),
        ]

    def __str__(self) -> str:
        return f"{self.source_type} {self.source_name}"


class RemoteDebt(models.Model):
    """Something still owed to a remote server: an answer or a stop (R-203, R-214)."""

    id = models.BigAutoField(primary_key=True)
    kind = choice(DebtKind)
    call = models.ForeignKey("helix.PendingCall", models.CASCADE, related_name="debts", null=True)
    delegation_id = models.CharField(max_length=256)
    url = models.URLField(max_length=2048)
    payload = models.JSONField(default=dict)
    state = choice(DebtState, default=DebtState.OWED)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    window_ends_at = models.DateTimeField()
    last_error = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            one_of("helix_debt_kind", "kind", DebtKind),
            one_of("helix_debt_state", "state", DebtState),
            models.UniqueConstraint(name="helix_debt_once", fields=["kind", "delegation_id", "call"]),
            models.UniqueConstraint(
                name="helix_debt_once_without_call", fields=["kind", "delegation_id"], condition=Q(call__isnull=True)
            ),
        ]
        indexes = [
            # read by the debt sweep
            models.Index(name="helix_debt_due", fields=["next_attempt_at"], condition=Q(state=DebtState.OWED)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.delegation_id} {self.state}"


class SweepMark(models.Model):
    """When a sweep last finished (T-7)."""

    name = models.CharField(max_length=64, primary_key=True)
    last_completed_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
