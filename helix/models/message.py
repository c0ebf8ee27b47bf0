"""Message: the log of a session. A rewind hides rows; nothing is deleted and no position is used twice."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from helix.statuses import Role

from .columns import choice, exactly_when, one_of


class Message(models.Model):
    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="messages", db_index=False)
    position = models.PositiveBigIntegerField()
    run = models.ForeignKey("helix.Run", models.CASCADE, related_name="messages", null=True, db_index=False)
    step = models.PositiveIntegerField(default=0)
    role = choice(Role)
    # Version 1 of the parts is described in `helix.loop`.
    parts = models.JSONField(default=list)
    tool_call_id = models.CharField(max_length=256, null=True)
    error_code = models.CharField(max_length=64, null=True)
    interrupted = models.BooleanField(default=False)
    hidden = models.BooleanField(default=False)
    rolled_back_by = models.ForeignKey("helix.Run", models.SET_NULL, related_name="+", null=True, db_index=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            one_of("helix_message_role", "role", Role),
            models.UniqueConstraint(name="helix_message_position", fields=["session", "position"]),
            # Two results for one call are impossible (R-269, B-11).
            models.UniqueConstraint(
                name="helix_message_one_result",
                fields=["session", "tool_call_id"],
                condition=Q(role=Role.TOOL, rolled_back_by__isnull=True),
            ),
            exactly_when("helix_message_tool_has_call", Q(tool_call_id__isnull=False), Q(role=Role.TOOL)),
        ]
        indexes = [
            # read by selectors.transcript
            models.Index(
                name="helix_message_live", fields=["session", "position"], condition=Q(rolled_back_by__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.position} of {self.session_id}"
