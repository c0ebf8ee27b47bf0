"""A real HTTP server that speaks the OpenAI chat-completions stream, under a test's control.

In a test: ``with ProviderServer() as server`` listens on a port of its own; ``server.answer(text("Hi"), gate)`` queues
one answer; the request bodies are in ``server.requests``. A ``Gate`` among the pieces announces its arrival and holds
the stream until the test releases it, and a client that hangs up meanwhile is seen (``server.hung_up``).

With nothing queued the conversation decides (``planned``), so that real worker processes can be driven from outside:
``python -m tests.provider_server --port 8123 [--plan plan.json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]


class Gate:
    """Holds whoever comes until it is released, and announces and counts arrivals (D-1, D-2)."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.arrivals = 0
        self._lock = threading.Lock()
        self._released = False
        self._sleepers: list[socket.socket] = []

    def release(self) -> None:
        with self._lock:
            self._released = True
            sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.close()

    def hold(self, connection: socket.socket) -> bool:
        """Wait for the release. False: the client hung up first."""
        ours, theirs = socket.socketpair()
        with self._lock:
            self.arrivals += 1
            if self._released:
                theirs.close()
            else:
                self._sleepers.append(theirs)
        self.entered.set()
        # Closing an end twice is harmless: the release may have closed it first.
        with ours, theirs:
            ready, _, _ = select.select([ours, connection], [], [])
            return ours in ready or not _hung_up(connection)


@dataclass(frozen=True)
class Cut:
    """End the stream here: rudely, in the middle of the HTTP body, or with a body that simply ends too early."""

    rude: bool = True


@dataclass(frozen=True)
class Comment:
    """A line of the stream that carries nothing: what providers send to keep a connection alive."""


@dataclass(frozen=True)
class Answer:
    """One answer: a refusal with a status, or a stream of pieces that ends with a finish reason and usage.

    raw: the stream as another provider writes it, instead of pieces.
    """

    pieces: Sequence[Json | Gate | Cut | Comment] = ()
    status: int = 200
    message: str = ""
    finish: str | None = None
    raw: str | None = None

    @property
    def finish_reason(self) -> str:
        asks = any(isinstance(piece, dict) and "tool_calls" in piece for piece in self.pieces)
        return self.finish or ("tool_calls" if asks else "stop")


def text(content: str) -> Json:
    return {"content": content}


def thinking(content: str) -> Json:
    return {"reasoning_content": content}


def call(index: int, call_id: str, name: str, *fragments: str) -> list[Json]:
    """A tool call whose argument text comes in fragments: spread it with ``*``."""
    start = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [{"tool_calls": [start]}, *({"tool_calls": [_fragment(index, fragment)]} for fragment in fragments)]


def _fragment(index: int, fragment: str) -> Json:
    return {"index": index, "function": {"arguments": fragment}}


def planned(body: Json, plan: Sequence[Json] | None = None) -> Answer:
    """What the conversation asks for.

    plan: one entry per step of a turn, ``{"text": …}`` or ``{"calls": [{"name": …, "arguments": "<text>"}]}``; its
    last entry repeats. Without one, a user's ``call <tool> <json>`` becomes that call, other texts are echoed, and
    results are reported.
    """
    said = body["messages"]
    last = said[-1]
    turn_began = max((number for number, message in enumerate(said) if message["role"] == "user"), default=0)
    if plan:
        step = sum(message["role"] == "assistant" for message in said[turn_began:])
        entry = plan[min(step, len(plan) - 1)]
        asked = [(item["name"], item.get("arguments", "{}")) for item in entry.get("calls", ())]
        spoken = entry.get("text", "")
    else:
        words = str(last.get("content") or "").split(maxsplit=2)
        is_call = last["role"] == "user" and len(words) > 1 and words[0] == "call"
        asked = [(words[1], words[2] if len(words) > 2 else "{}")] if is_call else []
        spoken = "" if is_call else f"{'done' if last['role'] == 'tool' else 'echo'}: {last.get('content')}"
    pieces = [text(spoken)] if spoken else []
    for index, (name, arguments) in enumerate(asked):
        pieces += call(index, f"call_{len(said)}_{index}", name, arguments)
    return Answer(pieces)


@dataclass
class ProviderServer:
    """The server; a context manager. ``plan`` answers when nothing is queued."""

    port: int = 0
    plan: Callable[[Json], Answer] = planned
    requests: list[Json] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._queue: deque[Answer] = deque()
        self._gates: list[Gate] = []
        self._http = _Http(("127.0.0.1", self.port), self)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, name="provider-server", daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, *pieces: Json | Gate | Cut | Comment, finish: str | None = None) -> None:
        """Queue one streamed answer."""
        self._gates += [piece for piece in pieces if isinstance(piece, Gate)]
        self._queue.append(Answer(pieces, finish=finish))

    def answer_raw(self, *events: Json) -> None:
        """Queue one stream of another provider's events, each named by its ``type``."""
        self._queue.append(Answer(raw="".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)))

    def refuse(self, status: int, message: str = "refused by the test") -> None:
        """Queue one refusal."""
        self._queue.append(Answer(status=status, message=message))

    def next_answer(self, body: Json) -> Answer:
        self.requests.append(body)
        return self._queue.popleft() if self._queue else self.plan(body)

    def serve_forever(self) -> None:
        # The interval only bounds how long a shutdown takes to be seen.
        self._http.serve_forever(poll_interval=0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gate in self._gates:
            gate.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], provider: ProviderServer) -> None:
        super().__init__(address, _Connection)
        self.provider = provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up while it was written to is news for the test; anything else is a fault of ours."""
        if isinstance(sys.exception(), ConnectionError):
            self.provider.hung_up.set()
        else:
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.server.provider.next_answer(body)
        if answer.status != 200:
            self._refuse(answer)
        else:
            self._stream(answer)

    def _refuse(self, answer: Answer) -> None:
        body = json.dumps({"error": {"message": answer.message, "type": "test", "code": None}}).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Answer) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        if answer.raw is not None:
            self._write(answer.raw)
            self._write("")
            return
        for piece in answer.pieces:
            if isinstance(piece, Gate):
                if not piece.hold(self.connection):
                    self.server.provider.hung_up.set()
                    return
            elif isinstance(piece, Cut):
                if not piece.rude:
                    self._write("")
                return
            elif isinstance(piece, Comment):
                self._write(": keep-alive\n\n")
            else:
                self._event([{"index": 0, "delta": piece, "finish_reason": None}])
        self._event([{"index": 0, "delta": {}, "finish_reason": answer.finish_reason}])
        self._event([], usage={"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})
        self._write("data: [DONE]\n\n")
        self._write("")

    def _event(self, choices: list[Json], usage: Json | None = None) -> None:
        chunk = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": "test"}
        line = json.dumps({**chunk, "choices": choices, "usage": usage})
        self._write(f"data: {line}\n\n")

    def _write(self, content: str) -> None:
        """One chunk of the HTTP body; an empty one ends it."""
        data = content.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Quiet: a test reads ``requests``, not a log."""


def _hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="A provider for tests, controlled by the conversation.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--plan", type=Path, default=os.environ.get("PROVIDER_PLAN"), help="a JSON list of steps")
    options = parser.parse_args()
    plan = json.loads(Path(options.plan).read_text()) if options.plan else None
    server = ProviderServer(options.port, plan=lambda body: planned(body, plan))
    sys.stdout.write(f"{server.base_url}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
