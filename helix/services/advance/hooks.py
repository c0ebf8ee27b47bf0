"""Tell an agent's hooks what happens (R-652 to R-654). They run outside every transaction.

A hook that raises is logged and changes nothing: it may watch a run, and rewrite a failed result's text, no more.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from helix.agents import Agent
from helix.models import Message, PendingCall, Run, Session
from helix.services.advance.claim import Claim
from helix.statuses import CallKind

log = logging.getLogger("helix.hooks")


def fire(agent: Agent, name: str, payload: dict[str, Any]) -> list[Any]:
    """Call every hook of that name, in declared order; returns what the ones that did not raise returned."""
    answers = []
    for hooks in agent.hooks:
        hook = getattr(hooks, name)
        if hook is None:
            continue
        try:
            # A copy: what a hook does to its mapping stays with it.
            answer = hook(copy.deepcopy(payload))
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
            answers.append(answer)
        except Exception:
            log.exception("hook.failed", extra={"hook": name, "agentType": agent.name})
    return answers


async def _awaited(answer: Any) -> Any:
    return await answer


def call_told(call: PendingCall, **more: Any) -> dict[str, Any]:
    """What a hook is told of a call; ``more`` says what came of it."""
    return {
        "sessionId": str(call.session_id),
        "runId": str(call.run_id),
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "arguments": call.arguments,
        **more,
    }


def body_told(body: Mapping[str, Any], error_code: str | None) -> dict[str, Any]:
    """The three ways in which a result may read."""
    return {"result": body.get("text", body.get("value")), "error": body.get("error"), "errorCode": error_code}


def ended_sub_agents(claim: Claim) -> list[dict[str, Any]]:
    """How the sub-agents ended that the run before this one had waited for, in the order of their calls.

    Told by the first claim of the run; a run that is claimed again says nothing again.
    """
    run = Run.objects.select_related("continues").get(pk=claim.run_id)
    before = run.continues
    if before is None or not before.step_id or run.epoch > 1:
        return []
    calls = PendingCall.objects.filter(session_id=claim.session_id, step_id=before.step_id, kind=CallKind.SUBAGENT)
    ended = {call.tool_call_id: call for call in calls.exclude(body_started_at=None).order_by("seq")}
    results = Message.objects.filter(session_id=claim.session_id, tool_call_id__in=list(ended), rolled_back_by=None)
    parts = {row.tool_call_id: row.parts[0] for row in results}
    children = dict(Session.objects.filter(parent_call__in=ended.values()).values_list("parent_call_id", "id"))
    return [
        call_told(
            call,
            childSessionId=str(children[call.pk]) if call.pk in children else None,
            **body_told(parts[name], parts[name].get("errorCode")),
        )
        for name, call in ended.items()
        if name in parts
    ]


def has_hooks(agent: Agent, *names: str) -> bool:
    """Whether anybody listens: payloads are not built for nobody."""
    return any(getattr(hooks, name) is not None for hooks in agent.hooks for name in names)
