"""Where agents are found by their name: the ``agents.py`` modules of installed apps, or ``HELIX_AGENTS`` (R-011)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string, module_has_submodule

from helix import conf
from helix.agents.agent import Agent
from helix.agents.declaration import DeclarationError
from helix.errors import AgentNotFound, AgentResolutionFailed

_registered: dict[str, Agent] = {}


def register(agent: Agent) -> Agent:
    """The same agent, from now on found by its name; its local sub-agents with it. Again is once.

    Raises: DeclarationError when another agent has the name.
    """
    if not isinstance(agent, Agent):
        raise DeclarationError(f"{agent!r} is not an Agent", option="register")
    known = _registered.setdefault(agent.name, agent)
    if known is not agent:
        raise DeclarationError("another agent is registered under this name", option="name", agent=agent.name)
    for sub_agent in agent.sub_agents:
        if isinstance(sub_agent.agent, Agent) and _registered.get(sub_agent.agent_name) is not sub_agent.agent:
            register(sub_agent.agent)
    return agent


def lookup(agent_type: str) -> Agent:
    """The agent of that type.

    Raises: AgentNotFound when there is none, AgentResolutionFailed when the configured source failed (R-074).
    """
    try:
        found = _asked(_source(), agent_type)
    except Exception as error:
        raise AgentResolutionFailed("The agent could not be looked up.", agentType=agent_type) from error
    if found is None:
        raise AgentNotFound("No agent of this type is registered.", agentType=agent_type)
    if not isinstance(found, Agent):
        raise AgentResolutionFailed("The agent could not be looked up.", agentType=agent_type)
    return found


def all_agents() -> tuple[Agent, ...]:
    """Every agent that can be listed, by name. A lookup function cannot be asked for all of its agents: none."""
    source = _source()
    if not isinstance(source, Mapping):
        return ()
    return tuple(source[name] for name in sorted(source))


def discover() -> None:
    """Imports the ``agents`` module of every installed app and checks what only the whole can show.

    Called once while Django starts. Raises: DeclarationError (R-024).
    """
    for app in apps.get_app_configs():
        if app.module is None or not module_has_submodule(app.module, "agents"):
            continue
        module = f"{app.name}.agents"
        try:
            import_module(module)
        except DeclarationError as refusal:
            raise refusal if refusal.agent is not None else refusal.inside(module=module) from refusal
    check()


def check() -> None:
    """Refuses a source that is none, a value that is no agent, and a sub-agent that nobody declared (R-011, R-015)."""
    try:
        source = _source()
    except (ImportError, TypeError) as error:
        raise DeclarationError(f"it cannot be used: {error}", option="HELIX_AGENTS") from error
    if not isinstance(source, Mapping):
        return
    for name, agent in source.items():
        if not isinstance(agent, Agent):
            raise DeclarationError(f"{agent!r} is not an Agent", option="HELIX_AGENTS", agent=str(name))
        _check_sub_agents(agent, source)


@contextmanager
def registered(*agents: Agent) -> Iterator[None]:
    """Registers the agents for the length of a block, then restores what was there before."""
    before = dict(_registered)
    try:
        for agent in agents:
            register(agent)
        yield
    finally:
        _registered.clear()
        _registered.update(before)


def _check_sub_agents(agent: Agent, source: Mapping[str, Any]) -> None:
    for sub_agent in agent.sub_agents:
        if sub_agent.remote is not None:
            continue
        found = source.get(sub_agent.agent_name)
        problem = None
        if found is None:
            problem = f"no agent {sub_agent.agent_name!r} is registered"
        elif isinstance(sub_agent.agent, Agent) and found is not sub_agent.agent:
            problem = f"another agent is registered as {sub_agent.agent_name!r}"
        elif isinstance(found, Agent) and found.output_schema is None:
            problem = f"the agent {sub_agent.agent_name!r} declares no output schema"
        if problem:
            raise DeclarationError(problem, option="sub_agents", agent=agent.name, tool=sub_agent.tool_name)


def _source() -> Mapping[str, Any] | Callable[[str], Any]:
    """What answers by name now: the configured mapping or function, or the discovered agents."""
    configured = conf.get("HELIX_AGENTS")
    if configured is None:
        return _registered
    source = import_string(configured) if isinstance(configured, str) else configured
    if not isinstance(source, Mapping) and not callable(source):
        raise TypeError(f"{configured!r} names neither a mapping nor a function")
    return source


def _asked(source: Mapping[str, Any] | Callable[[str], Any], agent_type: str) -> Any:
    return source.get(agent_type) if isinstance(source, Mapping) else source(agent_type)
