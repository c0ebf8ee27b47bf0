"""Two real servers on the loopback, each with its own SQLite database, and the link between them in the test's hands.

The parent knows its peer by the link's address. The link tells of every exchange, and may refuse connections or drop
the answer of a request that the peer has served. Servers are killed and started again on their own state.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.architecture.sources import ROOT
from tests.remote.crew import PEER

Json = dict[str, Any]


class Server:
    """One `helix_serve`: web, worker and sweep in a process, over the SQLite database of its state directory."""

    def __init__(self, state: Path, **variables: str) -> None:
        self._state = state
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("HELIX_", "DATABASE_", "DJANGO_"))
            },
            "DJANGO_SETTINGS_MODULE": "tests.remote.crew.settings",
            "HELIX_STATE_DIR": str(state),
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.address = ""

    def start(self) -> None:
        """Start it, and wait until it says where it answers."""
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "helix_serve", "--port", "0", "--threads", "4"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if found := re.match(r"Open (http\S+)", line):
                self.address = f"{found[1]}api"
                # What it logs from now on is nobody's, but a full pipe would hold it up.
                self._reader = threading.Thread(target=self._process.stdout.read, daemon=True)
                self._reader.start()
                return
        raise AssertionError("".join(lines))

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = self._reader = None

    # -- its API ---------------------------------------------------------------------------------------------------

    def get(self, path: str, *, by: str = "owner") -> Json:
        with self._ask(path, None, by) as response:
            answer: Json = json.load(response)
            return answer

    def post(self, path: str, body: Json, *, by: str = "owner") -> Json:
        with self._ask(path, json.dumps(body).encode(), by) as response:
            answer: Json = json.load(response)
            return answer

    def until(self, session_id: str, wanted: Callable[[Json], bool], *, by: str = "owner") -> Json:
        """Read the stream from its beginning until an event is wanted."""
        with self._ask(f"sse?sessionId={session_id}&after=0", None, by) as stream:
            for line in stream:
                if line.startswith(b"data: ") and wanted(event := json.loads(line[6:])):
                    found: Json = event
                    return found
        raise AssertionError("the stream ended before the event")

    def _ask(self, path: str, body: bytes | None, by: str) -> Any:
        headers = {"X-Crew": by, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/{path}", body, headers)  # noqa: S310
        return urllib.request.urlopen(request)  # noqa: S310


class Link:
    """What the parent takes for its peer: hands every request on, unless the test says otherwise."""

    def __init__(self, peer: Server) -> None:
        self.peer = peer
        self.exchanges: queue.Queue[tuple[str, int]] = queue.Queue()
        self.is_cut = False
        self.drop_answers_of: set[str] = set()
        link = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                link.hand_on(self)

            def do_POST(self) -> None:
                link.hand_on(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def hand_on(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        name = asked.path.split("?")[0].strip("/")
        status, raw = self._peers_answer(asked, body)
        if status and name in self.drop_answers_of:
            self.drop_answers_of.discard(name)
            status = 0
        self.exchanges.put((name, status))
        if not status:
            asked.close_connection = True
            asked.connection.close()
            return
        asked.send_response(status)
        asked.send_header("Content-Type", "application/json")
        asked.send_header("Content-Length", str(len(raw)))
        asked.end_headers()
        asked.wfile.write(raw)

    def _peers_answer(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        if self.is_cut:
            return 0, b""
        headers = {name: asked.headers[name] for name in ("X-Crew", "Content-Type") if name in asked.headers}
        request = urllib.request.Request(  # noqa: S310
            f"{self.peer.address}{asked.path}", body or None, headers, method=asked.command
        )
        try:
            with urllib.request.urlopen(request) as response:  # noqa: S310
                return response.status, response.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()
        except OSError:
            return 0, b""

    def until(self, name: str, status: int = 200) -> list[str]:
        """Wait for an exchange of that name and status; the names of those before it."""
        before = []
        while True:
            seen = self.exchanges.get()
            if seen == (name, status):
                return before
            before.append(seen[0])

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Pair:
    """``parent`` delegates to ``peer`` over ``link``."""

    def __init__(self, state: Path) -> None:
        self.peer = Server(state / "peer")
        self.link = Link(self.peer)
        self.parent = Server(state / "parent", **{PEER: self.link.address})

    def start(self) -> None:
        self.peer.start()
        self.parent.start()

    def end(self) -> None:
        self.parent.kill()
        self.peer.kill()
        self.link.end()

    # -- the turn that every test walks ----------------------------------------------------------------------------

    def begin(self) -> str:
        """A turn of the parent, up to the open client call of its helper."""
        session_id: str = self.parent.post("start", {"agentType": "parent", "message": "Book."})["sessionId"]
        self.parent.until(session_id, shows("locate"))
        return session_id

    def children(self) -> Iterator[Json]:
        yield from self.peer.get("sessions", by="delegate")["sessions"]

    def child(self) -> Json:
        """The newest child at the peer."""
        return next(self.children())

    def answer(self, session_id: str) -> Json:
        return self.parent.post("submit-tool-result", {"sessionId": session_id, "toolCallId": "c1", "result": "Bern"})

    def approve(self, session_id: str) -> Json:
        self.parent.until(session_id, shows("book"))
        (call,) = self.parent.get(f"sessions/{session_id}")["pendingTools"]
        verdict = {"kind": "approval-response", "approvalId": call["approvalId"], "approved": True}
        return self.parent.post(
            "submit-tool-result", {"sessionId": session_id, "toolCallId": call["toolCallId"], **verdict}
        )

    def said(self, session_id: str) -> str:
        """What the parent's model said last, once its turn is over."""
        self.parent.until(session_id, lambda event: event.get("type") == "end")
        messages = self.parent.get(f"sessions/{session_id}")["messages"]
        text: str = messages[-1]["parts"][0]["text"]
        return text


def shows(tool_name: str) -> Callable[[Json], bool]:
    return lambda event: event.get("type") == "tool_start" and event["toolName"] == tool_name
