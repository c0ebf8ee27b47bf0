"""The event stream's route. It is served natively, never by a thread of the REST pool (see ``config.asgi``)."""

from __future__ import annotations

from django.urls import path

from helix.streaming.sse import events

app_name = "helix-streaming"
urlpatterns = [path("sse", events, name="sse")]
