"""Signed tokens: a principal, a session and operations, for fifteen minutes (R-385, R-385a).

A token is carried in the Authorization header and never in a URL (R-397). It gives what it names and no more: its
bearer is neither reviewer nor operator, whatever its principal may be after a login. It is judged by the host's clock,
like every signature of Django's.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.core import signing

from helix import conf
from helix.principals import Principal

SALT = "helix.token"


def issue(principal_id: str, *, session_id: str | None = None, operations: Iterable[str] | None = None) -> str:
    """A token for the Authorization header, as ``Bearer <token>``; for a page or a device that has no login.

    session_id: the one session that it reaches, as its bearer will name it; None: all of the principal's.
    operations: the names of contract 5.L that it may ask for; None: all.
    """
    claims = {
        "principal": principal_id,
        "session": session_id,
        "operations": None if operations is None else sorted(operations),
    }
    return signing.dumps(claims, salt=SALT)


def bearer_of(token: str, *, address: str = "") -> Principal | None:
    """Whoever the token speaks for; None for one that is forged, damaged or too old."""
    try:
        claims = signing.loads(token, salt=SALT, max_age=conf.get("HELIX_TOKEN_SECONDS"))
    except signing.BadSignature:
        return None
    operations = claims["operations"]
    return Principal(
        id=claims["principal"],
        session_id=claims["session"],
        operations=None if operations is None else frozenset(operations),
        address=address,
    )
