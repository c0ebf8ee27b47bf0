"""The routes of contract 5.L, under the prefix that the integrator picks."""

from __future__ import annotations

from django.urls import path

from helix.api import views

urlpatterns = [
    path("chat/<str:session_id>/submit-tool-result", views.ChatSubmitToolResult.as_view(), name="helix-chat-submit"),
    path("submit-tool-result", views.SubmitToolResult.as_view(), name="helix-submit"),
    path("start", views.Start.as_view(), name="helix-start"),
    path("resume", views.Resume.as_view(), name="helix-resume"),
    path("retry", views.Retry.as_view(), name="helix-retry"),
    path("status", views.Status.as_view(), name="helix-status"),
    path("interrupt", views.Interrupt.as_view(), name="helix-interrupt"),
    path("abort", views.Abort.as_view(), name="helix-abort"),
    path("sessions", views.Sessions.as_view(), name="helix-sessions"),
    path("sessions/<str:session_id>", views.Session.as_view(), name="helix-session"),
    path("sessions/<str:session_id>/messages", views.Messages.as_view(), name="helix-messages"),
    path("sessions/<str:session_id>/events", views.Events.as_view(), name="helix-events"),
    path("sessions/<str:session_id>/calls", views.Calls.as_view(), name="helix-calls"),
    path(
        # A model may write any call id, a slash in it too.
        "sessions/<str:session_id>/calls/<path:tool_call_id>/claim",
        views.Claim.as_view(),
        name="helix-claim",
    ),
    path("sessions/<str:session_id>/checkpoints", views.Checkpoints.as_view(), name="helix-checkpoints"),
    path(
        "sessions/<str:session_id>/checkpoints/<str:checkpoint_id>",
        views.Checkpoint.as_view(),
        name="helix-checkpoint",
    ),
    path("schema", views.Document.as_view(), name="helix-schema"),
]
