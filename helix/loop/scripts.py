"""The built-in scripts: an echo, the benchmark's model, and the shapes that workloads ask for.

Their texts are random words drawn from a seed that is part of the request, so that every run writes the same and no
two steps do.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helix.loop.cancel import CancelToken
from helix.loop.messages import ModelError, ModelRequest, ToolSpec
from helix.loop.scripted import Call, Hold, Piece, script

ARGUMENT_BYTES = 100
REPLY_BYTES = 200
DELTA_BYTES = 20
WORDS = (
    *("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper", "kelp", "lagoon"),
    *("meadow", "north", "orchard", "pebble", "quarry", "river", "stone", "timber", "umber", "valley", "willow"),
)


def words(seed: str, size: int) -> str:
    """Exactly ``size`` characters (and bytes) of random words; the same seed gives the same words."""
    draw = random.Random(seed)
    text = ""
    while len(text) < size:
        text += draw.choice(WORDS) + " "
    return text[: size - 1] + "."


def seed_of(request: ModelRequest) -> str:
    """What tells this step from every other: its session and step, or the length of its history."""
    metadata = request.metadata
    return f"{metadata.get('sessionId', '')}/{metadata.get('runId', '')}/{metadata.get('step', len(request.messages))}"


def last_role(request: ModelRequest) -> str | None:
    """Who spoke last, hidden notices aside: a user (a call is due) or a tool (a text is due)."""
    return next((message.role for message in reversed(request.messages) if message.role != "notice"), None)


@script("echo")
def echo(request: ModelRequest) -> Iterator[Piece]:
    """The last user text, word for word."""
    said = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
    yield said


@script("bench")
def bench(request: ModelRequest) -> Iterator[Piece]:
    """One tool call of about 100 bytes; after its result, 200 bytes of text."""
    yield from _calls_then_text(request, 1)


@script("calls")
def calls(request: ModelRequest, count: str = "1") -> Iterator[Piece]:
    """``scripted:calls:<p>``: p calls of the first tool in one reply; after the results, a text."""
    yield from _calls_then_text(request, _number(count))


@script("deltas")
def deltas(request: ModelRequest, count: str = "10") -> Iterator[Piece]:
    """``scripted:deltas:<n>``: n text deltas of 20 bytes, as fast as they are taken."""
    seed = seed_of(request)
    for number in range(_number(count)):
        yield words(f"{seed}/{number}", DELTA_BYTES)


@script("block")
def block(request: ModelRequest, *path: str) -> Iterator[Piece]:
    """``scripted:block:<path>``: like ``bench``, but held while a named pipe stands at the path; see ``release``."""
    yield Hold(PipeGate(Path(":".join(path))))
    yield from _calls_then_text(request, 1)


class PipeGate:
    """A gate between processes: shut while a named pipe stands at ``path``. Waiting costs nothing and polls nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wait(self, token: CancelToken) -> None:
        try:
            pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        wake_read, wake_write = os.pipe()
        forget = token.on_cancel(lambda: _wake(wake_write))
        try:
            select.select([pipe, wake_read], [], [])
        finally:
            forget()
            for descriptor in (pipe, wake_read, wake_write):
                os.close(descriptor)


def release(path: Path) -> None:
    """Open the gate at ``path`` for everyone who waits there now and for everyone who comes later."""
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    path.unlink()
    # Everyone who had opened the pipe sees its last writer go.
    os.close(writer)


def _wake(descriptor: int) -> None:
    # The wait may end in the same instant and close the pipe: then there is nobody left to wake.
    with contextlib.suppress(OSError):
        os.write(descriptor, b".")


def _calls_then_text(request: ModelRequest, count: int) -> Iterator[Piece]:
    seed = seed_of(request)
    tool = next((spec for spec in request.tools if not spec.name.startswith("__")), None)
    if last_role(request) == "tool" or tool is None:
        yield words(seed, REPLY_BYTES)
        return
    for number in range(count):
        yield Call(tool.name, _arguments(tool, f"{seed}/{number}"))


def _arguments(tool: ToolSpec, seed: str) -> dict[str, Any]:
    """Arguments that fit a flat schema: words for texts, the first choice of an enum, small numbers and flags."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    texts = [name for name, schema in properties.items() if schema.get("type") == "string" and "enum" not in schema]
    needed = set(tool.input_schema.get("required") or ()) | set(texts[:1])
    arguments = {name: _value(schema) for name, schema in properties.items() if name in needed}
    if texts:
        frame = sum(len(name) + 6 for name in arguments) + 2
        arguments[texts[0]] = words(seed, max(ARGUMENT_BYTES - frame, 8))
    return arguments


def _value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    plain: dict[str, Any] = {"string": "word", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return plain.get(str(schema.get("type")))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ModelError(f"A script's count must be a whole number, got {text!r}.")
    return int(text)
