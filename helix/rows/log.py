"""Append to a session's message log. Positions come from the locked session and are never used twice."""

from __future__ import annotations

from typing import Any

from helix.models import Message, Run, Session
from helix.rows.tree import Tree
from helix.statuses import Role


def new_message(
    tree: Tree,
    session: Session,
    run: Run | None,
    role: Role,
    parts: list[dict[str, Any]],
    *,
    tool_call_id: str | None = None,
    error_code: str | None = None,
    interrupted: bool = False,
    hidden: bool = False,
) -> Message:
    """The next message of the log, numbered but not yet written: for a bulk insert."""
    session.message_position += 1
    return Message(
        session_id=session.id,
        position=session.message_position,
        run_id=run.id if run else None,
        step=run.step_count if run else 0,
        role=role,
        parts=parts,
        tool_call_id=tool_call_id,
        error_code=error_code,
        interrupted=interrupted,
        hidden=hidden,
        created_at=tree.now,
    )


def append_message(
    tree: Tree, session: Session, run: Run | None, role: Role, parts: list[dict[str, Any]], **columns: Any
) -> Message:
    """Append one message and write it."""
    message = new_message(tree, session, run, role, parts, **columns)
    message.save(force_insert=True)
    return message
