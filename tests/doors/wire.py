"""The doors that clients knock at: both HTTP routes, the socket's command, and the AI SDK's chat."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.test import AsyncClient, Client

from helix.streaming.routing import websocket_urlpatterns
from tests.doors.attempts import FLAVOURS, Attempt, CannotSay, Flavour, Outcome
from tests.kit.world import World

PATIENCE_SECONDS = 10
Heard = tuple[Any, ...]


class Door:
    """One way in. ``send`` knocks; ``says`` is how this door words what the contract says.

    flavours: the kinds of answers that it takes at all, and why not the others (`only`).
    shared: the kinds that are sent through it where a scenario is the same for each; all are, through some door.
    audited_as: the door's name in the audit row.  is_asynchronous: other connections must see what the test prepared.
    """

    name: ClassVar[str]
    audited_as: ClassVar[str]
    flavours: ClassVar[tuple[Flavour, ...]] = FLAVOURS
    shared: ClassVar[tuple[Flavour, ...]] = FLAVOURS
    only: ClassVar[str] = ""
    is_asynchronous: ClassVar[bool] = False

    def __init__(self, world: World) -> None:
        self.world = world

    def send(self, attempt: Attempt) -> Heard:
        """Raises: `CannotSay`, before anything is sent."""
        raise NotImplementedError

    def says(self, outcome: Outcome) -> Heard:
        return (outcome.status, outcome.code, outcome.cause, outcome.reason)


def heard(status: int, body: dict[str, Any]) -> Heard:
    """A wire answer as `Door.says` words it; every refusal has the shape of R-354."""
    if status >= 400:
        assert {"error", "code", "retryable"} <= body.keys(), body
        return (status, body["code"], body.get("cause"), body.get("reason"))
    assert ("continuation" in body) == (body["status"] != "late_answer_after_timeout"), "R-066"
    return (status, body["status"], None, None)


def bearer(attempt: Attempt) -> dict[str, str]:
    return {"Authorization": f"Bearer {attempt.who}"} if attempt.who else {}


class CanonicalRoute(Door):
    name = "canonical route"
    audited_as = "http"

    def send(self, attempt: Attempt) -> Heard:
        return self._post(f"/api/chat/{attempt.session}/submit-tool-result", attempt, {"toolCallId": attempt.call})

    @staticmethod
    def _post(path: str, attempt: Attempt, ids: dict[str, str]) -> Heard:
        text = json.dumps({**ids, **attempt.body}) if attempt.raw is None else attempt.raw
        client = Client(raise_request_exception=False)
        response = client.post(path, text, content_type=attempt.content_type, headers=bearer(attempt))
        return heard(response.status_code, json.loads(response.content))


class SessionInBody(CanonicalRoute):
    name = "session in body"
    shared = ("error",)

    def send(self, attempt: Attempt) -> Heard:
        ids = {"sessionId": attempt.session, "toolCallId": attempt.call}
        return self._post("/api/submit-tool-result", attempt, ids)


class SocketCommand(Door):
    """A close is the status plus 4000, and its reason the code (R-367)."""

    name = "websocket"
    audited_as = "websocket"
    shared = ("verdict",)
    is_asynchronous = True

    def send(self, attempt: Attempt) -> Heard:
        if attempt.content_type != "application/json":
            raise CannotSay("a frame has no content type")
        return async_to_sync(self._send)(attempt)

    async def _send(self, attempt: Attempt) -> Heard:
        headers = [(b"host", b"testserver")]
        headers += [(name.lower().encode(), value.encode()) for name, value in bearer(attempt).items()]
        path = f"/ws/sessions/{attempt.session}/"
        communicator = WebsocketCommunicator(URLRouter(websocket_urlpatterns), path, headers=headers)
        communicator.scope.update(scheme="ws", client=["127.0.0.1", 50000], server=["testserver", 80])
        try:
            await communicator.connect(PATIENCE_SECONDS)
            await communicator.send_to(self._frame(attempt))
            while True:
                message = await communicator.receive_output(PATIENCE_SECONDS)
                if message["type"] == "websocket.close":
                    return (message["code"] - 4000, message["reason"], None, None)
                frame = json.loads(message["text"])
                if frame["type"] == "reply":
                    return heard(frame["status"], frame["body"])
        finally:
            await communicator.disconnect()

    @staticmethod
    def _frame(attempt: Attempt) -> str:
        body = json.dumps({"toolCallId": attempt.call, **attempt.body}) if attempt.raw is None else attempt.raw
        return f'{{"type":"submit_tool_result","requestId":"r1","body":{body}}}'


class Chat(Door):
    """A page posts its message with the answers in it; a 200 is a stream, which says nothing of the submit."""

    name = "chat"
    audited_as = "chat"
    shared = ("result",)
    is_asynchronous = True

    def send(self, attempt: Attempt) -> Heard:
        text = json.dumps(self._body(attempt)) if attempt.raw is None else attempt.raw
        return async_to_sync(self._send)(attempt, text)

    def says(self, outcome: Outcome) -> Heard:
        return super().says(outcome) if outcome.is_refusal else (outcome.status, "stream", None, None)

    async def _send(self, attempt: Attempt, text: str) -> Heard:
        client = AsyncClient(raise_request_exception=False)
        options: Any = {"content_type": attempt.content_type, "headers": bearer(attempt)}
        response: Any = await client.post("/api/chat", text, **options)
        if response.status_code != 200:
            return heard(response.status_code, json.loads(response.content))
        # Nobody works here: what was stored is looked at before any worker has seen it, and a page may always leave.
        await response.streaming_content.aclose()
        return (200, "stream", None, None)

    @staticmethod
    def _body(attempt: Attempt) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "tool-any", "toolCallId": attempt.call, "input": {}}
        if attempt.body.get("kind") == "approval-response":
            said = attempt.but(content_type="application/json").said_in("kind", "approvalId", "approved", "reason")
            verdict = {name: value for name, value in said.items() if name in ("approved", "reason")}
            part["state"] = "approval-responded"
            part["approval"] = {"id": said["approvalId"], **verdict}
        elif "result" in attempt.body:
            said = attempt.but(content_type="application/json").said_in("result")
            part |= {"state": "output-available", "output": said["result"]}
        else:
            # A handler that returned nothing leaves an output without a value.
            said = attempt.but(content_type="application/json").said_in("error")
            part["state"] = "output-error" if "error" in said else "output-available"
            if "error" in said:
                part["errorText"] = said["error"]
        message = {"id": "the-page-s-own", "role": "assistant", "parts": [{"type": "step-start"}, part]}
        return {"id": attempt.session, "messages": [message]}
