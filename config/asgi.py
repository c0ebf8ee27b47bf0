"""The one entry point of every request: REST over WSGI threads, streams and sockets natively.

Django's middleware costs a thread hop each under native ASGI, so the REST API and the pages go through the WSGI
handler on a fixed pool of threads, whose connections are few and end with each request. Event streams stay native,
since each of them would occupy such a thread for as long as it is open. The body cap stands in front of both (R-303).
"""

from __future__ import annotations

import io
import os
import re
from typing import Any, cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Loads the apps; what follows imports models.
native = get_asgi_application()

from a2wsgi import WSGIMiddleware  # noqa: E402
from channels.routing import ProtocolTypeRouter  # noqa: E402
from django.core.management import call_command  # noqa: E402

from config.wsgi import application as wsgi  # noqa: E402
from helix.edge.bodycap import BodyCap  # noqa: E402
from helix.streaming.routing import sockets  # noqa: E402

# Daphne runs no system checks by itself; an unsafe deployment must not start through this door either.
call_command("check", stdout=io.StringIO())

REST_THREADS = 10
STREAMING_PATHS = re.compile(r"/api/(?:chat|chat/[^/]+/stream|sse)/?")

threaded: Any = WSGIMiddleware(cast("Any", wsgi), workers=REST_THREADS)


def is_stream(path: str) -> bool:
    """Whether the route of ``path`` may answer with an event stream."""
    return STREAMING_PATHS.fullmatch(path) is not None


async def http(scope: Any, receive: Any, send: Any) -> None:
    """Send a request to the side of the house that serves its route."""
    side = native if is_stream(scope["path"]) else threaded
    await side(scope, receive, send)


application = ProtocolTypeRouter(
    {
        "http": BodyCap(http),
        # Who opens a socket, from which page, is judged behind it: `helix.streaming.gate` refuses with a close code.
        "websocket": sockets,
    }
)
