"""An exchange over HTTP: one bounded request, one bounded JSON answer, no redirect followed (liveness section 11).

The bounds are those of the network client that reads the peer (Q-03): to connect, of silence between bytes, of one
exchange, and of the answer's size. What the child does meanwhile has no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from helix import conf, jsontext
from helix.peers.peer import Peer
from helix.peers.port import Address, Exchange, PeerRefused, PeerUnreachable

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 10.0
EXCHANGE_SECONDS = 30.0
"""No exchange lasts longer, but for one last silence."""


class HttpExchange:
    """One peer over HTTP. Connections live as long as one exchange: processes fork, and peers are asked rarely."""

    def __init__(self, address: Address, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._monotonic = monotonic

    def __call__(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{self._address.url.rstrip('/')}/{path}"
        headers = {"Accept": "application/json", **self._address.headers}
        content = None
        query: dict[str, str] | None = None
        if method == "GET":
            query = {name: str(value) for name, value in body.items()}
        else:
            content = jsontext.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            with (
                httpx.Client(
                    timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS), follow_redirects=False
                ) as client,
                client.stream(method, url, params=query, content=content, headers=headers) as answer,
            ):
                return _understood(answer.status_code, self._read(answer))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as failure:
            # The text of such a failure may hold the address with everything in it.
            raise PeerUnreachable(type(failure).__name__) from failure

    def _read(self, answer: httpx.Response) -> bytes:
        limit = conf.get("HELIX_MAX_CHAT_BODY_BYTES")
        until = self._monotonic() + EXCHANGE_SECONDS
        read = bytearray()
        for chunk in answer.iter_bytes():
            read += chunk
            if len(read) > limit:
                raise PeerUnreachable("the answer is too large")
            if self._monotonic() > until:
                raise PeerUnreachable("the answer takes too long")
        return bytes(read)


def _understood(status: int, raw: bytes) -> dict[str, Any]:
    """The JSON object of a 2xx answer. Raises: `PeerRefused`, `PeerUnreachable`."""
    try:
        body = jsontext.loads(raw)
    except jsontext.JsonRefused:
        body = None
    known = body if isinstance(body, dict) else None
    if 200 <= status < 300:
        if known is None:
            raise PeerUnreachable("the answer is no JSON object")
        return known
    if status >= 500 and status != 501:
        raise PeerUnreachable(f"HTTP {status}")
    raise PeerRefused(status, known or {})


# Replaced by tests: how a peer at an address is asked.
open_exchange: Callable[[Address], Exchange] = HttpExchange


def peer_at(address: Address) -> Peer:
    """The peer at an address."""
    return Peer(open_exchange(address))
