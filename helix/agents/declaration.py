"""What every declaration shares: the refusal that names its place, and the checks of single options (R-024).

A declaration is wrong while Django starts or not at all: each check runs when the object is made, so the traceback
leads to the line that made it.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from helix import schemas
from helix.conf import LONGEST_MS


class Unset(Enum):
    """The type of ``UNSET``."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""This level says nothing, so the next one is asked. ``None`` says something: no deadline (R-175, R-230)."""

Wait: TypeAlias = int | Literal[Unset.UNSET] | None

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every model provider takes
_AGENT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")


class DeclarationError(ImproperlyConfigured):
    """A declaration is refused. The message and the attributes name the agent, the tool and the option (R-024).

    A tool that is made on a line of its own is refused there, before any agent has it; discovery then names the
    module whose agent it was for.
    """

    def __init__(
        self, problem: str, *, option: str, agent: str | None = None, tool: str | None = None, module: str | None = None
    ) -> None:
        self.problem = problem
        self.option = option
        self.agent = agent
        self.tool = tool
        self.module = module
        owner = f"agent {agent!r}" if agent is not None else f"an agent of {module}" if module else ""
        named = [owner, f"tool {tool!r}" if tool is not None else "", f"option {option!r}"]
        super().__init__(f"{', '.join(part for part in named if part)}: {problem}")

    def inside(self, *, agent: str | None = None, module: str | None = None) -> DeclarationError:
        """The same refusal, naming whose declaration met it."""
        return DeclarationError(self.problem, option=self.option, agent=agent, tool=self.tool, module=module)


class Place:
    """Where a declaration stands. Its checks raise ``DeclarationError`` with that place, and return the value."""

    def __init__(self, *, agent: str | None = None, tool: str | None = None) -> None:
        self.agent = agent
        self.tool = tool

    def refusal(self, option: str, problem: str) -> DeclarationError:
        return DeclarationError(problem, option=option, agent=self.agent, tool=self.tool)

    def tool_name(self, option: str, value: Any) -> str:
        if not isinstance(value, str) or not _TOOL_NAME.fullmatch(value):
            raise self.refusal(option, f"{value!r} is not 1 to 64 letters, digits, '_' or '-'")
        return value

    def agent_name(self, option: str, value: Any) -> str:
        if not isinstance(value, str) or not _AGENT_NAME.fullmatch(value):
            raise self.refusal(option, f"{value!r} is not 1 to 256 letters, digits, '_', '-' or '.'")
        return value

    def text(self, option: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refusal(option, f"{value!r} is not a text")
        return value

    def flag(self, option: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.refusal(option, f"{value!r} is neither True nor False")
        return value

    def wait(self, option: str, value: Any) -> Wait:
        """R-239: a positive integer of milliseconds, ``None``, or ``UNSET``."""
        if value is UNSET or value is None:
            return value
        if not is_positive_integer(value) or value > LONGEST_MS:
            raise self.refusal(option, f"{value!r} is not a positive integer of milliseconds, at most {LONGEST_MS}")
        return value

    def retention(self, option: str, value: Any) -> int:
        """R-006: a finite number of at least 0, rounded up to whole milliseconds; more than a century is a century."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.refusal(option, f"{value!r} is not a finite number of at least 0")
        return math.ceil(min(value, LONGEST_MS))

    def schema(self, option: str, value: Any) -> dict[str, Any]:
        """Any valid JSON Schema that refers to nothing outside itself, copied."""
        if not isinstance(value, dict):
            raise self.refusal(option, f"{value!r} is not a JSON Schema object")
        try:
            return schemas.own_copy(value)
        except schemas.SchemaRefused as error:
            raise self.refusal(option, str(error)) from error

    def object_schema(self, option: str, value: Any) -> dict[str, Any]:
        """A schema that a model can fill as the arguments of a call. Without a type it means an object."""
        schema = self.schema(option, value)
        if schema.setdefault("type", "object") != "object":
            raise self.refusal(option, f"it describes {schema['type']!r}, and arguments are always an object")
        return schema


def is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
