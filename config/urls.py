"""Which app answers which path. Sockets and streams are split off before, in ``config.asgi``."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from helix.conf import is_importable

# The demonstration is optional: a deployment without it has the API, the inbox and the admin.
_APPS = (("api/", "helix.streaming.urls"), ("api/", "helix.api.urls"), ("inbox/", "approvals.urls"), ("", "demo.urls"))

urlpatterns = [
    path("admin/", admin.site.urls),
    *[path(prefix, include(module)) for prefix, module in _APPS if is_importable(f"{module}.urlpatterns")],
]

# Typed JSON for paths of the API, pages for the others.
handler404 = "helix.api.refusals.page_not_found"
handler500 = "helix.api.refusals.server_error"
