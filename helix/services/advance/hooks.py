"""Tell an agent's hooks what happens (R-652 to R-654). They run outside every transaction.

A hook that raises is logged and changes nothing: it may watch a run, and rewrite a failed result's text, no more.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from helix.agents import Agent

log = logging.getLogger("helix.hooks")


def fire(agent: Agent, name: str, payload: dict[str, Any]) -> list[Any]:
    """Call every hook of that name, in declared order; returns what the ones that did not raise returned."""
    answers = []
    for hooks in agent.hooks:
        hook = getattr(hooks, name)
        if hook is None:
            continue
        try:
            answer = hook(payload)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
            answers.append(answer)
        except Exception:
            log.exception("hook.failed", extra={"hook": name, "agentType": agent.name})
    return answers


async def _awaited(answer: Any) -> Any:
    return await answer


def has_hooks(agent: Agent, *names: str) -> bool:
    """Whether anybody listens: payloads are not built for nobody."""
    return any(getattr(hooks, name) is not None for hooks in agent.hooks for name in names)
