"""The chat routes. Whatever is refused is a typed HTTP error before the stream begins (R-355); verbose mode adds
nothing here (R-318)."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from helix import clock, selectors
from helix.dialects.aisdk.entering import enter
from helix.dialects.aisdk.following import stream
from helix.dialects.aisdk.page import Page
from helix.dialects.aisdk.reading import resting_at, turn_of
from helix.dialects.aisdk.requests import parse_chat, session_named
from helix.dialects.aisdk.translation import Turn
from helix.edge.refusals import as_response, json_response, refused
from helix.edge.requests import json_of
from helix.edge.threads import act_in_thread, read_in_thread
from helix.errors import HelixError, NotFound, ValidationFailed
from helix.models import Run
from helix.operations import authenticate, perform
from helix.operations.bodies import checked_name

CHAT: Final = "chat"
CHAT_STREAM: Final = "chat-stream"
STOP: Final = "interrupt"
# Where a hook of the integrator finds the chat's id, which is in the body; None: the body names none.
SESSION_NAMED: Final = "helix.session"
# What a submit's verbose refusal carries and the chat's does not.
VERBOSE_FIELDS: Final = ("issues", "details")


# The authenticate hook asks for the CSRF token where a cookie speaks for the page.
@csrf_exempt
async def chat(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """``POST chat``: a message, or what the page answers; the stream that follows from it."""
    if request.method != "POST":
        return _wrong_method("POST")
    try:
        turn = await act_in_thread(_entered, request)
    except Exception as failure:
        return _refused(failure, CHAT)
    return _streamed(turn)


chat.writes = CHAT  # type: ignore[attr-defined]


async def chat_stream(request: HttpRequest, session_id: str) -> HttpResponse | StreamingHttpResponse:
    """``GET chat/{id}/stream``: the whole message that is being written, then the rest of it; 204 while none is."""
    if request.method != "GET":
        return _wrong_method("GET")
    try:
        turn = await read_in_thread(_joined, request, session_id)
    except Exception as failure:
        return _refused(failure, CHAT_STREAM)
    return HttpResponse(status=204) if turn is None else _streamed(turn)


@csrf_exempt
def chat_stop(request: HttpRequest, session_id: str) -> HttpResponse:
    """``POST chat/{id}/stop``: an interrupt. A page that only closes its stream stops nothing."""
    if request.method != "POST":
        return _wrong_method("POST")
    try:
        principal = authenticate(STOP, request, session_id=session_id)
        reply = perform(STOP, principal=principal, session_id=session_id, body={}, door=CHAT, now=clock.utc_now())
    except Exception as failure:
        return _refused(failure, STOP)
    return json_response(reply.body, reply.status)


def _entered(request: HttpRequest) -> Turn:
    """R-358: the session is resolved first, so that the hook's credential is held to it; the body is judged after."""
    body: dict[str, Any] = {}
    refusal: HelixError | None = None
    try:
        body = json_of(request, CHAT)
    except HelixError as malformed:
        refusal = malformed
    named = session_named(body)
    request.META[SESSION_NAMED] = named
    principal = authenticate(CHAT, request, session_id=named)
    if refusal is not None:
        raise refusal
    return enter(principal, parse_chat(body), clock.utc_now())


def _joined(request: HttpRequest, session_id: str) -> Turn | None:
    """None: nothing is streaming. A missing and a foreign conversation stream nothing either."""
    principal = authenticate(CHAT_STREAM, request, session_id=session_id)
    try:
        root = selectors.session_for(principal, checked_name("sessionId", session_id))
    except NotFound:
        return None
    if root.current_run_id is None or resting_at(root.id) is not None:
        return None
    return turn_of(root, Run.objects.get(pk=root.current_run_id), Page(), is_replay=True)


def _streamed(turn: Turn) -> StreamingHttpResponse:
    return StreamingHttpResponse(
        stream(turn),
        content_type="text/event-stream; charset=utf-8",
        headers={
            # A proxy that collects or compresses would hold words back.
            "Cache-Control": "no-cache, no-transform",
            "X-Accel-Buffering": "no",
            "X-Vercel-AI-UI-Message-Stream": "v1",
        },
    )


def _refused(failure: Exception, operation: str) -> HttpResponse:
    if isinstance(failure, HelixError):
        for name in VERBOSE_FIELDS:
            failure.fields.pop(name, None)
    return as_response(failure, operation)


def _wrong_method(allowed: str) -> HttpResponse:
    response = refused(ValidationFailed("This route does not know the method.", cause="method"), status=405)
    response["Allow"] = allowed
    return response
