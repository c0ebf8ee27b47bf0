"""What the OpenAPI description says of each operation; the contract's words, as JSON Schema.

The description follows the code by hand, since the bodies are parsed by the core and not by serializers. A test asks
every route for what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.views import APIView

from helix.operations.bodies import LONGEST_LIFE_MS
from helix.statuses import CallState, ContinuationKind, SessionStatus, StreamStatus

View = TypeVar("View", bound=type[APIView])
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
ID: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
LIFETIME: Schema = {"type": "integer", "minimum": 1, "maximum": LONGEST_LIFE_MS}
OBJECT: Schema = {"type": "object"}
ANY: Schema = {}
INSTANT: Schema = {"type": "string", "format": "date-time"}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def obj(*needed: str, **properties: Schema) -> Schema:
    """An object with some properties, of which ``needed`` are always there. Unknown ones may be added."""
    return {"type": "object", "properties": properties, **({"required": list(needed)} if needed else {})}


def nullable(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


def enum(values: Any) -> Schema:
    return {"type": "string", "enum": list(values)}


REFUSAL = obj("error", "code", "retryable", error=TEXT, code=TEXT, retryable=FLAG)
MESSAGE: Schema = {
    "description": "A text, or a list of text and file parts.",
    "oneOf": [
        {"type": "string", "minLength": 1},
        array(obj("type", type=enum(("text", "file")), text=TEXT, url=TEXT, mediaType=TEXT)),
    ],
}
ENTERED = obj("sessionId", "streamId", "runId", sessionId=ID, streamId=ID, runId=TEXT, startSequence=COUNT)
STOP = obj("sessionId", sessionId=ID, reason=TEXT, delegationId=ID)
STOPPED = obj(
    "runId",
    "stop",
    "outcome",
    runId=nullable(TEXT),
    stop=enum(("interrupt", "abort")),
    outcome=enum(("resolved", "recorded", "nothing_to_stop")),
)
SUBMIT = obj(
    "toolCallId",
    sessionId=ID,
    toolCallId=ID,
    runId=ID,
    kind=enum(("client-tool-result", "approval-response")),
    result=ANY,
    error=TEXT,
    approvalId=TEXT,
    approved=FLAG,
    reason=TEXT,
    editedArguments=OBJECT,
    argumentsDigest=TEXT,
)
SUBMITTED = obj(
    "status",
    status=enum(("accepted", "already_completed", "late_answer_after_timeout")),
    continuation=obj("kind", kind=enum(ContinuationKind.values), runId=TEXT, startSequence=COUNT, blockingRunId=TEXT),
)
PENDING_TOOL = obj(
    "toolCallId",
    "toolName",
    "kind",
    "argumentsJson",
    toolCallId=ID,
    toolName=TEXT,
    kind=enum(("client", "approval")),
    argumentsJson=TEXT,
    argumentsDigest=TEXT,
    approvalId=TEXT,
    runId=TEXT,
    agentType=TEXT,
    agentPath=array(TEXT),
    createdAt=INSTANT,
    exposedAt=INSTANT,
    deadlineAt=nullable(INSTANT),
    claimed=FLAG,
)
STATUS = obj(
    "status",
    "awaitingClientTool",
    "pendingCalls",
    sessionId=ID,
    status=enum(SessionStatus.values),
    runId=nullable(TEXT),
    runStatus=nullable(TEXT),
    awaitingClientTool=FLAG,
    pendingCalls=array(PENDING_TOOL),
    streamSequence=COUNT,
    errorDetail=OBJECT,
    output={},
)
SNAPSHOT = obj(
    "sessionId",
    "status",
    "messages",
    "pendingTools",
    "streamSequence",
    sessionId=ID,
    agentType=TEXT,
    status=enum(SessionStatus.values),
    streamStatus=enum(StreamStatus.values),
    canSend=FLAG,
    canCancel=FLAG,
    pendingTools=array(PENDING_TOOL),
    messages=array(OBJECT),
    state=OBJECT,
    runId=nullable(TEXT),
    streamSequence=COUNT,
    timestamp=INSTANT,
    errorDetail=OBJECT,
)
EVENT = obj("type", "sequence", type=TEXT, sequence=COUNT, sessionId=ID, runId=nullable(TEXT), timestamp=INSTANT)
CALL = obj("toolCallId", "toolName", "kind", "state", toolCallId=ID, toolName=TEXT, kind=TEXT, state=TEXT)
CHECKPOINT = obj(
    "checkpointId",
    checkpointId=ID,
    runId=TEXT,
    stepCount=COUNT,
    messagePosition=COUNT,
    openCalls=array(ID),
    createdAt=INSTANT,
)
ROW = obj("sessionId", "status", sessionId=ID, clientId=nullable(ID), agentType=TEXT, status=TEXT, createdAt=INSTANT)


def page(name: str, items: Schema) -> Schema:
    return obj(name, "nextCursor", **{name: array(items), "nextCursor": nullable(TEXT)})


@dataclass(frozen=True)
class Described:
    """takes: the body of a write.  query: name to schema, of a read.  refusals: beside 400, 401, 403, 500 and 503."""

    summary: str
    gives: Schema
    takes: Schema | None = None
    query: tuple[tuple[str, Schema], ...] = ()
    needs: tuple[str, ...] = ()
    refusals: tuple[int, ...] = ()
    status: int = 200


_ENTRY = (404, 409, 413, 415)
_PAGING = (("limit", COUNT), ("cursor", TEXT))

OPERATIONS: dict[str, Described] = {
    "submit-tool-result": Described(
        "Answer one call: a client tool's result or error, or a reviewer's verdict.",
        SUBMITTED,
        takes=SUBMIT,
        refusals=(*_ENTRY, 429),
    ),
    "start": Described(
        "Begin a conversation with its first message.",
        ENTERED,
        takes=obj(
            "agentType",
            "message",
            sessionId=ID,
            agentType=ID,
            message=MESSAGE,
            state=OBJECT,
            metadata=OBJECT,
            delegationId=ID,
            expiresAfterMs=LIFETIME,
        ),
        refusals=_ENTRY,
    ),
    "resume": Described(
        "Go on with a suspended or interrupted conversation.",
        ENTERED,
        takes=obj(
            "sessionId",
            sessionId=ID,
            mode=enum(("continue", "with_message", "from_checkpoint")),
            message=MESSAGE,
            checkpointId=ID,
            abandonPending=FLAG,
        ),
        refusals=_ENTRY,
    ),
    "retry": Described(
        "Run a failed turn again.",
        ENTERED,
        takes=obj("sessionId", sessionId=ID, message=MESSAGE),
        refusals=_ENTRY,
    ),
    "interrupt": Described("Stop softly; the conversation can go on.", STOPPED, takes=STOP, refusals=(404, 413, 415)),
    "abort": Described("Stop hard; the run fails.", STOPPED, takes=STOP, refusals=(404, 413, 415)),
    "status": Described(
        "Where a conversation stands.", STATUS, query=(("sessionId", ID),), needs=("sessionId",), refusals=(404,)
    ),
    "sessions-list": Described(
        "The caller's conversations, newest first.",
        page("sessions", ROW),
        query=(
            *_PAGING,
            ("agentType", ID),
            ("status", enum(SessionStatus.values)),
            ("tag", ID),
            ("owner", ID),
            ("createdAfter", INSTANT),
            ("createdBefore", INSTANT),
            ("metadata", TEXT),
            ("parent", TEXT),
        ),
    ),
    "sessions-create": Described(
        "Create a conversation without starting it.",
        obj("sessionId", sessionId=ID),
        takes=obj(
            "agentType",
            agentType=ID,
            clientId=ID,
            tags=array(ID),
            metadata=OBJECT,
            state=OBJECT,
            expiresAfterMs=LIFETIME,
        ),
        refusals=(404, 413, 415),
        status=201,
    ),
    "session": Described("One consistent snapshot of a conversation.", SNAPSHOT, refusals=(404,)),
    "messages": Described(
        "The next turn; with abandonPending one that gives open calls up.",
        obj("runId", "startSequence", runId=TEXT, startSequence=COUNT),
        takes=obj("message", message=MESSAGE, abandonPending=FLAG, clientMessageId=ID),
        refusals=_ENTRY,
    ),
    "events": Described(
        "Events after a cursor, without a gap.",
        obj("events", "nextAfter", "head", events=array(EVENT), nextAfter=COUNT, head=COUNT),
        query=(("after", COUNT), ("limit", COUNT)),
        refusals=(404, 410),
    ),
    "calls": Described(
        "Calls of the tree in recorded order, private ones redacted.",
        page("calls", CALL),
        query=(*_PAGING, ("state", enum(CallState.values)), ("toolCallId", ID)),
        refusals=(404,),
    ),
    "claim": Described(
        "Win the right to run a client tool's handler, once and for good.",
        obj("claimed", claimed=FLAG),
        takes=obj("claimant", claimant=ID),
        refusals=(404, 413, 415),
    ),
    "checkpoints": Described(
        "What the conversation was after each step, newest first.",
        page("checkpoints", CHECKPOINT),
        query=_PAGING,
        refusals=(404,),
    ),
    "checkpoint": Described(
        "One checkpoint: what a rewind to it would restore.",
        obj(
            "checkpointId",
            "calls",
            "state",
            **CHECKPOINT["properties"],
            calls=array(obj("toolCallId", "state", toolCallId=ID, state=enum(CallState.values))),
            state=OBJECT,
            streamSequence=COUNT,
        ),
        refusals=(404,),
    ),
}
_ALWAYS = (400, 401, 403, 500, 503)


def described(view: View) -> View:
    """Attach what stands here to a view. ``route_name`` tells two routes of one operation apart."""
    methods = {
        method: _extended(operation, getattr(view, "route_name", operation))
        for method, operation in (("get", getattr(view, "reads", None)), ("post", getattr(view, "writes", None)))
        if operation is not None
    }
    return extend_schema_view(**methods)(view)


def _extended(operation: str, name: str) -> Any:
    said = OPERATIONS[operation]
    return extend_schema(
        operation_id=name,
        summary=said.summary,
        request=None if said.takes is None else {"application/json": said.takes},
        parameters=[
            OpenApiParameter(name, schema, required=name in said.needs, location=OpenApiParameter.QUERY)
            for name, schema in said.query
        ],
        responses={
            said.status: said.gives,
            **dict.fromkeys(sorted((*said.refusals, *_ALWAYS)), REFUSAL),
        },
        tags=["helix"],
    )


def document_settings() -> dict[str, Any]:
    """How a caller shows who it is: a signed token, or the cookie of a login with its CSRF token."""
    return {
        "APPEND_COMPONENTS": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
            }
        },
        "SECURITY": [{"token": []}, {"login": []}],
    }
