"""Hand a sub-agent call over to a child: the agent is looked up before the lock, the child begins under it (R-210)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from helix import jsontext
from helix.agents import Agent, SubAgent, lookup
from helix.errors import AgentNotFound, AgentResolutionFailed
from helix.models import PendingCall, Run
from helix.rows.beginnings import start_child, start_remote_child
from helix.rows.calls import Outcome, consume, emit_tool_start, move_call, readable
from helix.rows.tree import Tree
from helix.statuses import AnswerKind, CallState

_GONE = "The sub-agent is not registered any more."


@dataclass(frozen=True)
class Delegate:
    """Whom a tool name stands for: a local agent, a remote one (``agent`` None), or nobody, and why."""

    sub_agent: SubAgent | None
    agent: Agent | None = None
    problem: str | None = None


Delegates = Mapping[str, Delegate]


def resolve_delegates(agent: Agent, tool_names: Iterable[str]) -> Delegates:
    """Who each of the named tools stands for. Asks the integrator's lookup, so no transaction may be open (F-4)."""
    return {name: _resolved(agent, name) for name in dict.fromkeys(tool_names)}


def _resolved(agent: Agent, tool_name: str) -> Delegate:
    declared = agent.tool(tool_name)
    if declared is None or declared.sub_agent is None:
        return Delegate(None, problem=_GONE)
    sub_agent = declared.sub_agent
    if sub_agent.remote is not None:
        return Delegate(sub_agent)
    try:
        return Delegate(sub_agent, lookup(sub_agent.agent_name))
    except (AgentNotFound, AgentResolutionFailed) as gone:
        return Delegate(sub_agent, problem=gone.message)


def delegate(tree: Tree, run: Run, call: PendingCall, delegates: Delegates) -> str | None:
    """Start the child of a sub-agent call; one that cannot begin is a failed result, not a failed run (R-210)."""
    session = tree.session(call.session_id)
    emit_tool_start(tree, session, run, call)
    found = delegates.get(call.tool_name, Delegate(None, problem=_GONE))
    if found.problem is not None or found.sub_agent is None:
        text = readable(session, "tool_execution_failed", call.kind, found.problem)
        failed = Outcome(call, AnswerKind.ERROR, {"error": text}, error_code="tool_execution_failed")
        consume(tree, session, run, [failed])
        return None
    move_call(call, CallState.EXECUTING, body_started_at=tree.now, body_attempts=1)
    if found.agent is not None:
        child = start_child(tree, found.agent, run, call, _task_of(call))
    else:
        # The peer is asked after this commit, by whoever finds the row first.
        child = start_remote_child(
            tree,
            agent_type=found.sub_agent.agent_name,
            url=str(found.sub_agent.remote),
            parent_run=run,
            call=call,
            message=_task_of(call),
        )
    return str(child.id)


def _task_of(call: PendingCall) -> str:
    """The child's first message: the one text argument as it is, anything richer as JSON."""
    arguments = call.arguments
    if isinstance(arguments, dict) and set(arguments) == {"task"} and isinstance(arguments["task"], str):
        return arguments["task"]
    return jsontext.dumps(arguments) if arguments is not None else call.arguments_json
