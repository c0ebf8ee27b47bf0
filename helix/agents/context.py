"""What the functions of a declaration are told: a tool's body, an approval question, a stop condition, a hook."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from helix import jsontext

StatePath: TypeAlias = tuple[str, ...]
StateWrite: TypeAlias = tuple[StatePath, Any]


class StopSignal(Protocol):
    """How a body learns that its run was stopped. The loop's cancel token is one."""

    @property
    def cancelled(self) -> bool:
        """Whether a stop was asked for."""

    @property
    def kind(self) -> str | None:
        """Why: ``interrupt``, ``abort`` or another word of the loop's; ``None`` while nobody asked."""

    def check(self) -> None:
        """Raises the loop's ``Cancelled`` when a stop was asked for; a long body calls it between two steps."""

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once when a stop is asked for, at once if it was; the returned function takes that back."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """One call that may need a reviewer. ``arguments`` are parsed; ``arguments_json`` is the model's own text."""

    tool_name: str
    arguments: Any
    arguments_json: str
    session_id: str
    run_id: str
    agent_type: str
    owner: str


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """One step of a run. A model function is asked before the reply, ``stop_when`` after it with text and calls."""

    session_id: str
    root_id: str
    run_id: str
    agent_type: str
    owner: str
    step: int
    state: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    tool_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Where a server tool's body runs. A parameter annotated with it receives one and is no part of the schema.

    ``state`` is the session's custom state with this body's own staged writes. ``state_writes`` are what the driver
    commits with the step (R-561); nothing of them is kept when the body fails.
    """

    session_id: str
    root_id: str
    run_id: str
    tool_call_id: str
    agent_type: str
    owner: str
    token: StopSignal
    state: dict[str, Any] = field(default_factory=dict)
    _writes: list[StateWrite] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", copy.deepcopy(self.state))

    def set_state(self, where: str | Mapping[str, Any], value: Any = None) -> None:
        """Stages a write of the custom state: ``set_state("cart.total", 3)`` or ``set_state({"cart": {...}})``.

        where: a path of keys joined by dots, made as needed; or a mapping whose keys are each replaced.
        Raises: JsonRefused for what JSON cannot store alike everywhere.
        """
        writes = _as_writes(where, value)
        jsontext.checked([[list(path), new] for path, new in writes])
        kept = copy.deepcopy(writes)
        self._writes.extend(kept)
        changed = apply_state_writes(self.state, kept)
        self.state.clear()
        self.state.update(changed)

    @property
    def state_writes(self) -> tuple[StateWrite, ...]:
        """The staged writes, in the order in which they were made."""
        return tuple(self._writes)


def apply_state_writes(state: Mapping[str, Any], writes: Iterable[StateWrite]) -> dict[str, Any]:
    """A new state with the writes made in order. What is not an object on the way to a key is replaced by one."""
    changed = copy.deepcopy(dict(state))
    for path, value in writes:
        place = changed
        for key in path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        place[path[-1]] = copy.deepcopy(value)
    return changed


def _as_writes(where: str | Mapping[str, Any], value: Any) -> list[StateWrite]:
    if isinstance(where, Mapping):
        return [((key,), new) for key, new in where.items()]
    return [(tuple(where.split(".")), value)]


Hook: TypeAlias = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions, sync or async, that are told what a run does (R-652); one mapping each, camelCase as on the wire.

    ``after_tool`` and ``message`` also hear of drained results (R-653). An ``after_tool`` that returns a text replaces
    the error of a failed result before the model sees it (R-654); any other return value is ignored.
    """

    agent_start: Hook | None = None
    agent_complete: Hook | None = None
    agent_fail: Hook | None = None
    before_model: Hook | None = None
    after_model: Hook | None = None
    before_tool: Hook | None = None
    after_tool: Hook | None = None
    before_subagent: Hook | None = None
    after_subagent: Hook | None = None
    message: Hook | None = None
