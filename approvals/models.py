"""Who reviews what: one row per reviewer, or group of them, and scope (contract 3.11)."""

from __future__ import annotations

from typing import Any, Self

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from helix.principals import Principal


class AssignmentQuerySet(models.QuerySet["Assignment"]):
    """Assignments by who holds them and by what they cover. The two combine into the inbox's one condition."""

    def of(self, principal: Principal) -> Self:
        """Those that name the principal, alone or through a group; none for an id that is no user's."""
        try:
            user_id = get_user_model()._meta.pk.to_python(principal.id)
        except ValidationError:
            return self.none()
        groups = get_user_model().groups.through.objects.filter(user_id=user_id).values("group_id")
        return self.filter(Q(reviewer_id=user_id) | Q(group_id__in=groups))

    def covering(self, *, agent_type: Any, tool_name: Any, session: Any) -> Self:
        """Those whose scope holds such a call. Each argument is a value, or an expression such as an ``OuterRef``."""
        return self.filter(
            Q(agent_type="") | Q(agent_type=agent_type),
            Q(tool_name="") | Q(tool_name=tool_name),
            Q(session=None) | Q(session=session),
        )


class Assignment(models.Model):
    """A reviewer, or every member of a group, may decide the approvals in a scope. An empty scope field means any."""

    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="assignments", null=True, blank=True
    )
    group = models.ForeignKey("auth.Group", models.CASCADE, related_name="assignments", null=True, blank=True)
    agent_type = models.CharField(
        max_length=256, default="", blank=True, help_text="The agent that asks, also as a sub-agent; empty for any."
    )
    tool_name = models.CharField(max_length=256, default="", blank=True, help_text="Empty for any tool.")
    session = models.ForeignKey(
        "helix.Session",
        models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        help_text="One conversation, by its root; empty for any.",
    )

    objects = AssignmentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="approvals_assignment_one_holder",
                condition=Q(reviewer__isnull=True, group__isnull=False) | Q(reviewer__isnull=False, group__isnull=True),
                violation_error_message="An assignment names either a reviewer or a group.",
            ),
        ]

    def __str__(self) -> str:
        scope = [self.agent_type or "any agent", self.tool_name or "any tool"]
        if self.session_id is not None:
            scope.append(f"in {self.session_id}")
        return f"{self.reviewer or self.group}: {', '.join(scope)}"
