"""Who is asking. Every verb and every read takes a principal and is narrowed by it (R-398).

A principal is what the authenticate hook returned (R-384): an id that sessions are owned by, and what it may reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser

OPERATE = "helix.operate"
VIEW_PRIVATE_VALUES = "helix.view_private_values"


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


def principal_of(user: AbstractUser, *, address: str = "") -> Principal:
    """A logged-in Django user as every service knows them. What they may review is the approval policy's to say."""
    is_operator = user.has_perm(OPERATE)
    return Principal(
        id=str(user.pk),
        name=user.get_username(),
        is_operator=is_operator,
        views_private_values=is_operator and user.has_perm(VIEW_PRIVATE_VALUES),
        address=address,
    )
