"""StreamEvent: one numbered row of a root's stream, gapless from 1 (R-518).

The number comes from the locked root row, and a trigger (migration `0002_stream_has_no_gap`) refuses any other.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from helix.statuses import EventType

from .columns import one_of


class StreamEvent(models.Model):
    id = models.BigAutoField(primary_key=True)
    root = models.ForeignKey("helix.Session", models.CASCADE, related_name="events", db_index=False)
    sequence = models.PositiveBigIntegerField()
    # Plain references: an event outlives nothing that its root does not, and a foreign key costs a look-up a row.
    session = models.ForeignKey("helix.Session", models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    run = models.ForeignKey(
        "helix.Run", models.CASCADE, related_name="+", null=True, db_constraint=False, db_index=False
    )
    step = models.PositiveIntegerField(default=0)
    type = models.CharField(max_length=32, choices=EventType.choices)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            one_of("helix_event_type", "type", EventType),
            # read by selectors.events_after
            models.UniqueConstraint(name="helix_event_sequence", fields=["root", "sequence"]),
        ]
        indexes = [
            # read by services.retention.sweep_events
            models.Index(name="helix_event_age", fields=["created_at"]),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"
