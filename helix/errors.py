"""Every refusal of Helix: one class, one code, one row in README's table (F-9, contract section 7).

A client branches on ``code``; the text may change. Exceptions that are not refusals (a lost lease, a broken
model) live beside the code that raises them.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HelixError(Exception):
    """An expected refusal. ``fields`` travel beside ``error``, ``code`` and ``retryable`` and are camelCase."""

    code: ClassVar[str] = "transport_error"
    status: ClassVar[int] = 500
    retryable: bool = False

    def __init__(self, message: str, *, retryable: bool | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        if retryable is not None:
            self.retryable = retryable

    def as_body(self) -> dict[str, Any]:
        """The JSON body of R-354: ``{error, code, retryable}`` plus the refusal's own fields."""
        return {"error": self.message, "code": self.code, "retryable": self.retryable, **self.fields}


class ValidationFailed(HelixError):
    """A body, kind, approval id, edited argument or content type is not acceptable. Nothing was stored."""

    code = "validation_error"
    status = 400


class UnsupportedContentType(ValidationFailed):
    """A body came in another content type than JSON (R-369)."""

    status = 415


class InvalidResult(HelixError):
    """A result violates the tool's output schema; a corrected submit is accepted (R-317)."""

    code = "INVALID_RESULT"
    status = 400


class PayloadTooLarge(HelixError):
    """A result or a body is over its limit. Nothing was read or written (R-292, R-293)."""

    code = "validation_payload_too_large"
    status = 413


class StateTooLarge(HelixError):
    """Custom state is over the store's limit (R-297)."""

    code = "state_size_exceeded"
    status = 413


class Unauthorized(HelixError):
    """Nobody, or a bad or expired credential (R-347)."""

    code = "transport_unauthorized"
    status = 401


class Forbidden(HelixError):
    """In reach, but not entitled; ``cause`` is session_mismatch, self_approval or not_permitted."""

    code = "transport_forbidden"
    status = 403


class RateLimited(HelixError):
    """Too many submits of one principal for one session (R-387)."""

    code = "rate_limited"
    status = 429
    retryable = True


class NotFound(HelixError):
    """A session, checkpoint or agent type that is missing or foreign: the two look alike (F-8)."""

    code = "NOT_FOUND"
    status = 404


class AlreadyCompleted(HelixError):
    """A start or a resume with nothing to do; ``runId`` names the last run (R-360)."""

    code = "ALREADY_COMPLETED"
    status = 409


class AlreadyRunning(HelixError):
    """An entry met a live turn. Nothing was written (R-450)."""

    code = "state_already_running"
    status = 409
    retryable = True


class NotResumable(HelixError):
    """A partial batch, a stopped call, or an answer that was not stored; ``toolCallIds`` says which."""

    code = "state_not_resumable"
    status = 409


class RunSupersededError(HelixError):
    """Another entry replaced the call's run while the answer was on its way. Nothing was stored (R-068)."""

    code = "state_run_superseded"
    status = 409


class StaleStateError(HelixError):
    """A write met a newer version (R-563)."""

    code = "state_concurrency_conflict"
    status = 409
    retryable = True


class ArgumentsChanged(HelixError):
    """The digest that was shown is not the call's digest. Nothing was stored (R-179)."""

    code = "state_arguments_changed"
    status = 409


class CallNotExposed(HelixError):
    """The call is open but a predecessor has to be answered first (R-051)."""

    code = "state_call_not_exposed"
    status = 409
    retryable = True


class CursorTooOld(HelixError):
    """Events at the cursor were swept; read the snapshot (R-368)."""

    code = "state_cursor_too_old"
    status = 410


class UnknownToolCall(HelixError):
    """No open call of that id is within reach. Callers with rights get a ``reason`` (R-075)."""

    code = "unknown_tool_call"
    status = 404
    why = "ownership_map_absent"

    def because(self, why: str) -> UnknownToolCall:
        """Say for the log, never for the caller, what was not found (R-602)."""
        self.why = why
        return self

    def as_body(self) -> dict[str, Any]:
        """R-338: the body names the outcome as ``status`` too, beside the fields of every typed error."""
        return {"status": self.code, **super().as_body()}


class AgentNotFound(HelixError):
    """The session's agent type is not registered. Nothing was written (R-074)."""

    code = "framework_agent_not_found"
    status = 404


class AgentResolutionFailed(HelixError):
    """The agent lookup function failed; the same request may succeed later (R-074)."""

    code = "framework_agent_resolution_failed"
    status = 503
    retryable = True


class UsageStoreUnavailable(HelixError):
    """Usage rows cannot be written or read now (R-637)."""

    code = "framework_usage_store_unavailable"
    status = 503
    retryable = True


class NotSupported(HelixError):
    """A peer or backend lacks the operation."""

    code = "framework_not_supported"
    status = 501


class UnexpectedFailure(HelixError):
    """Something failed that nobody expected. The text is fixed (R-349, R-354); nothing was stored."""


class DatabaseUnavailable(HelixError):
    """The database cannot be reached now; nothing was stored (R-350)."""

    status = 503
    retryable = True


def refusal_classes() -> tuple[type[HelixError], ...]:
    """Every refusal class of this module, in declared order: the source of README's table and of the guards.

    A hook's own refusal (R-348) is made elsewhere and has no code of ours.
    """

    def below(base: type[HelixError]) -> list[type[HelixError]]:
        return [found for child in base.__subclasses__() for found in (child, *below(child))]

    return tuple(refusal for refusal in below(HelixError) if refusal.__module__ == __name__)


# Codes that end a run (section 7): not HTTP refusals but the `error_code` of a failed run.
RUN_ERROR_CODES = (
    "framework_cancelled",
    "framework_auto_resume_exhausted",
    "framework_max_steps_exceeded",
    "framework_due_work_unscheduled",
    "framework_internal",
    "provider_error",
    "provider_rate_limited",
    "provider_stream_stalled",
)
# Codes that stand in a tool result (section 7).
RESULT_ERROR_CODES = (
    "client_tool_timeout",
    "client_tool_abandoned",
    "validation_failed",
    "approval_denied",
    "not_executed",
    "run_stopped",
    "aborted",
    "run_failed",
    "interrupted",
    "tool_execution_failed",
    "framework_subagent_lost",
    "framework_remote_client_tool_unsupported",
    "runtime_restarted",
    "disposed",
)
# what a client tool's result may carry.
CLIENT_TOOL_ERROR_CODES = (
    "client_tool_timeout",
    "aborted",
    "runtime_restarted",
    "disposed",
    "validation_failed",
    "client_tool_abandoned",
    "run_stopped",
)
_CATEGORY_EXCEPTIONS = {
    "INVALID_RESULT": "validation",
    "rate_limited": "transport",
    "NOT_FOUND": "state",
    "ALREADY_COMPLETED": "state",
}


def known_codes() -> tuple[str, ...]:
    """Every code that Helix itself produces, once each and in a stable order (R-743)."""
    return tuple(
        dict.fromkeys((*(refusal.code for refusal in refusal_classes()), *RUN_ERROR_CODES, *RESULT_ERROR_CODES))
    )


def category_of(code: str) -> str:
    """The category of a code, known or not: its prefix, but for the exceptions of section 7 (R-741, R-742)."""
    return _CATEGORY_EXCEPTIONS.get(code) or code.partition("_")[0]


def is_known_code(code: str) -> bool:
    """Whether this server may produce ``code`` (R-743)."""
    return code in known_codes()


def is_client_tool_code(code: str) -> bool:
    """Whether ``code`` is one of R-740."""
    return code in CLIENT_TOOL_ERROR_CODES
