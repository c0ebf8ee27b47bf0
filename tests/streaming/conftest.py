"""A world whose events reach the sockets of the test, and people who say who they are in a header."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from channels.testing import WebsocketCommunicator
from django.http import HttpRequest
from pytest_django import Settings

from helix import nudges, wakes
from helix.edge.threads import act_in_thread
from helix.operations import Refusal
from helix.principals import Principal
from helix.streaming.routing import sockets
from tests.kit.world import OPERATOR, OWNER, REVIEWER, STRANGER, World

R = TypeVar("R")
CAST = {each.id: each for each in (OWNER, STRANGER, REVIEWER, OPERATOR)}
PATIENCE_SECONDS = 10


def says_who(operation: str, request: HttpRequest) -> Principal | Refusal | None:
    """The hook of these tests: ``Authorization: Bearer owner`` is the owner, and so on."""
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if name == "limited":
        return Principal(id="owner", operations=frozenset({"ws-session"}))
    if name == "throttled":
        return Refusal(429, "rate_limited", "Too many sockets.", retryable=True)
    return CAST.get(name)


class Client:
    """A websocket client that never waits longer than it must."""

    def __init__(self, communicator: WebsocketCommunicator) -> None:
        self._communicator = communicator
        self.subprotocol: str | None = None

    async def open(self) -> Client:
        is_accepted, self.subprotocol = await self._communicator.connect(PATIENCE_SECONDS)
        assert is_accepted, "refused before it was accepted: no browser would see the code"
        return self

    async def frame(self) -> dict[str, Any]:
        return json.loads(await self._communicator.receive_from(PATIENCE_SECONDS))

    async def closing(self) -> tuple[int, str]:
        """The code and reason that end the socket, and nothing else does before."""
        message = await self._communicator.receive_output(PATIENCE_SECONDS)
        assert message["type"] == "websocket.close", message
        return message["code"], message.get("reason", "")

    async def send(self, frame: Any) -> None:
        await self._communicator.send_to(frame if isinstance(frame, str) else json.dumps(frame))

    async def backlog(self) -> list[dict[str, Any]]:
        """Every frame up to ``head``, which is the last."""
        frames = [await self.frame()]
        while frames[-1]["type"] != "head":
            frames.append(await self.frame())
        return frames

    async def ask(self, kind: str, request_id: str = "r1", **body: Any) -> dict[str, Any]:
        """Send a command; its reply. Events in between are dropped."""
        await self.send({"type": kind, "requestId": request_id, "body": body})
        return await self.reply()

    async def reply(self) -> dict[str, Any]:
        while (frame := await self.frame())["type"] != "reply":
            pass
        return frame


@asynccontextmanager
async def opened(path: str, *, who: str | None = "owner", **options: Any) -> AsyncIterator[Client]:
    headers = options.pop("headers", [(b"host", b"testserver")])
    if who is not None:
        headers = [*headers, (b"authorization", f"Bearer {who}".encode())]
    communicator = WebsocketCommunicator(sockets, path, headers=headers, **options)
    # What daphne puts into a scope and the communicator does not.
    communicator.scope.update(scheme="ws", client=["127.0.0.1", 50000], server=["testserver", 80])
    try:
        yield await Client(communicator).open()
    finally:
        await communicator.disconnect()


@pytest.fixture
def streaming_world(transactional_db: None, world: World, settings: Settings) -> Iterator[World]:
    """Commits are real, and their wakes go where those of a server go."""
    settings.HELIX_AUTHENTICATE = says_who
    settings.ALLOWED_HOSTS = ["testserver"]
    recorded = nudges.send_to_readers
    nudges.send_to_readers = wakes.publish
    yield world
    nudges.send_to_readers = recorded


async def aside(verb: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """A synchronous verb from an asynchronous test, on a connection that it gives back."""
    return await act_in_thread(verb, *args, **kwargs)
