"""Stops a body that is over its cap in front of Django, which would buffer all of it first (R-303).

The middleware answers nothing itself: a stranger with a huge body gets 401 like any other, so the view authenticates
and then answers 413 (R-323). It hands on an empty body and a mark, and reads no further.

A body without a declared length is counted while it is read and then declared (R-296): WSGI has no other way to see
one at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from django.urls import Resolver404, resolve

from helix.operations import body_cap

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

OVER_CAP = "helix.body_over_cap"


class BodyCap:
    """Wraps the ASGI application of every HTTP request. Views that take no Helix body are left alone."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Any) -> None:
        cap = cap_of(scope)
        if cap is None:
            return await self.application(scope, receive, send)
        declared = _declared_length(scope)
        if declared is not None and declared <= cap:
            # The server itself holds the sender to the declared length.
            return await self.application(scope, receive, send)
        if declared is not None:
            return await self.application({**scope, OVER_CAP: True}, _nothing(), send)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > cap:
                body.clear()
                return await self.application({**scope, OVER_CAP: True}, _nothing(), send)
            if not message.get("more_body"):
                return await self.application(_declaring(scope, len(body)), _first(bytes(body), receive), send)


def cap_of(scope: Scope) -> int | None:
    """The cap of the view that will get this request: one whose class or function names its operation in ``writes``."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    try:
        view = resolve(path).func
    except Resolver404:
        return None
    operation = getattr(getattr(view, "view_class", view), "writes", None)
    return None if operation is None else body_cap(operation)


def _declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _declaring(scope: Scope, length: int) -> Scope:
    headers = [pair for pair in scope["headers"] if pair[0] not in (b"transfer-encoding", b"content-length")]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _first(body: bytes, then: Receive) -> Receive:
    """The whole body as one message, then whatever the server says next."""
    waiting = [body]

    async def receive() -> dict[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await then()

    return receive


def _nothing() -> Receive:
    """An empty body, then silence: what is left of the real one is never asked for."""

    async def silence() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    return _first(b"", silence)
