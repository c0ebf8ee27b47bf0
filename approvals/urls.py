"""Where the inbox is mounted decides the deployment; the names are for its own templates and links."""

from __future__ import annotations

from django.urls import path

from approvals import views

urlpatterns = [
    path("", views.inbox, name="inbox"),
    path("list/", views.listing, name="inbox-list"),
    path("decide/", views.decision, name="inbox-decide"),
]
