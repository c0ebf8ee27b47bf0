"""The cap in front of Django (R-293, R-296, R-302, R-303, B-25)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from asgiref.testing import ApplicationCommunicator
from pytest_django.fixtures import Settings

from config.asgi import application
from helix.edge.bodycap import OVER_CAP, BodyCap
from tests.api.conftest import WHO
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel
from tests.kit.world import World

LIMIT = 25
CAP = 4 * LIMIT
SUBMIT = "/api/submit-tool-result"
DISCONNECT = {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def small_cap(settings: Settings) -> None:
    settings.HELIX_MAX_RESULT_BYTES = LIMIT


class Server:
    """The server's side of one request: what it has to give, and what was taken of it."""

    def __init__(self, *chunks: bytes, then: dict[str, Any] | None = None) -> None:
        last = len(chunks) - 1
        self.messages = [
            {"type": "http.request", "body": chunk, "more_body": number != last} for number, chunk in enumerate(chunks)
        ]
        self.messages += [then] if then else []
        self.taken = 0

    async def receive(self) -> dict[str, Any]:
        self.taken += 1
        return self.messages[self.taken - 1]


class Inner:
    """The application behind the cap: reads the whole body and remembers its scope."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.body: bytes | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope, self.body, more = scope, b"", True
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)


async def through(server: Server, *headers: tuple[bytes, bytes], path: str = SUBMIT) -> Inner:
    inner = Inner()
    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": list(headers)}
    await BodyCap(inner)(scope, server.receive, None)
    return inner


async def test_a_body_of_undeclared_length_is_counted_up_to_the_cap() -> None:
    """The limit passes, and the length is declared to what follows: WSGI reads nothing without one."""
    inner = await through(Server(b"x" * 60, b"x" * (CAP - 60)), (b"transfer-encoding", b"chunked"))
    assert inner.body == b"x" * CAP and OVER_CAP not in inner.scope
    assert inner.scope["headers"] == [(b"content-length", str(CAP).encode())]


async def test_one_byte_more_hands_on_an_empty_body_and_a_mark() -> None:
    inner = await through(Server(b"x" * 60, b"x" * (CAP - 59)))
    assert inner.body == b"" and inner.scope[OVER_CAP] is True


async def test_nothing_is_read_after_the_cap() -> None:
    """B-25: memory stays flat however much is sent."""
    server = Server(*[b"x" * 60] * 50)
    await through(server)
    assert server.taken == 2


async def test_a_declared_length_over_the_cap_is_not_read_at_all() -> None:
    server = Server(b"x")
    inner = await through(server, (b"content-length", str(CAP + 1).encode()))
    assert (server.taken, inner.body, inner.scope[OVER_CAP]) == (0, b"", True)


async def test_a_declared_length_within_the_cap_is_passed_on_as_it_comes() -> None:
    inner = await through(Server(b"ab", b"cd"), (b"content-length", b"4"))
    assert inner.body == b"abcd" and OVER_CAP not in inner.scope


async def test_a_sender_that_leaves_is_not_served() -> None:
    inner = await through(Server(b"x", b"", then=DISCONNECT))
    assert inner.body == b"x"
    left = Inner()
    gone = Server()
    gone.messages = [{"type": "http.request", "body": b"x", "more_body": True}, DISCONNECT]
    scope = {"type": "http", "method": "POST", "path": SUBMIT, "headers": []}
    await BodyCap(left)(scope, gone.receive, None)
    assert left.body is None


async def test_what_the_server_says_later_reaches_the_application() -> None:
    """A view that streams learns of a disconnect."""

    async def patient(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"x"
        heard.append(await receive())

    heard: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": SUBMIT, "headers": []}
    await BodyCap(patient)(scope, Server(b"x", then=DISCONNECT).receive, None)
    assert heard == [DISCONNECT]


@pytest.mark.parametrize("path", ["/admin/login/", "/api/nowhere", "/api/sessions/x", "/nowhere"])
async def test_views_without_a_helix_body_are_left_alone(path: str) -> None:
    inner = await through(Server(b"x" * 60, b"x" * 60), path=path)
    assert inner.body == b"x" * 120 and OVER_CAP not in inner.scope


async def test_other_routes_have_their_own_cap(settings: Settings) -> None:
    """R-295."""
    settings.HELIX_MAX_CHAT_BODY_BYTES = CAP + 1
    for path in ("/api/start", "/api/sessions", "/api/sessions/x/messages"):
        assert OVER_CAP not in (await through(Server(b"x" * (CAP + 1)), path=path)).scope
    assert OVER_CAP in (await through(Server(b"x" * (CAP + 1)))).scope


# -- through the whole application, as the server runs it --------------------------------------------------------------


async def answer_of(who: str, *chunks: bytes, path: str = SUBMIT) -> tuple[int, dict[str, Any]]:
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (WHO.lower().encode(), who.encode()),
        (b"transfer-encoding", b"chunked"),
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    asking = ApplicationCommunicator(application, scope)
    for message in Server(*chunks).messages:
        await asking.send_input(message)
    start = await asking.receive_output(timeout=30)
    body, more = b"", True
    while more:
        message = await asking.receive_output(timeout=30)
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await asking.wait(timeout=30)
    return start["status"], json.loads(body)


async def test_a_stranger_with_a_huge_body_is_told_who_to_be_and_not_how_large() -> None:
    """R-303, R-323 steps 1 and 2."""
    status, body = await answer_of("nobody", b"x" * 60, b"x" * 60)
    assert (status, body["code"]) == (401, "transport_unauthorized")
    status, body = await answer_of("owner", b"x" * 60, b"x" * 60)
    assert (status, body["cause"], body["limitBytes"]) == (413, "request_body", CAP)
    assert "sizeBytes" not in body


@pytest.mark.django_db(transaction=True)
async def test_a_chunked_body_reaches_the_view_whole(world: World, agent: AgentMaker) -> None:
    """R-296: 411 is never answered."""
    text = json.dumps({"agentType": agent(ScriptedModel(["ok"])).name, "clientId": f"desk-{uuid4()}"}).encode()
    status, body = await answer_of("owner", text[:9], text[9:], path="/api/sessions")
    assert (status, set(body)) == (201, {"sessionId"})
