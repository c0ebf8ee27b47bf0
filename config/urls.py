"""Which app answers which path. Sockets and streams are split off before, in ``config.asgi``."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("helix.streaming.urls")),
    path("api/", include("helix.dialects.aisdk.urls")),
    path("api/", include("helix.api.urls")),
    path("inbox/", include("approvals.urls")),
]
# A deployment without the demonstration brings its own pages.
if apps.is_installed("demo"):
    urlpatterns.append(path("", include("demo.urls")))

# Typed JSON for paths of the API, pages for the others.
handler404 = "helix.edge.refusals.page_not_found"
handler500 = "helix.edge.refusals.server_error"
