"""What a reviewer reads after a decision: one sentence per outcome, by code, never by the server's text (I-56).

Only a refusal of the integrator's own hook is shown in its own words (R-348).
"""

from __future__ import annotations

from django.utils.translation import gettext as _

from helix.errors import (
    AgentNotFound,
    AgentResolutionFailed,
    ArgumentsChanged,
    CallNotExposed,
    DatabaseUnavailable,
    Forbidden,
    HelixError,
    RateLimited,
    RunSupersededError,
    UnexpectedFailure,
    UnknownToolCall,
    ValidationFailed,
)


def said_of_outcome(status: str, *, approved: bool) -> str:
    """The sentence for a stored verdict, a repeat, or one that came too late."""
    if status == "accepted":
        return _("Approved. The conversation goes on.") if approved else _("Denied. The agent is told so.")
    if status == "already_completed":
        return _("This was decided already; the first verdict stands.")
    return _("The deadline has passed: the request was not approved. The agent is told of your verdict.")


def said_of_refusal(refusal: HelixError) -> str:
    """The sentence for a verdict that was not stored."""
    match refusal:
        case ArgumentsChanged():
            return _("The arguments are not those that you were shown. Read them again, then decide.")
        case UnknownToolCall():
            return _("This request is closed: it was stopped, or somebody moved on without it.")
        case Forbidden() if refusal.fields.get("cause") == "self_approval":
            return _("You asked for this yourself, so somebody else has to decide it.")
        case Forbidden():
            return _("You may not decide this request.")
        case RateLimited():
            return _("Too many decisions in a short time. Wait a moment, then press again.")
        case AgentNotFound():
            return _("The tool is not installed any more; the request can only be denied.")
        case CallNotExposed():
            return _("An earlier request of this conversation has to be answered first.")
        case RunSupersededError():
            return _("The conversation went on without this request; nothing was decided. Load the page again.")
        case ValidationFailed() if refusal.fields.get("cause") in ("kind", "approval_id"):
            return _("This is not the request that you were shown; nothing was decided. Load the page again.")
        case ValidationFailed():
            return _("The decision cannot be read, or its reason is too long; nothing was decided.")
        case AgentResolutionFailed() | DatabaseUnavailable():
            return _("Decisions cannot be stored just now. Wait a moment, then press again.")
        case UnexpectedFailure():
            return _("Something went wrong; nothing was decided.")
    return refusal.message
