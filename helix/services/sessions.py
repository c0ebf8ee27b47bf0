"""Create a conversation without starting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from helix.agents import lookup
from helix.errors import AgentNotFound, NotFound, ValidationFailed
from helix.models import Session
from helix.principals import Principal
from helix.rows.attempts import tried_again
from helix.rows.beginnings import insert_root


@tried_again
@transaction.atomic(durable=True)
def create_session(
    *,
    principal: Principal,
    agent_type: str,
    now: datetime,
    client_id: str | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    expires_after: timedelta | None = None,
) -> Session:
    """A new conversation of the principal, idle.

    expires_after: how long it lives (R-048); None: for ever.
    Raises: `NotFound` for an agent type that is not registered; `ValidationFailed` for an alias in use;
    `StateTooLarge`; `AgentResolutionFailed`.
    """
    try:
        agent = lookup(agent_type)
    except AgentNotFound as gone:
        raise NotFound("There is no such agent type.", agentType=agent_type) from gone
    try:
        with transaction.atomic():
            return insert_root(
                agent,
                owner=principal.id,
                now=now,
                client_id=client_id,
                tags=tags,
                metadata=metadata,
                state=state,
                expires_after=expires_after,
            )
    except IntegrityError as taken:
        raise ValidationFailed("You use this client id already.", cause="client_id") from taken
