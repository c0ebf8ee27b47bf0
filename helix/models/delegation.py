"""RemoteChild: what is known here of a sub-agent that another server runs (5.G).

Its session, run and calls in this tree are stand-ins: nobody claims the run, it only gives the peer's open calls a
place below the delegating call, so that the tree's status, stops and answers need no second set of rules.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from helix.statuses import REMOTE_LIVE, RemoteState

from .columns import choice, one_of


class RemoteChild(models.Model):
    session = models.OneToOneField("helix.Session", models.CASCADE, related_name="remote", primary_key=True)
    # Minted here; the name of the session at the peer until the peer says another, and what a stop must name.
    delegation_id = models.CharField(max_length=64, unique=True)
    remote_session_id = models.CharField(max_length=256, null=True)
    state = choice(RemoteState, default=RemoteState.STARTING)
    # The peer's place in its stream at the newest reading that was taken in.
    cursor = models.PositiveBigIntegerField(default=0)

    next_attempt_at = models.DateTimeField()
    last_attempt_at = models.DateTimeField(null=True)
    # Readings in a row without news, or that failed: what the pause before the next one grows with.
    quiet_attempts = models.PositiveIntegerField(default=0)
    last_heard_at = models.DateTimeField(null=True)
    silent_since = models.DateTimeField(null=True)
    last_error = models.TextField(default="", blank=True)

    class Meta:
        verbose_name_plural = "remote children"
        constraints = [one_of("helix_remote_state", "state", RemoteState)]
        indexes = [
            # read by services.relay.due_children
            models.Index(
                name="helix_remote_due",
                fields=["next_attempt_at"],
                condition=Q(state__in=[state.value for state in REMOTE_LIVE]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.delegation_id} {self.state}"

    @property
    def named(self) -> str:
        """How the peer knows the session."""
        return self.remote_session_id or self.delegation_id

    @property
    def is_over(self) -> bool:
        return self.state not in REMOTE_LIVE
