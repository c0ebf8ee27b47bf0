"""``GET sse?sessionId=&after=``: events as a server-sent stream that ends when the turn does (R-361, R-362, R-521).

Each event carries its sequence as id, so a browser's EventSource goes on after the last one it had. A paused turn is
not over: the stream stays open with comments to keep proxies from closing it, and holds no connection meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from helix import selectors, wire
from helix.answers import required_text
from helix.edge.attaching import Attachment, attach
from helix.edge.frames import MAY_END_A_TURN, Frame, encode
from helix.edge.hub import hub
from helix.edge.places import Place
from helix.edge.refusals import as_response, refusal_of, refused
from helix.edge.requests import query_of
from helix.edge.threads import read_in_thread
from helix.errors import ValidationFailed
from helix.operations import authenticate
from helix.statuses import StreamStatus

OPERATION: Final = "sse"
KEEP_ALIVE_SECONDS: Final = 15.0
KEEP_ALIVE_TEXT: Final = ": still here\n\n"
OVER: Final = (StreamStatus.ENDED, StreamStatus.FAILED)


async def events(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The stream, or a typed refusal before it begins."""
    if request.method != "GET":
        response = refused(ValidationFailed("This route does not know the method.", cause="method"), status=405)
        response["Allow"] = "GET"
        return response
    try:
        attachment = await read_in_thread(_attach, request)
    except Exception as failure:
        return as_response(failure, OPERATION)
    return StreamingHttpResponse(
        stream(attachment),
        content_type="text/event-stream; charset=utf-8",
        # A proxy that collects or compresses would hold events back.
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


def _attach(request: HttpRequest) -> Attachment:
    principal = authenticate(OPERATION, request, session_id=request.GET.get("sessionId"))
    query = query_of(request)
    last_seen = request.headers.get("Last-Event-ID")
    if last_seen:
        # A browser that reconnects repeats its first address and says here how far it came.
        query["after"] = last_seen
    return attach(principal, required_text(query, "sessionId"), query)


async def stream(attachment: Attachment) -> AsyncIterator[str]:
    """The texts of the response: events, comments in silence, and the end with the status that the rows have."""
    async with hub().attached(attachment.root_id, attachment.after) as place:
        reading: asyncio.Future[Sequence[Frame]] | None = None
        may_be_over = True
        try:
            while True:
                if place.live and may_be_over:
                    status = await read_in_thread(status_if_over, attachment)
                    may_be_over = status is not None
                    # Whatever the status reflects is told first.
                    if status is not None and status["streamSequence"] <= place.cursor:
                        yield _end_text(status, place)
                        return
                reading = asyncio.ensure_future(place.next_batch())
                while not (await asyncio.wait({reading}, timeout=KEEP_ALIVE_SECONDS))[0]:
                    yield KEEP_ALIVE_TEXT
                for frame in reading.result():
                    may_be_over = may_be_over or frame.type in MAY_END_A_TURN
                    yield frame.sse_text
        except Exception as failure:
            yield f"event: error\ndata: {encode(refusal_of(failure, OPERATION).as_body())}\n\n"
        finally:
            if reading is not None:
                reading.cancel()


def status_if_over(attachment: Attachment) -> Mapping[str, Any] | None:
    """What ``GET status`` says, when a turn has ended and nothing computes or waits any more (4.4)."""
    rows = selectors.snapshot_rows(attachment.principal, attachment.named, with_messages=False)
    if rows.run is None or rows.stream_status not in OVER:
        return None
    return {"type": "end", "streamStatus": rows.stream_status, **wire.status(rows)}


def _end_text(status: Mapping[str, Any], place: Place) -> str:
    return f"id: {place.cursor}\nevent: end\ndata: {encode(status)}\n\n"
