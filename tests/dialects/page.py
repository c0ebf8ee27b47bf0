"""The AI SDK's page in Python: strict about chunks, forgetful about nothing, and eager to post again.

It folds chunks into message parts as ``processUIMessageStream`` does and judges with the two stock auto-send rules. The
real packages are driven in ``tests/clients``; this copy lets the rows of the table be tested one by one on the wire.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient

from helix.edge.threads import act_in_thread
from tests.kit.world import World

Chunk = dict[str, Any]

# Exactly what 5.0.90 takes: required keys, then optional ones. The three of approvals are of 6.0.57.
SCHEMA: dict[str, tuple[set[str], set[str]]] = {
    "start": (set(), {"messageId", "messageMetadata"}),
    "start-step": (set(), set()),
    "finish-step": (set(), set()),
    "finish": (set(), {"messageMetadata"}),
    "error": ({"errorText"}, set()),
    "text-start": ({"id"}, {"providerMetadata"}),
    "text-delta": ({"id", "delta"}, {"providerMetadata"}),
    "text-end": ({"id"}, {"providerMetadata"}),
    "reasoning-start": ({"id"}, {"providerMetadata"}),
    "reasoning-delta": ({"id", "delta"}, {"providerMetadata"}),
    "reasoning-end": ({"id"}, {"providerMetadata"}),
    "tool-input-start": ({"toolCallId", "toolName"}, {"providerExecuted", "dynamic"}),
    "tool-input-delta": ({"toolCallId", "inputTextDelta"}, set()),
    "tool-input-available": ({"toolCallId", "toolName", "input"}, {"providerExecuted", "dynamic"}),
    "tool-output-available": ({"toolCallId", "output"}, {"providerExecuted", "dynamic", "preliminary"}),
    "tool-output-error": ({"toolCallId", "errorText"}, {"providerExecuted", "dynamic"}),
    "tool-approval-request": ({"toolCallId", "approvalId"}, set()),
    "tool-output-denied": ({"toolCallId"}, set()),
}
FINAL = ("output-available", "output-error")


class Refused(Exception):
    """The post was answered with an error: ``status`` and the JSON ``body``."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


class ChatPage:
    """One browser tab with one chat. ``posts`` counts requests; ``dispatched`` are the calls its handler was given."""

    def __init__(self, world: World, session_id: str, *, agent_type: str | None = None, who: str = "owner") -> None:
        self.world, self.session_id, self.agent_type, self.who = world, session_id, agent_type, who
        self.messages: list[dict[str, Any]] = []
        self.chunks: list[Chunk] = []
        self.dispatched: list[str] = []
        self.posts = 0
        self.error: str | None = None
        self._said = 0

    # -- what a person or a handler does ---------------------------------------------------------------------------

    async def say(self, text: str) -> list[Chunk]:
        self._said += 1
        parts = [{"type": "text", "text": text}]
        self.messages.append({"id": f"user-{self.session_id}-{self._said}", "role": "user", "parts": parts})
        return await self.post()

    def output(self, call: str, **part: Any) -> None:
        """``addToolOutput``: the part changes locally."""
        self.part(call).update({"state": "output-available", **part})

    def decide(self, call: str, *, approved: bool, **more: Any) -> None:
        """``addToolApprovalResponse``."""
        part = self.part(call)
        part.update(state="approval-responded", approval={**part["approval"], "approved": approved, **more})

    async def answer(self, call: str, output: Any) -> list[Chunk]:
        """A tool output, and what auto-send does then; no chunks: it waits for another answer."""
        self.output(call, output=output)
        return await self.auto_send()

    async def auto_send(self) -> list[Chunk]:
        return await self.post() if self.would_post_again() else []

    # -- the wire --------------------------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.session_id, "messages": self.messages, "trigger": "submit-message"}
        if self.agent_type is not None:
            body["agentType"] = self.agent_type
        if self.messages[-1]["role"] == "assistant":
            body["messageId"] = self.messages[-1]["id"]
        return body

    async def post(self, **changes: Any) -> list[Chunk]:
        """The chunks of one exchange, the workers doing what it asked for meanwhile. Raises: `Refused`."""
        self.posts += 1
        response = await send({**self.body(), **changes}, who=self.who)
        if response.status_code != 200:
            raise Refused(response.status_code, json.loads(response.content))
        return await self.follow(response)

    async def follow(self, response: HttpResponse | StreamingHttpResponse) -> list[Chunk]:
        await aside(self.world.drain)
        self.chunks = [chunk async for chunk in chunks_of(response)]
        self.error = None
        for chunk in self.chunks:
            self._fold(chunk)
        return self.chunks

    # -- the copy --------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The parts of the last message."""
        return self.messages[-1]["parts"]

    def part(self, call: str) -> dict[str, Any]:
        found = [part for part in self.shown if part.get("toolCallId") == call]
        assert len(found) == 1, f"No tool invocation found for {call}"
        return found[0]

    def text(self) -> str:
        return "".join(part["text"] for part in self.shown if part["type"] == "text")

    def would_post_again(self) -> bool:
        """``lastAssistantMessageIsCompleteWithToolCalls`` or ``…WithApprovalResponses``."""
        if self.messages[-1]["role"] != "assistant" or self.error is not None:
            return False
        last = max((number for number, part in enumerate(self.shown) if part["type"] == "step-start"), default=-1)
        tools = [part for part in self.shown[last + 1 :] if part["type"].startswith("tool-")]
        own = [part for part in tools if not part.get("providerExecuted")]
        states = [part["state"] for part in tools]
        complete = bool(own) and all(part["state"] in FINAL for part in own)
        decided = "approval-responded" in states and all(one in (*FINAL, "approval-responded") for one in states)
        return complete or decided

    def _fold(self, chunk: Chunk) -> None:
        check(chunk)
        kind = chunk["type"]
        if kind == "start":
            self._start(chunk)
        elif kind == "start-step":
            self._boundary = True
        elif kind == "error":
            self.error = chunk["errorText"]
        elif kind not in ("finish-step", "finish"):
            if self._boundary:
                self.shown.append({"type": "step-start"})
                self._boundary = False
            self._write(kind, chunk)

    def _start(self, chunk: Chunk) -> None:
        self._boundary = False
        self._blocks: dict[str, dict[str, Any]] = {}
        if self.messages[-1]["role"] != "assistant":
            self.messages.append({"id": chunk["messageId"], "role": "assistant", "parts": []})
        assert self.messages[-1]["id"] == chunk["messageId"], "a second assistant message"

    def _write(self, kind: str, chunk: Chunk) -> None:
        if kind.startswith("data-"):
            self.shown.append(chunk)
        elif kind.endswith("-start") and kind != "tool-input-start":
            self._blocks[chunk["id"]] = {"type": kind.removesuffix("-start"), "text": "", "state": "streaming"}
            self.shown.append(self._blocks[chunk["id"]])
        elif kind in ("text-delta", "reasoning-delta"):
            self._blocks[chunk["id"]]["text"] += chunk["delta"]
        elif kind in ("text-end", "reasoning-end"):
            self._blocks.pop(chunk["id"])["state"] = "done"
        else:
            self._tool(kind, chunk)

    def _tool(self, kind: str, chunk: Chunk) -> None:
        call = chunk["toolCallId"]
        if kind in ("tool-input-start", "tool-input-available"):
            known = [part for part in self.shown if part.get("toolCallId") == call]
            part = known[0] if known else {"type": f"tool-{chunk['toolName']}", "toolCallId": call}
            self.shown.extend([] if known else [part])
            part["state"] = "input-streaming" if kind == "tool-input-start" else "input-available"
            if kind == "tool-input-available":
                part["input"] = chunk["input"]
                if not chunk.get("providerExecuted"):
                    self.dispatched.append(call)
        part = self.part(call)
        if kind == "tool-input-delta":
            part["input"] = json.loads(chunk["inputTextDelta"])
        elif kind == "tool-approval-request":
            part.update(state="approval-requested", approval={"id": chunk["approvalId"]})
        elif kind == "tool-output-available":
            part.update(state="output-available", output=chunk["output"])
        elif kind == "tool-output-error":
            part.update(state="output-error", errorText=chunk["errorText"])
        elif kind == "tool-output-denied":
            part["state"] = "output-denied"
        if chunk.get("providerExecuted"):
            part["providerExecuted"] = True


def check(chunk: Chunk) -> None:
    """Refuse a chunk as the strict patches do: unknown types, unknown keys, null for an absent optional."""
    kind, keys = chunk["type"], chunk.keys() - {"type"}
    if kind.startswith("data-"):
        assert keys == {"data"}, chunk
        return
    required, optional = SCHEMA[kind]
    assert required <= keys <= required | optional, chunk
    assert all(chunk[key] is not None for key in keys - {"input", "output"}), chunk


async def send(body: Any, *, who: str | None = "owner", **options: Any) -> Any:
    """``POST chat`` as anybody; the body as JSON, or as given."""
    raw = body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {"Authorization": f"Bearer {who}"} if who else {}
    options.setdefault("content_type", "application/json")
    return await AsyncClient(raise_request_exception=False).post("/api/chat", raw, headers=headers, **options)


async def join(session_id: str, *, who: str = "owner") -> Any:
    """``GET chat/{id}/stream``."""
    return await AsyncClient().get(f"/api/chat/{session_id}/stream", headers={"Authorization": f"Bearer {who}"})


async def chunks_of(response: Any) -> AsyncIterator[Chunk]:
    """The chunks of a stream, which ends as the SDK's own server ends it."""
    text = ""
    async for piece in response.streaming_content:
        text += piece.decode()
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    for frame in frames:
        if not frame.startswith(":"):
            yield json.loads(frame.removeprefix("data: "))


def kinds(chunks: Sequence[Chunk]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


async def aside(verb: Any, *args: Any, **kwargs: Any) -> Any:
    """A synchronous verb from an asynchronous test, on a connection that it gives back."""
    return await act_in_thread(verb, *args, **kwargs)
