"""Statuses as data: the tables that every move must follow.

Final, active and claimable sets are derived from the tables (F-6). They are tuples in declared order, so that a
constraint built from one gives the same SQL in every process.
"""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices


class RunStatus(TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED_CLIENT_TOOL = "suspended_client_tool"
    SUSPENDED_AWAITING_CHILDREN = "suspended_awaiting_children"
    SUSPENDED_STEP_PARTIAL = "suspended_step_partial"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


# Contract 4.1. A suspended run that was taken over keeps its status and gets `superseded_by` (RT-09, RT-12, RT-13).
RUN_MOVES: Final[dict[RunStatus, tuple[RunStatus, ...]]] = {
    RunStatus.QUEUED: (RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.FAILED),
    RunStatus.RUNNING: (
        RunStatus.QUEUED,
        RunStatus.SUSPENDED_CLIENT_TOOL,
        RunStatus.SUSPENDED_AWAITING_CHILDREN,
        RunStatus.SUSPENDED_STEP_PARTIAL,
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.INTERRUPTED,
    ),
    RunStatus.SUSPENDED_CLIENT_TOOL: (RunStatus.INTERRUPTED, RunStatus.FAILED),
    RunStatus.SUSPENDED_AWAITING_CHILDREN: (RunStatus.INTERRUPTED, RunStatus.FAILED),
    RunStatus.SUSPENDED_STEP_PARTIAL: (RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.FAILED),
    RunStatus.COMPLETED: (),
    RunStatus.FAILED: (),
    RunStatus.INTERRUPTED: (),
}
RUN_FINAL: Final = tuple(status for status, after in RUN_MOVES.items() if not after)
RUN_CLAIMABLE: Final = tuple(
    status for status, after in RUN_MOVES.items() if RunStatus.RUNNING in after and status != RunStatus.RUNNING
)
# One run of a session at most is in one of these; the database holds it (3.2).
RUN_LIVE: Final = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUSPENDED_STEP_PARTIAL)
# Suspended on somebody: over only when superseded or final.
RUN_PAUSED: Final = (RunStatus.SUSPENDED_CLIENT_TOOL, RunStatus.SUSPENDED_AWAITING_CHILDREN)
RUN_UNFINISHED: Final = tuple(status for status in RUN_MOVES if status not in RUN_FINAL)


class RunCause(TextChoices):
    EXECUTE = "execute"
    RESUME_CONTINUE = "resume_continue"
    RESUME_WITH_MESSAGE = "resume_with_message"
    RESUME_FROM_CHECKPOINT = "resume_from_checkpoint"
    RETRY = "retry"
    CONTINUATION = "continuation"
    CHILD = "child"


class SessionStatus(TextChoices):
    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_CLIENT_TOOL = "awaiting_client_tool"
    STOPPING = "stopping"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    COMPLETED = "completed"


# Contract 4.2, first match wins; the rest of the statuses come from the last run.
SESSION_BUSY: Final = (
    SessionStatus.STOPPING,
    SessionStatus.AWAITING_CLIENT_TOOL,
    SessionStatus.RUNNING,
    SessionStatus.QUEUED,
)
SESSION_AT_REST: Final = tuple(status for status in SessionStatus if status not in SESSION_BUSY)

# client.md section 2 and I-36: (canSend, canCancel).
SESSION_BUTTONS: Final[dict[SessionStatus, tuple[bool, bool]]] = {
    SessionStatus.IDLE: (True, False),
    SessionStatus.QUEUED: (False, True),
    SessionStatus.RUNNING: (False, True),
    SessionStatus.AWAITING_CLIENT_TOOL: (False, True),
    SessionStatus.STOPPING: (False, False),
    SessionStatus.INTERRUPTED: (True, False),
    SessionStatus.FAILED: (True, False),
    SessionStatus.COMPLETED: (True, False),
}


class StreamStatus(TextChoices):
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"
    FAILED = "failed"


class CallKind(TextChoices):
    CLIENT = "client"
    APPROVAL = "approval"
    SERVER = "server"
    SUBAGENT = "subagent"


CALL_EXTERNAL: Final = (CallKind.CLIENT, CallKind.APPROVAL)
CALL_LOCAL: Final = tuple(kind for kind in CallKind if kind not in CALL_EXTERNAL)


class CallState(TextChoices):
    HELD = "held"
    AWAITING = "awaiting"
    EXECUTING = "executing"
    ANSWERED = "answered"
    CONSUMED = "consumed"
    DISCARDED = "discarded"


# Contract 4.3. A rewind (P-16) restores closed calls outside this table.
CALL_MOVES: Final[dict[CallState, tuple[CallState, ...]]] = {
    CallState.HELD: (
        CallState.AWAITING,
        CallState.EXECUTING,
        CallState.ANSWERED,
        CallState.CONSUMED,
        CallState.DISCARDED,
    ),
    CallState.AWAITING: (CallState.ANSWERED, CallState.DISCARDED),
    CallState.EXECUTING: (CallState.CONSUMED, CallState.DISCARDED),
    CallState.ANSWERED: (CallState.AWAITING, CallState.EXECUTING, CallState.CONSUMED, CallState.DISCARDED),
    CallState.CONSUMED: (),
    CallState.DISCARDED: (),
}
CALL_CLOSED: Final = tuple(state for state, after in CALL_MOVES.items() if not after)
CALL_OPEN: Final = tuple(state for state in CALL_MOVES if state not in CALL_CLOSED)
# What an external call is before anybody answered it.
CALL_UNANSWERED: Final = (CallState.HELD, CallState.AWAITING)


class AnswerKind(TextChoices):
    """What closed a call. `settled_as` of a tombstone uses the same words."""

    RESULT = "result"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"
    APPROVED = "approved"
    APPROVED_EDITED = "approved_edited"
    DENIED = "denied"


ANSWER_APPROVALS: Final = (AnswerKind.APPROVED, AnswerKind.APPROVED_EDITED)


class DiscardReason(TextChoices):
    RUN_STOPPED = "run_stopped"
    RUN_FAILED = "run_failed"
    REWOUND = "rewound"


class StopKind(TextChoices):
    INTERRUPT = "interrupt"
    ABORT = "abort"


class Role(TextChoices):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    NOTICE = "notice"


class RemoteState(TextChoices):
    """What is known of a sub-agent at a peer. `lost` cannot be continued, whatever the peer still does with it."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"


REMOTE_LIVE: Final = (RemoteState.STARTING, RemoteState.RUNNING)


class DebtKind(TextChoices):
    ANSWER = "answer"
    STOP = "stop"


class DebtState(TextChoices):
    OWED = "owed"
    SETTLED = "settled"
    GIVEN_UP = "given_up"


class UsageKind(TextChoices):
    TOKENS = "tokens"
    TOOL = "tool"
    SUBAGENT = "subagent"
    CUSTOM = "custom"


class ContinuationKind(TextChoices):
    AWAITING_BATCH = "awaiting_batch"
    CALLER_RESUMES = "caller_resumes"
    NEW_RUN = "new_run"
    DEFERRED = "deferred"
    CONSUMED = "consumed"


class EventType(TextChoices):
    """Every type of a root's stream (R-511 to R-517)."""

    TEXT_DELTA = "text_delta"
    THINKING = "thinking"
    TOOL_ARG_STREAM_START = "tool_arg_stream_start"
    TOOL_ARG_STREAM_DELTA = "tool_arg_stream_delta"
    TOOL_START = "tool_start"
    CALL_ANSWERED = "call_answered"
    TOOL_END = "tool_end"
    DEADLINE_CHANGED = "deadline_changed"
    CALL_REOPENED = "call_reopened"
    TOOL_APPROVAL_REQUEST = "tool_approval_request"
    SUBAGENT_START = "subagent_start"
    SUBAGENT_END = "subagent_end"
    STATE_PATCH = "state_patch"
    CUSTOM = "custom"
    ERROR = "error"
    FINAL_OUTPUT = "final_output"
    RUN_QUEUED = "run_queued"
    RUN_STARTED = "run_started"
    RUN_SUSPENDED = "run_suspended"
    RUN_RESUMED = "run_resumed"
    RUN_SUPERSEDED = "run_superseded"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_INTERRUPTED = "run_interrupted"
    STOP_REQUESTED = "stop_requested"
    CHECKPOINT_CREATED = "checkpoint_created"
    STEP_COMMITTED = "step_committed"
    STEP_DISCARDED = "step_discarded"
    STREAM_RESYNC = "stream_resync"
    SESSION_STATUS = "session_status"
