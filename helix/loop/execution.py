"""Running a tool's body: in a thread of its own, so that a stop can end the wait at once (Q-14).

There is no clock here. A wait ends because the body returned, because it raised, or because the token fired; the body
of a cancelled call goes on in its thread, is still listed in the process registry, and can no longer change the
outcome. An async body runs in an event loop of its thread and is cancelled there.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Literal

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from pydantic import BaseModel

from helix import jsontext
from helix.agents import ArgumentsRefused, Tool, ToolContext, call_arguments
from helix.loop.cancel import Cancelled, CancelToken
from helix.loop.registry import REGISTRY, Executing, ProcessRegistry
from helix.loop.texts import text_for

log = logging.getLogger("helix.loop")

TOOL_EXECUTION_FAILED = "tool_execution_failed"
VALIDATION_FAILED = "validation_failed"
ABORTED = "aborted"


@dataclass(frozen=True)
class BodyResult:
    """How a body ended. ``error`` is the readable text that the model gets, ``error_code`` its code.

    kind: ``result`` (``value`` is any JSON value, None included), ``error``, ``cancelled`` (the token fired first).
    """

    kind: Literal["result", "error", "cancelled"]
    value: Any = None
    error: str | None = None
    error_code: str | None = None


def run_body(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, registry: ProcessRegistry = REGISTRY
) -> BodyResult:
    """Run the tool's body with the parsed arguments and wait for it, or until ``context.token`` fires.

    A body that raises, exits, or returns what JSON cannot say has failed (``tool_execution_failed``); arguments that
    the signature refuses are ``validation_failed``. KeyboardInterrupt is not the tool's and is raised on.
    """
    token = token_of(context)
    if token.cancelled:
        return _cancelled(tool, context)
    try:
        given = call_arguments(tool, dict(arguments), context)
    except ArgumentsRefused as refusal:
        return failed(str(refusal), code=VALIDATION_FAILED, context=context, tool=tool)

    work = _Work(tool, given, context, registry)
    over = threading.Event()
    forget = token.on_cancel(over.set)
    try:
        work.start(over)
        over.wait()
    finally:
        forget()
    if not work.ended.is_set():
        return _cancelled(tool, context)
    return work.outcome()


def token_of(context: ToolContext) -> CancelToken:
    """The context's token as what the loop made it: declarations only know that it can be asked."""
    if not isinstance(context.token, CancelToken):
        raise TypeError("A body runs under a cancel token of the loop.")
    return context.token


def failed(detail: str, *, code: str = TOOL_EXECUTION_FAILED, context: ToolContext, tool: Tool) -> BodyResult:
    """A failure as the model reads it: the code's text with the detail."""
    log.debug("tool.failed", extra={"toolName": tool.name, "toolCallId": context.tool_call_id, "errorCode": code})
    return BodyResult("error", error=text_for(code, kind="server", detail=detail), error_code=code)


def _cancelled(tool: Tool, context: ToolContext) -> BodyResult:
    log.debug("tool.cancelled", extra={"toolName": tool.name, "toolCallId": context.tool_call_id})
    return BodyResult("cancelled", error=text_for(ABORTED, kind="server"), error_code=ABORTED)


class _Work:
    """One body in its thread. ``ended`` is set when the body itself is over, whoever still waits for it."""

    def __init__(self, tool: Tool, given: dict[str, Any], context: ToolContext, registry: ProcessRegistry) -> None:
        self.tool = tool
        self.given = given
        self.context = context
        self.registry = registry
        self.ended = threading.Event()
        self._value: Any = None
        self._raised: BaseException | None = None

    def start(self, over: threading.Event) -> None:
        """Begin. The body is listed before its thread exists, so that no moment of it is unseen (Q-12)."""
        context = self.context
        ticket = self.registry.enter(Executing(str(context.run_id), context.tool_call_id, self.tool.name))
        # The body inherits the language, trace and log context of the driver.
        inherited = copy_context()
        thread = threading.Thread(
            target=inherited.run, args=(self._run, ticket, over), name=f"helix-tool-{self.tool.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self.registry.leave(ticket)
            raise

    def outcome(self) -> BodyResult:
        raised = self._raised
        if isinstance(raised, KeyboardInterrupt):
            raise raised
        if isinstance(raised, Cancelled | asyncio.CancelledError) and self.context.token.cancelled:
            return _cancelled(self.tool, self.context)
        if raised is not None:
            return failed(_described(raised), context=self.context, tool=self.tool)
        try:
            # Written and strictly read back: what is kept is exactly what the row can hold.
            value = jsontext.loads(jsontext.dumps(self._value))
        except jsontext.JsonRefused as refusal:
            return failed(f"Its result cannot be stored: {refusal}", context=self.context, tool=self.tool)
        return BodyResult("result", value=value)

    def _run(self, ticket: int, over: threading.Event) -> None:
        try:
            self._value = self._call()
        except BaseException as raised:  # a body may raise anything; the outcome sorts it out
            self._raised = raised
        finally:
            # A thread's connections are its own: left open they would outlive it.
            connections.close_all()
            self.ended.set()
            self.registry.leave(ticket)
            over.set()

    def _call(self) -> Any:
        body: Callable[..., Any] | None = self.tool.body
        if body is None:
            raise TypeError(f"The tool {self.tool.name} has no body on the server.")
        value = body(**self.given)
        if inspect.iscoroutine(value):
            value = _run_coroutine(value, token_of(self.context))
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _run_coroutine(coroutine: Coroutine[Any, Any, Any], token: CancelToken) -> Any:
    """Run it in an event loop of this thread; the token cancels it."""

    async def guarded() -> Any:
        loop = asyncio.get_running_loop()
        # A context of its own gives the body's database work a thread, and connections, that nobody else uses.
        async with ThreadSensitiveContext():
            task = asyncio.create_task(coroutine)
            forget = token.on_cancel(lambda: loop.call_soon_threadsafe(task.cancel))
            try:
                return await task
            finally:
                forget()
                await sync_to_async(connections.close_all)()

    with asyncio.Runner() as runner:
        return runner.run(guarded())


def _described(raised: BaseException) -> str:
    """The message of an exception; its class says what a bare one cannot."""
    text = str(raised)
    if isinstance(raised, SystemExit):
        return f"The body tried to exit the process ({text})."
    return text or type(raised).__name__
