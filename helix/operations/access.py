"""Who is asking: the authenticate hook, called before anything that could reveal a session (R-380 to R-385, R-394).

The hook is the integrator's, or one of `helix.api.auth`. It sees the operation's name and the request, and returns a
principal or a refusal. Whatever else it does is a generic 401: a broken hook opens no door.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.db import InterfaceError, OperationalError
from django.utils.module_loading import import_string

from helix import conf
from helix.errors import Forbidden, HelixError, Unauthorized
from helix.principals import Principal

log = logging.getLogger("helix.auth")

# Who asks where a proxy authenticates and the deployment says so in writing: one owner for everybody.
ANYBODY = Principal(id="anybody", name="Anybody")


@dataclass(frozen=True)
class Refusal:
    """What a hook returns to refuse in its own words (R-348). ``fields`` stand beside the code and are camelCase."""

    status: int = 401
    code: str = Unauthorized.code
    text: str = "Authentication is needed."
    retryable: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


class HookRefused(HelixError):
    """The hook's refusal on its way to the client: status, code and text are the hook's."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text, retryable=refusal.retryable, **refusal.fields)
        vars(self).update(code=refusal.code, status=refusal.status)


def authenticate(operation: str, request: Any, *, session_id: str | None = None) -> Principal:
    """The principal behind a request, entitled to ask for ``operation``.

    request: whatever the hook understands; the shipped hooks read ``headers``, ``META``, ``method`` and ``user``.
    session_id: the session as the path names it, where it does; a token of another session is refused (R-385).
    Raises: `Unauthorized`, `Forbidden`, or the hook's own refusal.
    """
    principal = _asked(operation, request)
    check_scope(principal, operation, session_id)
    return principal


def check_scope(principal: Principal, operation: str, session_id: str | None) -> None:
    """Hold a token to its operations and its session, judged from the names alone (R-385). None: not named yet."""
    if principal.operations is not None and operation not in principal.operations:
        raise Forbidden("This credential does not cover the operation.", cause="not_permitted")
    if session_id is not None and principal.session_id not in (None, session_id):
        raise Forbidden("This credential belongs to another session.", cause="session_mismatch")


def _asked(operation: str, request: Any) -> Principal:
    hook = conf.get("HELIX_AUTHENTICATE")
    if hook is None:
        if conf.get("HELIX_ALLOW_UNAUTHENTICATED"):
            return ANYBODY
        raise _nobody()
    try:
        found = (import_string(hook) if isinstance(hook, str) else hook)(operation, request)
        if inspect.isawaitable(found):
            found = async_to_sync(_awaited)(found)
    except (OperationalError, InterfaceError):
        # No judgement about the credential: the database is away, and the same request may succeed later.
        raise
    except Exception:
        log.exception("auth.hook_failed", extra={"operation": operation})
        raise _nobody() from None
    if isinstance(found, Principal):
        return found
    if isinstance(found, Refusal):
        raise HookRefused(found)
    if found is not None and found is not False:
        log.error("auth.hook_returned", extra={"operation": operation, "type": type(found).__name__})
    raise _nobody()


async def _awaited(answer: Any) -> Any:
    return await answer


def _nobody() -> Unauthorized:
    return Unauthorized("Authentication is needed.")
