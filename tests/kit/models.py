"""A model that says what the test told it to, step by step, and shows what it was asked (D-1, D-6, D-7).

The reply to a request is chosen by the number of the request, so a test reads like a transcript. A step may be held
at a gate: the model announces its arrival and waits for the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from helix import jsontext
from helix.loop import CancelToken, ModelRequest, result_text
from helix.loop.scripted import Call, Hold, script

Step = Sequence[Any] | BaseException | Callable[[ModelRequest], Any]


class ModelGate:
    """Holds a model mid-reply: `entered` tells that it arrived, `release` lets it go on, a stop cuts it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.arrivals = 0
        self.cancellations = 0

    def hold(self) -> Hold:
        return Hold(self)

    def release(self) -> None:
        self.opened.set()

    def wait(self, token: CancelToken) -> None:
        self.arrivals += 1
        forget = token.on_cancel(self.opened.set)
        self.entered.set()
        self.opened.wait()
        forget()
        if token.cancelled:
            self.cancellations += 1


class ScriptedModel:
    """``ScriptedModel(["text"], [Call("tool", {...})], ...)``: one entry per model request, the last one repeats.

    An entry is a list of pieces (text, `Call`), an exception to raise, or a function of the request.
    """

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.requests: list[ModelRequest] = []
        self.id = f"kit-{uuid4().hex}"
        script(self.id)(self._reply)

    @property
    def name(self) -> str:
        return f"scripted:{self.id}"

    @property
    def asked(self) -> int:
        """How many requests reached the model."""
        return len(self.requests)

    def _reply(self, request: ModelRequest) -> Iterator[Any]:
        self.requests.append(request)
        step = self.steps[min(len(self.requests), len(self.steps)) - 1]
        if callable(step):
            step = step(request)
        if isinstance(step, BaseException):
            raise step
        yield from step

    def results_seen(self, number: int = -1) -> dict[str, str]:
        """The tool results of one request as the model reads them, by the model's own call id or the shown one."""
        request = self.requests[number]
        return {
            message.parts[0]["toolCallId"]: result_text(message.parts[0])
            for message in request.messages
            if message.role == "tool"
        }


def call(name: str, /, _id: str | None = None, **arguments: Any) -> Call:
    """A tool call as a model would emit it; ``_id`` fixes its id."""
    return Call(name, jsontext.dumps(arguments), provider_call_id=_id)
