"""Insert sessions: a root for a client, a child for a delegating call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from helix import conf, jsontext, nudges
from helix.agents import Agent
from helix.errors import StateTooLarge
from helix.models import PendingCall, RemoteChild, Run, Session
from helix.rows.log import append_message
from helix.rows.runs import start_run
from helix.rows.tree import Tree
from helix.statuses import EventType, Role, RunCause, RunStatus


def insert_root(
    agent: Agent,
    *,
    owner: str,
    now: datetime,
    client_id: str | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    delegation_id: str | None = None,
    expires_after: timedelta | None = None,
) -> Session:
    """A new conversation, at rest. Raises: `StateTooLarge`; IntegrityError when the owner uses the alias already."""
    check_state_size(state or {})
    key = uuid4()
    return Session.objects.create(
        id=key,
        root_id=key,
        client_id=client_id,
        owner=owner,
        agent_type=agent.name,
        tags=list(tags),
        metadata=dict(metadata or {}),
        state=dict(state or {}),
        delegation_id=delegation_id,
        max_open_calls=agent.max_open_calls,
        continue_on_submit=agent.continue_on_submit,
        error_texts=dict(agent.error_texts) or None,
        created_at=now,
        updated_at=now,
        expires_at=now + expires_after if expires_after else None,
    )


def start_child(tree: Tree, agent: Agent, parent_run: Run, call: PendingCall, message: str) -> Session:
    """A child session bound to the delegating call, with its first run queued (R-199)."""
    child = _insert_child(tree, parent_run, call, agent.name, continue_on_submit=agent.continue_on_submit)
    run = start_run(tree, child, cause=RunCause.CHILD, started_by=parent_run.started_by)
    append_message(tree, child, run, Role.USER, [{"type": "text", "text": message}])
    return child


def start_remote_child(
    tree: Tree, *, agent_type: str, url: str, parent_run: Run, call: PendingCall, message: str
) -> Session:
    """The stand-in for a child that a peer runs, and the row by which the peer will be asked to (R-199, R-213).

    Its run is suspended from its first moment on: it awaits the peer, and nobody here claims it.
    """
    child = _insert_child(tree, parent_run, call, agent_type, remote_url=url)
    run = start_run(
        tree,
        child,
        cause=RunCause.CHILD,
        started_by=parent_run.started_by,
        status=RunStatus.SUSPENDED_AWAITING_CHILDREN,
    )
    append_message(tree, child, run, Role.USER, [{"type": "text", "text": message}])
    RemoteChild.objects.create(session_id=child.id, delegation_id=f"dlg_{uuid4().hex}", next_attempt_at=tree.now)
    nudges.nudge_relay()
    return child


def _insert_child(
    tree: Tree,
    parent_run: Run,
    call: PendingCall,
    agent_type: str,
    *,
    continue_on_submit: bool = True,
    remote_url: str | None = None,
) -> Session:
    parent = tree.session(call.session_id)
    child = Session(
        root_id=tree.root.id,
        parent_id=parent.id,
        parent_call_id=call.id,
        owner=tree.root.owner,
        agent_type=agent_type,
        max_open_calls=None,
        continue_on_submit=continue_on_submit,
        remote_url=remote_url,
        created_at=tree.now,
        updated_at=tree.now,
    )
    child.save(force_insert=True)
    tree.adopt(child)
    parent.child_count += 1
    tree.emit(
        EventType.SUBAGENT_START,
        parent,
        parent_run,
        toolCallId=call.tool_call_id,
        childSessionId=str(child.id),
        childAgentType=agent_type,
    )
    return child


def check_state_size(state: Mapping[str, Any]) -> None:
    """Raises: `StateTooLarge` when the custom state is over the store's limit (R-297)."""
    limit = conf.get("HELIX_MAX_STATE_BYTES")
    if limit is None:
        return
    size = len(jsontext.dumps(dict(state)).encode())
    if size > limit:
        raise StateTooLarge("The custom state is too large.", cause="state", limitBytes=limit, sizeBytes=size)
