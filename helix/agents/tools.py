"""Declaring tools: a typed function that runs on the server, or a name and schemas that a client runs.

Whatever the rules refuse is refused here, when the tool is made (R-002, R-003, R-009, R-019, R-024, R-239).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from pydantic import BaseModel

from helix.agents.context import ApprovalRequest
from helix.agents.declaration import UNSET, Place, Wait
from helix.agents.signature import context_parameter_of, described, schema_of, signature_of

if TYPE_CHECKING:
    from helix.agents.agent import SubAgent

log = logging.getLogger(__name__)

SUBAGENT_PREFIX: Final = "subagent__"
RESERVED_TOOL_NAME_PREFIXES: Final = (SUBAGENT_PREFIX, "companion__")
FINISH_TOOL_NAME: Final = "__finish__"

ToolKind = Literal["client", "approval", "server", "subagent"]
ApprovalQuestion = Callable[[ApprovalRequest], bool]
Schema = dict[str, Any] | type[Any]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Tool:
    """One declared tool. ``tool`` and ``client_tool`` make them; every way leads through the same refusals.

    A tool with ``execute="client"`` has no body (R-001). ``summary`` is a reviewer's one-line template over the
    arguments. ``input_model`` reads arguments into the body's Python types; without it the body gets plain JSON.
    ``context_parameter`` names the body's parameter that receives a ``ToolContext``.
    """

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    execute: Literal["server", "client"] = "server"
    body: Callable[..., Any] | None = None
    require_approval: bool | ApprovalQuestion = False
    private: bool = False
    finish_with: bool = False
    replay: Literal["never", "safe"] = "never"
    client_tool_timeout_ms: Wait = UNSET
    approval_timeout_ms: Wait = UNSET
    validate_arguments: bool = True
    forbid_self_approval: bool = False
    summary: str | None = None
    input_model: type[BaseModel] | None = None
    context_parameter: str | None = None
    # Only the factories of this package set these two: they alone may use reserved names.
    sub_agent: SubAgent | None = None
    internal: bool = False

    def __post_init__(self) -> None:
        place = Place(tool=str(self.name))
        place.tool_name("name", self.name)
        if not self.internal and (self.name.startswith(RESERVED_TOOL_NAME_PREFIXES) or self.name == FINISH_TOOL_NAME):
            raise place.refusal("name", "the name is reserved for Helix itself")
        place.text("description", self.description)
        for flag in ("private", "finish_with", "validate_arguments", "forbid_self_approval"):
            place.flag(flag, getattr(self, flag))
        for wait in ("client_tool_timeout_ms", "approval_timeout_ms"):
            place.wait(wait, getattr(self, wait))
        if self.summary is not None:
            place.text("summary", self.summary)
        object.__setattr__(self, "input_schema", place.object_schema("input_schema", self.input_schema))
        if self.output_schema is not None:
            object.__setattr__(self, "output_schema", place.schema("output_schema", self.output_schema))
        self._refuse_contradictions(place)

    def _refuse_contradictions(self, place: Place) -> None:
        gated = self.require_approval is not False
        if self.execute not in ("server", "client"):
            raise place.refusal("execute", f"{self.execute!r} is neither 'server' nor 'client'")
        if self.replay not in ("never", "safe"):
            raise place.refusal("replay", f"{self.replay!r} is neither 'never' nor 'safe'")
        if not isinstance(self.require_approval, bool) and not callable(self.require_approval):
            raise place.refusal("require_approval", f"{self.require_approval!r} is neither a bool nor a function")
        if inspect.iscoroutinefunction(self.require_approval):
            raise place.refusal("require_approval", "the question is asked while a step is recorded: no async function")
        if self.execute == "client":
            for option, used in (
                ("body", self.body is not None),
                ("finish_with", self.finish_with),
                ("require_approval", gated),
                ("private", self.private),
                ("replay", self.replay == "safe"),
            ):
                if used:
                    raise place.refusal(option, 'it needs a server tool, and this one has execute="client"')
        elif self.body is None and self.sub_agent is None:
            raise place.refusal("body", "a server tool needs a function")
        if self.private and gated:
            raise place.refusal("private", "a reviewer must see the arguments of a call that needs approval")
        if self.forbid_self_approval and not gated:
            raise place.refusal("forbid_self_approval", "there is no approval to bar anybody from")

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def call_kind(self, needs_approval: bool) -> ToolKind:
        """The kind of one call of this tool, given the answer of ``needs_approval``."""
        if self.sub_agent is not None:
            return "subagent"
        if self.execute == "client":
            return "client"
        return "approval" if needs_approval else "server"

    def needs_approval(self, request: ApprovalRequest) -> bool:
        """Whether this call waits for a reviewer. Asked once, at registration (R-008).

        A question that raises, or that answers with something to be awaited, counts as yes.
        """
        if isinstance(self.require_approval, bool):
            return self.require_approval
        try:
            answer: object = self.require_approval(request)
        except Exception:
            log.warning(
                "approval.question_failed",
                exc_info=True,
                extra={"sessionId": request.session_id, "toolName": self.name, "agentType": request.agent_type},
            )
            return True
        if inspect.iscoroutine(answer):
            answer.close()
            return True
        return bool(answer)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    execute: Literal["server", "client"] = "server",
    require_approval: bool | ApprovalQuestion = False,
    private: bool = False,
    finish_with: bool = False,
    replay: Literal["never", "safe"] = "never",
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    client_tool_timeout_ms: Wait = UNSET,
    approval_timeout_ms: Wait = UNSET,
    validate_arguments: bool = True,
    forbid_self_approval: bool = False,
    summary: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """A tool from a typed function: its name, schema and texts come from the signature and the docstring.

    ``@tool`` alone, or ``@tool(require_approval=True, …)``. Options are those of ``Tool``. With ``execute="client"``
    only the signature counts: the function is never called (R-001). ``input_schema`` replaces the signature's
    schema; the body then receives plain JSON values.
    """
    return _tool_of(function, **options) if function is not None else lambda given: _tool_of(given, **options)


def client_tool(
    name: str,
    *,
    description: str = "",
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    **options: Any,
) -> Tool:
    """A tool that a client runs. Schemas are JSON Schema objects or types that pydantic knows.

    The other options are those of ``Tool``; the ones that need a server are refused by name (R-002, R-009, R-019).
    """
    place = Place(tool=str(name))
    return Tool(
        name=name,
        description=description,
        input_schema={"type": "object"} if input_schema is None else schema_of(place, "input_schema", input_schema),
        output_schema=None if output_schema is None else schema_of(place, "output_schema", output_schema),
        execute="client",
        **options,
    )


def _tool_of(function: Callable[..., Any], **options: Any) -> Tool:
    given_name = options.pop("name", None)
    name = getattr(function, "__name__", repr(function)) if given_name is None else given_name
    place = Place(tool=str(name))
    input_schema, output_schema = options.pop("input_schema", None), options.pop("output_schema", None)
    description, parameters = described(function)
    client = options.get("execute") == "client"
    model: type[BaseModel] | None = None
    if input_schema is None:
        signature = signature_of(place, function, parameters)
        model, context_parameter = signature.model, signature.context_parameter
        input_schema = schema_of(place, "signature", model)
    else:
        context_parameter = context_parameter_of(function)
        input_schema = schema_of(place, "input_schema", input_schema)
    given = options.pop("description", None)
    return Tool(
        name=name,
        description=description if given is None else given,
        input_schema=input_schema,
        output_schema=None if output_schema is None else schema_of(place, "output_schema", output_schema),
        body=None if client else function,
        input_model=None if client else model,
        context_parameter=None if client else context_parameter,
        **options,
    )
