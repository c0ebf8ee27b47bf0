"""Websockets: one conversation to read and command, and a reviewer's inbox (R-366, R-367, I-49).

A consumer writes what rows say and keeps no truth of its own: a socket may be lost at any moment and opened again at
its cursor. A refused socket is accepted, then closed, since a code that is sent before never reaches a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final
from urllib.parse import parse_qsl

from autobahn.exception import Disconnected
from channels.generic.websocket import AsyncWebsocketConsumer

from helix.edge.attaching import Attachment, attach
from helix.edge.frames import head_text, reply_text
from helix.edge.hub import hub
from helix.edge.refusals import refusal_of
from helix.edge.threads import act_in_thread, read_in_thread
from helix.errors import NotFound
from helix.principals import Principal
from helix.streaming import commands, inbox
from helix.streaming.commands import Command, UnknownFrame, parse_frame
from helix.streaming.gate import chosen_subprotocol, principal_of
from helix.streaming.refusals import close_code

# A longer frame is parsed in a thread: the loop of all sockets must not wait for it.
INLINE_CHARACTERS: Final = 32_768
BAD_FRAME: Final = 4400
# How a transport says that nobody is there any more: daphne's own, and what the ASGI specification asks of servers.
GONE: Final = (Disconnected, OSError)


class Socket(AsyncWebsocketConsumer):
    """Accepts, runs tasks beside the receiving, and closes with a code when one of them is refused or fails."""

    # Wakes come through the hub; a channel of its own for each socket would be a subscription for each.
    channel_layer_alias = "helix.streaming has none"
    operation: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_gone = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket. One that vanishes while it is written to has ended like any other: nobody failed."""

        async def send_while_there(message: Any) -> None:
            if self._is_gone:
                return
            try:
                await send(message)
            except GONE:
                self._is_gone = True
                self._end_tasks()

        await super().__call__(scope, receive, send_while_there)

    async def disconnect(self, code: int) -> None:
        await asyncio.gather(*self._end_tasks(), return_exceptions=True)

    def _end_tasks(self) -> list[asyncio.Task[None]]:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until it ends or the socket is gone."""
        task = asyncio.create_task(self._to_its_end(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def refuse(self, failure: Exception) -> None:
        refusal = refusal_of(failure, self.operation)
        await self.close(close_code(refusal), refusal.code)

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as failure:
            await self.refuse(failure)


class SessionSocket(Socket):
    """``ws/sessions/{id}/?after=N``: the backlog, ``head``, then live frames; and commands, each with a reply."""

    operation = "ws-session"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._attachment: Attachment | None = None
        self._in_flight = 0

    async def connect(self) -> None:
        try:
            self._attachment = await read_in_thread(self._attach)
        except Exception as failure:
            await self.accept(chosen_subprotocol(self.scope))
            await self.refuse(failure)
            return
        await self.accept(chosen_subprotocol(self.scope))
        self.beside(self._read_on(self._attachment))

    def _attach(self) -> Attachment:
        named = self.scope["url_route"]["kwargs"]["session_id"]
        principal = principal_of(self.operation, self.scope, session_id=named)
        query = dict(parse_qsl(self.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        return attach(principal, named, query)

    async def _read_on(self, attachment: Attachment) -> None:
        async with hub().attached(attachment.root_id, attachment.after) as place:
            while True:
                batch = await place.next_batch()
                if not batch:
                    await self.send(head_text(place.cursor))
                for frame in batch:
                    await self.send(frame.socket_text(live=place.live))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._attachment is None:
            return  # refused already; the close is on its way
        try:
            if text_data is not None and len(text_data) > INLINE_CHARACTERS:
                command = await act_in_thread(parse_frame, text_data)
            else:
                command = parse_frame(text_data)
        except UnknownFrame:
            await self.close(BAD_FRAME, "validation_error")
            return
        reply = commands.answered_without_running(command, self._in_flight)
        if reply is not None:
            await self.send(reply)
            return
        self._in_flight += 1
        self.beside(self._answer(command, self._attachment.named))

    async def _answer(self, command: Command, session_id: str) -> None:
        try:
            await self.send(await act_in_thread(commands.run, command, scope=self.scope, session_id=session_id))
        finally:
            self._in_flight -= 1


class InboxSocket(Socket):
    """``ws/inbox/``: how much waits for this person, again whenever that changes. The lists are read over HTTP."""

    operation = "ws-inbox"

    async def connect(self) -> None:
        try:
            principal = await read_in_thread(inbox.principal_for, self.operation, self.scope)
        except Exception as failure:
            await self.accept(chosen_subprotocol(self.scope))
            await self.refuse(failure)
            return
        await self.accept(chosen_subprotocol(self.scope))
        self.beside(self._tell_changes(principal))

    async def _tell_changes(self, principal: Principal) -> None:
        told: inbox.Waiting | None = None
        with hub().stirring() as stirred:
            while True:
                stirred.clear()
                waiting = await read_in_thread(inbox.read_waiting, principal)
                if waiting != told:
                    await self.send(waiting.text())
                    told = waiting
                await inbox.pause(stirred)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Only pings are understood here; decisions go over HTTP or the conversation's own socket."""
        with contextlib.suppress(UnknownFrame):
            command = parse_frame(text_data)
            if command.type == commands.PING:
                await self.send(reply_text(command.request_id, 200, {}))
                return
        await self.close(BAD_FRAME, "validation_error")


class NoSocket(Socket):
    """Any other path: refused like a session that is not there. Without it, a mistyped address would be our failure."""

    operation = "ws-unknown"

    async def connect(self) -> None:
        await self.accept(chosen_subprotocol(self.scope))
        await self.refuse(NotFound("There is no such route."))
