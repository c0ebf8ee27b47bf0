"""The scripted model: deterministic, offline, and instant unless a script chooses to wait.

``model="scripted:<name>[:<argument>…]"`` plays the script of that name. A script is a function of the arranged request
(and of the arguments after the name) that yields pieces: a string is text, ``Call`` asks for a tool, ``Thinking`` is
reasoning, ``Hold`` waits until something releases it, ``Usage`` counts tokens. A script may raise ``ModelError``.
Demos, benchmarks and tests register their own with ``script``; the built-in ones are in ``scripts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from helix import jsontext
from helix.loop.assembly import ReplyAssembly
from helix.loop.cancel import Cancelled, CancelToken
from helix.loop.messages import Delta, ModelError, ModelRequest, Reply, Usage

PROVIDER = "scripted"
# What plays when a model is named "scripted" and nothing more.
DEFAULT_SCRIPT = "echo"


class Waiting(Protocol):
    """Something a script waits for; ``wait`` returns when it is over or when the token has fired."""

    def wait(self, token: CancelToken) -> None: ...


@dataclass(frozen=True)
class Call:
    """Ask for a tool. Arguments given as text are kept as they are, a mapping is written compactly."""

    tool_name: str
    arguments: str | Mapping[str, Any]
    provider_call_id: str | None = None

    @property
    def arguments_json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else jsontext.dumps(dict(self.arguments))


@dataclass(frozen=True)
class Thinking:
    text: str


@dataclass(frozen=True)
class Hold:
    """Write nothing more until ``until`` is over, or until a stop cuts the wait."""

    until: Waiting


Piece = str | Call | Thinking | Hold | Usage
Script = Callable[..., Iterable[Piece]]

_scripts: dict[str, Script] = {}


def script(name: str) -> Callable[[Script], Script]:
    """Register the decorated function as ``scripted:<name>``. The last registration of a name wins."""
    if not name or ":" in name:
        raise ValueError(f"a script's name must not be empty or hold a colon, got {name!r}")

    def register(function: Script) -> Script:
        _scripts[name] = function
        return function

    return register


def complete_reply(request: ModelRequest, *, emit: Callable[[Delta], None], token: CancelToken) -> Reply:
    """Play the script that the request names. The same contract as ``port.complete_reply``."""
    assembly = ReplyAssembly(emit)
    usage: Usage | None = None
    try:
        for piece in _pieces(request):
            if isinstance(piece, Hold):
                piece.until.wait(token)
            if token.cancelled:
                raise Cancelled(assembly.partial())
            match piece:
                case str():
                    assembly.text(piece)
                case Thinking():
                    assembly.thinking(piece.text)
                case Call():
                    number = assembly.call_started(piece.tool_name, piece.provider_call_id)
                    assembly.call_arguments(number, piece.arguments_json)
                case Usage():
                    usage = piece
    except ModelError as failure:
        # A script does not know what was assembled from its pieces.
        failure.partial = failure.partial or assembly.partial()
        raise
    assembly.thinking_done()
    return assembly.reply(complete=True, usage=usage)


def _pieces(request: ModelRequest) -> Iterable[Piece]:
    from helix.loop import scripts  # noqa: F401  registers the built-in scripts; they import this module

    name, *arguments = request.model.removeprefix(PROVIDER).removeprefix(":").split(":")
    name = name or DEFAULT_SCRIPT
    found = _scripts.get(name)
    if found is None:
        raise ModelError(f"There is no script named {name!r}.")
    return found(request, *arguments)
