"""Declaring agents and sub-agents. Everything that the rules refuse about them is refused here (5.A, R-239)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from helix import conf
from helix.agents.context import Hooks, StepContext
from helix.agents.declaration import UNSET, DeclarationError, Place, Wait, is_positive_integer
from helix.agents.signature import schema_of
from helix.agents.tools import FINISH_TOOL_NAME, SUBAGENT_PREFIX, Tool, tool

DEFAULT_MAX_STEPS: Final = 50
DEFAULT_RETENTION_MS: Final = 24 * 60 * 60 * 1000
DEFAULT_SILENCE_MS: Final = 60 * 60 * 1000
LONGEST_URL: Final = 2000
MODEL_WITHOUT_SETTING: Final = "scripted:echo"  # an installation without a provider still runs, offline
_TASK: Final = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["task"],
    "additionalProperties": False,
}

WaitKind = Literal["client", "approval"]
WaitLevel = Literal["tool", "agent", "setting"]


@dataclass(frozen=True, eq=False, repr=False)
class SubAgent:
    """An agent that another agent may call; the model sees it as the tool ``subagent__<name>``.

    agent: a declared agent, or the name of one that is registered elsewhere, or with ``remote`` the peer's name of it.
    input_schema: what the model fills in; a single ``task`` when left out.
    output_schema: only with ``remote``; a local agent declares its own (R-015).
    remote: the peer's base URL.  timeout_ms: how long that peer may be silent, an hour when left out, ``None`` for
      ever; only with ``remote`` (Q-01, R-202).  headers: what every request to the peer carries, such as an
      Authorization; a mapping, or a function that returns one. Never stored, shown or logged.
    """

    agent: Agent | str
    description: str = ""
    _: KW_ONLY
    name: str | None = None
    input_schema: Any = None
    output_schema: Any = None
    remote: str | None = None
    timeout_ms: Wait = UNSET
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None
    tool: Tool = field(init=False)

    def __post_init__(self) -> None:
        agent_name = self.agent_name
        place = Place(agent=str(agent_name), tool=self.tool_name)
        place.agent_name("agent", agent_name)
        if self.remote is None:
            self._refuse_remote_options(place)
        else:
            self._refuse_half_remote(place)
        place.wait("timeout_ms", self.timeout_ms)
        source = _TASK if self.input_schema is None else self.input_schema
        made = Tool(
            name=self.tool_name,
            description=self.description,
            input_schema=schema_of(place, "input_schema", source),
            output_schema=self.answer_schema,
            sub_agent=self,
            internal=True,
        )
        object.__setattr__(self, "input_schema", made.input_schema)
        object.__setattr__(self, "output_schema", made.output_schema)
        object.__setattr__(self, "tool", made)

    def __repr__(self) -> str:
        return f"<SubAgent {self.agent_name}>"

    @property
    def agent_name(self) -> str:
        """The agent type that a child session gets."""
        return self.agent.name if isinstance(self.agent, Agent) else self.agent

    @property
    def silence_ms(self) -> int | None:
        """How long a remote peer may be silent before the child counts as lost; ``None``: for ever (R-202)."""
        return DEFAULT_SILENCE_MS if self.timeout_ms is UNSET else self.timeout_ms

    def request_headers(self) -> dict[str, str]:
        """What a request to the peer carries now. Raises: whatever the declared function raises."""
        given = self.headers() if callable(self.headers) else self.headers
        return dict(given or {})

    @property
    def tool_name(self) -> str:
        """The name under which the model calls it."""
        return f"{SUBAGENT_PREFIX}{self.name or self.agent_name}"

    @property
    def answer_schema(self) -> dict[str, Any] | None:
        """What its answer looks like; ``None`` while a local agent is known by name alone."""
        if isinstance(self.agent, Agent):
            declared: dict[str, Any] | None = self.agent.output_schema
            return declared
        if self.output_schema is None:
            return None
        return schema_of(Place(agent=self.agent_name, tool=self.tool_name), "output_schema", self.output_schema)

    def _refuse_remote_options(self, place: Place) -> None:
        if self.timeout_ms is not UNSET:
            raise place.refusal(
                "timeout_ms", "no clock ends local work; only a remote peer's silence is bounded (Q-01)"
            )
        if self.headers is not None:
            raise place.refusal("headers", "a local agent is called without a request")
        if self.output_schema is not None:
            raise place.refusal("output_schema", "a local agent declares its own output schema")
        if isinstance(self.agent, Agent) and self.agent.output_schema is None:
            raise place.refusal("output_schema", "an agent that is called by another one declares what it answers")

    def _refuse_half_remote(self, place: Place) -> None:
        if not isinstance(self.agent, str):
            raise place.refusal("agent", "a remote agent is given by its name at the peer")
        parts = urlsplit(self.remote) if isinstance(self.remote, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise place.refusal("remote", f"{self.remote!r} is not an http or https URL")
        if parts.username is not None or parts.query or parts.fragment or len(str(self.remote)) > LONGEST_URL:
            # The address is stored and shown to operators.
            raise place.refusal("remote", "it is a bare address: a secret belongs in headers")
        if self.output_schema is None:
            raise place.refusal("output_schema", "an agent that is called by another one declares what it answers")
        if self.headers is not None and not callable(self.headers) and not _is_text_mapping(self.headers):
            # The values may be secret: the refusal does not repeat them.
            raise place.refusal("headers", "it is neither a mapping of texts nor a function that returns one")


@dataclass(frozen=True, eq=False, repr=False)
class Agent:
    """One declared agent: what it is told, what it may call, and what bounds it.

    name: its agent type in every session.
    model: a name with its provider (``openai:gpt-5``, ``scripted:echo``), a function of a ``StepContext`` that returns
      one, or ``None``: the setting ``HELIX_MODEL``.
    tools: tools, or typed functions, which become tools.
    output_schema: a JSON Schema or a type; it gives the model the tool ``__finish__`` (R-012).
    max_steps: steps of one turn; left out 50, ``math.inf`` for no bound (R-013).
    stop_when: asked with a ``StepContext`` after each step, before ``max_steps`` is looked at (R-014).
    error_texts: what the model reads for an error code instead of the built-in text (R-745).
    model_settings: passed to the provider as they are.
    """

    name: str
    _: KW_ONLY
    model: str | Callable[[StepContext], str] | None = None
    instructions: str = ""
    tools: Sequence[Tool | Callable[..., Any]] = ()
    sub_agents: Sequence[SubAgent] = ()
    output_schema: Any = None
    max_steps: float | None = None
    stop_when: Callable[[StepContext], bool] | None = None
    client_tool_timeout_ms: Wait = UNSET
    approval_timeout_ms: Wait = UNSET
    completed_tombstone_retention_ms: int = DEFAULT_RETENTION_MS
    max_open_calls: int | None = None
    continue_on_submit: bool = True
    validate_arguments: bool = True
    error_texts: Mapping[str, str] = field(default_factory=dict)
    hooks: Sequence[Hooks] = ()
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    _by_name: dict[str, Tool] = field(init=False)

    def __post_init__(self) -> None:
        place = Place(agent=str(self.name))
        place.agent_name("name", self.name)
        self._refuse_wrong_texts(place)
        for flag in ("continue_on_submit", "validate_arguments"):
            place.flag(flag, getattr(self, flag))
        for wait in ("client_tool_timeout_ms", "approval_timeout_ms"):
            place.wait(wait, getattr(self, wait))
        if self.max_open_calls is not None and not is_positive_integer(self.max_open_calls):
            raise place.refusal("max_open_calls", f"{self.max_open_calls!r} is neither None nor a positive integer")
        if self.stop_when is not None and not callable(self.stop_when):
            raise place.refusal("stop_when", f"{self.stop_when!r} is not a function")
        retention = place.retention("completed_tombstone_retention_ms", self.completed_tombstone_retention_ms)
        object.__setattr__(self, "completed_tombstone_retention_ms", retention)
        object.__setattr__(self, "max_steps", _step_limit(place, self.max_steps))
        object.__setattr__(self, "error_texts", MappingProxyType(dict(self.error_texts)))
        object.__setattr__(self, "model_settings", MappingProxyType(dict(self.model_settings)))
        object.__setattr__(self, "hooks", _checked_hooks(place, self.hooks))
        if self.output_schema is not None:
            schema = schema_of(place, "output_schema", self.output_schema)
            object.__setattr__(self, "output_schema", place.object_schema("output_schema", schema))
        object.__setattr__(self, "tools", tuple(_as_tool(place, given) for given in self.tools))
        object.__setattr__(self, "sub_agents", tuple(_as_sub_agent(place, given) for given in self.sub_agents))
        object.__setattr__(self, "_by_name", self._named_tools(place))

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """Everything the model may call: its tools, its sub-agents, and ``__finish__`` with an output schema."""
        return tuple(self._by_name.values())

    @property
    def step_limit(self) -> float:
        """How many steps a turn may take; ``math.inf`` when the declaration wrote that out (R-013)."""
        return DEFAULT_MAX_STEPS if self.max_steps is None else self.max_steps

    def tool(self, name: str) -> Tool | None:
        """The tool that a model means by ``name``; ``None``: it has none of that name."""
        return self._by_name.get(name)

    def validates(self, tool: Tool) -> bool:
        """Whether a call's arguments are checked before anything else happens to it (R-020, R-031)."""
        return self.validate_arguments and tool.validate_arguments

    def wait_for(self, tool: Tool, kind: WaitKind) -> tuple[int | None, WaitLevel]:
        """How long an external call may wait, and the level that says so: tool, then agent, then setting.

        ``None`` at any level is an answer, no deadline, and ends the search (R-175, R-230).
        """
        option = "client_tool_timeout_ms" if kind == "client" else "approval_timeout_ms"
        levels: tuple[tuple[Tool | Agent, WaitLevel], ...] = ((tool, "tool"), (self, "agent"))
        for declared, level in levels:
            wait: Wait = getattr(declared, option)
            if wait is not UNSET:
                return wait, level
        return conf.get(f"HELIX_{option.upper()}"), "setting"

    def model_for(self, step: StepContext) -> str:
        """The model's name for one step, from the declaration or the setting ``HELIX_MODEL``."""
        chosen = self.model(step) if callable(self.model) else self.model
        return chosen or conf.get("HELIX_MODEL") or MODEL_WITHOUT_SETTING

    def _refuse_wrong_texts(self, place: Place) -> None:
        place.text("instructions", self.instructions)
        if self.model is not None and not callable(self.model) and not place.text("model", self.model):
            raise place.refusal("model", "the name is empty; leave it out for the setting HELIX_MODEL")
        if not isinstance(self.model_settings, Mapping):
            raise place.refusal("model_settings", f"{self.model_settings!r} is not a mapping")
        texts = self.error_texts
        if not _is_text_mapping(texts):
            raise place.refusal("error_texts", f"{texts!r} is not a mapping of error codes to texts")

    def _named_tools(self, place: Place) -> dict[str, Tool]:
        declared = [given for given in self.tools if isinstance(given, Tool)]
        declared += [sub_agent.tool for sub_agent in self.sub_agents]
        if self.output_schema is not None:
            declared.append(_finish_tool(self.output_schema))
        named: dict[str, Tool] = {}
        for one in declared:
            if one.name in named:
                raise Place(agent=self.name, tool=one.name).refusal("tools", "two tools have this name")
            named[one.name] = one
        return named


def _is_text_mapping(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(part, str) for pair in given.items() for part in pair)


def _finish_tool(output_schema: dict[str, Any]) -> Tool:
    def finish(**output: Any) -> dict[str, Any]:
        return output

    return Tool(
        name=FINISH_TOOL_NAME,
        description="Ends the work. The arguments are the final output.",
        input_schema=output_schema,
        body=finish,
        finish_with=True,
        internal=True,
    )


def _step_limit(place: Place, value: Any) -> float:
    if value is None:
        return DEFAULT_MAX_STEPS
    if value == math.inf or is_positive_integer(value):
        limit: float = value
        return limit
    raise place.refusal("max_steps", f"{value!r} is neither a positive integer nor math.inf")


def _as_tool(place: Place, given: Any) -> Tool:
    """A tool as it is; a typed function becomes one. What is wrong with it then also names the agent."""
    if isinstance(given, Tool):
        if given.internal:
            raise Place(agent=place.agent, tool=given.name).refusal("tools", "the name is reserved for Helix itself")
        return given
    if not callable(given):
        raise place.refusal("tools", f"{given!r} is neither a tool nor a function")
    try:
        return tool(given)
    except DeclarationError as refusal:
        raise refusal.inside(agent=place.agent) from refusal


def _as_sub_agent(place: Place, given: Any) -> SubAgent:
    if not isinstance(given, SubAgent):
        raise place.refusal("sub_agents", f"{given!r} is not a SubAgent")
    return given


def _checked_hooks(place: Place, given: Any) -> tuple[Hooks, ...]:
    hooks = (given,) if isinstance(given, Hooks) else tuple(given)
    for one in hooks:
        if not isinstance(one, Hooks):
            raise place.refusal("hooks", f"{one!r} is not a Hooks object")
        for option in fields(Hooks):
            hook = getattr(one, option.name)
            if hook is not None and not callable(hook):
                raise place.refusal(f"hooks.{option.name}", f"{hook!r} is not a function")
    return hooks
