"""The chat routes, without a trailing slash: the SDK's transport makes them from one address."""

from __future__ import annotations

from django.urls import path

from helix.dialects.aisdk import views

app_name = "helix-aisdk"
urlpatterns = [
    path("chat", views.chat, name="chat"),
    path("chat/<str:session_id>/stream", views.chat_stream, name="stream"),
    path("chat/<str:session_id>/stop", views.chat_stop, name="stop"),
]
