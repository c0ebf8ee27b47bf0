"""The REST API and the pages as a WSGI application; ``config.asgi`` serves it too, beside streams and sockets."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()
