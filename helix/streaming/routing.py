"""The websocket routes of contract 5.L."""

from __future__ import annotations

from channels.routing import URLRouter
from django.urls import path, re_path

from helix.streaming.consumers import InboxSocket, NoSocket, SessionSocket

websocket_urlpatterns = [
    path("ws/sessions/<str:session_id>/", SessionSocket.as_asgi()),
    path("ws/inbox/", InboxSocket.as_asgi()),
]

sockets = URLRouter([*websocket_urlpatterns, re_path("", NoSocket.as_asgi())])
"""What serves every websocket, also one that asks for a path which has none."""
