"""One exchange over HTTP: bounded in time and size, no redirect followed, and typed refusals kept as they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_django import Settings

from helix.peers import Address, PeerRefused, PeerUnreachable
from helix.peers.http import HttpExchange

Answer = Callable[[BaseHTTPRequestHandler], None]


class Stub:
    """A server of one answer; ``seen`` is what it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Answer = says(200, {"ok": True})
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                self._respond()

            def do_POST(self) -> None:
                self._respond()

            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stub.seen.append((self.command, self.path, dict(self.headers.items()), body))
                stub.answer(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/api"


def says(status: int, body: Any, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(raw)

    return respond


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()


def test_a_request_carries_the_declared_headers_and_compact_json(stub: Stub) -> None:
    """R-213, R-290."""
    exchange = HttpExchange(Address(f"{stub.url}/", {"Authorization": "Bearer x"}))
    assert exchange("POST", "start", {"message": "größer"}) == {"ok": True}
    assert exchange("GET", "status", {"sessionId": "a b/c"}) == {"ok": True}
    (_, path, headers, body), (_, query, _, _) = stub.seen
    assert (path, headers["Authorization"]) == ("/api/start", "Bearer x")
    assert body.decode() == '{"message":"größer"}' and query == "/api/status?sessionId=a+b%2Fc"


@pytest.mark.parametrize("status", [400, 404, 409, 413, 429, 501])
def test_a_typed_refusal_is_kept_verbatim(stub: Stub, status: int) -> None:
    """R-140."""
    body = {"error": "No.", "code": "some_code", "retryable": False, "more": [1, {"a": None}]}
    stub.answer = says(status, body)
    with pytest.raises(PeerRefused) as refusal:
        HttpExchange(Address(stub.url))("POST", "start", {})
    assert (refusal.value.status, refusal.value.code, refusal.value.body) == (status, "some_code", body)


@pytest.mark.parametrize(
    "answer",
    [
        says(500, {"code": "transport_error"}),
        says(503, b"busy"),
        says(200, b"<html>"),
        says(200, [1]),
        says(200, b'{"a": NaN}'),
        says(200, b"[" * 100 + b"]" * 100),
    ],
)
def test_a_failure_of_the_peer_and_nonsense_are_no_refusal(stub: Stub, answer: Answer) -> None:
    """R-202: the peer was not heard."""
    stub.answer = answer
    with pytest.raises(PeerUnreachable):
        HttpExchange(Address(stub.url))("GET", "status", {})


def test_a_redirect_is_not_followed(stub: Stub) -> None:
    """Q-03: credentials go where the declaration says, and nowhere else."""
    stub.answer = says(302, b"", Location=f"{stub.url}/elsewhere")
    with pytest.raises(PeerRefused) as refusal:
        HttpExchange(Address(stub.url))("GET", "status", {})
    assert refusal.value.code == "http_302" and len(stub.seen) == 1


def test_an_answer_over_its_bound_is_not_read_to_its_end(stub: Stub, settings: Settings) -> None:
    """The size bound; its control is an answer just within it."""
    settings.HELIX_MAX_CHAT_BODY_BYTES = 1000
    stub.answer = says(200, {"a": "x" * 900})
    assert HttpExchange(Address(stub.url))("GET", "status", {})
    stub.answer = says(200, {"a": "x" * 1000})
    with pytest.raises(PeerUnreachable):
        HttpExchange(Address(stub.url))("GET", "status", {})


def test_an_exchange_that_takes_too_long_is_ended(stub: Stub) -> None:
    """The bound of a whole exchange, however steadily its bytes drip."""
    instants = iter([0.0, 31.0, 62.0])
    with pytest.raises(PeerUnreachable, match="too long"):
        HttpExchange(Address(stub.url), monotonic=lambda: next(instants))("GET", "status", {})


def test_nobody_at_the_address_is_silence() -> None:
    """R-202, and the failure's text names no address (R-389)."""
    with pytest.raises(PeerUnreachable) as failure:
        HttpExchange(Address("http://127.0.0.1:1/api", {"Authorization": "secret"}))("GET", "status", {})
    assert str(failure.value) == "ConnectError"
