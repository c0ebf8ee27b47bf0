"""Assignments in the admin: the place where an operator says who reviews what."""

from __future__ import annotations

from django.contrib import admin

from approvals.models import Assignment


@admin.register(Assignment)
class AssignmentAdmin(admin.ModelAdmin):
    """One row per reviewer or group and scope."""

    list_display = ("holder", "agent_type", "tool_name", "session_id")
    list_filter = ("agent_type", "group")
    list_select_related = ("reviewer", "group")
    search_fields = ("reviewer__username", "group__name", "agent_type", "tool_name")
    autocomplete_fields = ("reviewer", "group")
    raw_id_fields = ("session",)

    @admin.display(description="reviewer or group")
    def holder(self, assignment: Assignment) -> str:
        return str(assignment.reviewer or assignment.group)
