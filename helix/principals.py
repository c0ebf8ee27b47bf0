"""Who is asking. Every verb and every read takes a principal and is narrowed by it (R-398).

A principal is what the authenticate hook returned (R-384): an id that sessions are owned by, and what it may reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Principal:
    """Somebody with a stable id.

    id: equals ``Session.owner`` for what it owns; 1 to 256 characters.
    session_id: set for a session-bound token: the only session in reach (R-385).
    operations: set for a token: the operations of 5.L that it may ask for; None means all.
    is_reviewer: the approval policy may widen its reach to calls of others.
    is_operator: reaches every session, audited.
    """

    id: str
    name: str = ""
    session_id: str | None = None
    operations: frozenset[str] | None = None
    groups: frozenset[str] = field(default_factory=frozenset)
    is_reviewer: bool = False
    is_operator: bool = False
    views_private_values: bool = False
    address: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.id) <= 256:
            raise ValueError("a principal's id has 1 to 256 characters")


SYSTEM = Principal(id="system", name="Helix", is_operator=True)
"""Sweeps and workers act as this principal; it reaches everything and owns nothing."""
