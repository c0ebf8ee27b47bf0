"""The chat page: it hands the script what it needs and knows nothing of conversations itself."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from demo.agents import INTRODUCTIONS, Introduction
from helix.agents import Agent, all_agents


@require_safe
@never_cache
@login_required
def chat(request: HttpRequest, session_id: UUID | None = None) -> HttpResponse:
    """One conversation, or the choice of an agent for a new one. A foreign id shows what a missing one shows."""
    agents = [_introduced(agent) for agent in all_agents()]
    page = {"sessionId": None if session_id is None else str(session_id), "agents": agents}
    return render(request, "demo/chat.html", {"nav": "chat", "page": page, "agents": agents})


def _introduced(agent: Agent) -> dict[str, Any]:
    """What the page says about an agent, and which of its tools somebody else has to approve (R-023)."""
    introduction = INTRODUCTIONS.get(agent.name) or Introduction(agent.name, "", "")
    return {
        "agentType": agent.name,
        "title": introduction.title,
        "about": introduction.about,
        "example": introduction.example,
        "reviewedTools": [tool.name for tool in agent.all_tools if tool.forbid_self_approval],
    }
