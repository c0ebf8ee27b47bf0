"""A view per route: who asks, what is asked, what came of it. Everything else is `helix.operations`.

The principal is named before the body is parsed or even measured (R-394, R-323 step 1), and each request reads the
clock once (F-5).
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request
from rest_framework.views import APIView

from helix import clock
from helix.api.documentation import described, document_settings
from helix.edge.refusals import as_response, json_response
from helix.edge.requests import json_of, query_of
from helix.operations import authenticate, perform
from helix.principals import Principal

DOOR = "http"


class Gated(APIView):
    """Asks the authenticate hook before anything else, and answers every failure as typed JSON.

    reads, writes: the operation behind GET and behind POST; None where the route has none.
    """

    reads: ClassVar[str | None] = None
    writes: ClassVar[str | None] = None
    # The hook decides who asks and `operations.rate` how often; nothing of DRF's runs before them.
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    principal: Principal

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reading = ["get", "head"] if cls.reads else []
        cls.http_method_names = [*reading, *(["post"] if cls.writes else [])]

    def operation(self) -> str:
        """What is asked for; a method that the route does not know is gated like one that it knows."""
        wanted = self.writes if self.request.method == "POST" else self.reads
        return wanted or self.reads or self.writes or ""

    def initial(self, request: Request, *args: Any, **names: Any) -> None:
        self.principal = authenticate(self.operation(), django_request(request), session_id=names.get("session_id"))
        super().initial(request, *args, **names)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """JSON whatever the client says it accepts: a refusal must reach it too."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]
        return as_response(exc, self.operation())


class OperationView(Gated):
    """One route: its query or body goes to the operation, with the ids that its path names."""

    def get(self, request: Request, **names: str) -> HttpResponse:
        return self._answer(query_of(django_request(request)), **names)

    def post(self, request: Request, **names: str) -> HttpResponse:
        return self._answer(json_of(django_request(request), self.operation()), **names)

    def _answer(
        self,
        body: dict[str, Any],
        session_id: str | None = None,
        tool_call_id: str | None = None,
        checkpoint_id: str | None = None,
    ) -> HttpResponse:
        if checkpoint_id is not None:
            body = {**body, "checkpointId": checkpoint_id}
        reply = perform(
            self.operation(),
            principal=self.principal,
            session_id=session_id,
            tool_call_id=tool_call_id,
            body=body,
            door=DOOR,
            now=clock.utc_now(),
        )
        return json_response(reply.body, reply.status)


def django_request(request: Request) -> HttpRequest:
    return request._request


@described
class SubmitToolResult(OperationView):
    writes = "submit-tool-result"


@described
class ChatSubmitToolResult(OperationView):
    """The canonical route: its path names the session (R-064)."""

    writes = "submit-tool-result"
    route_name = "chat-submit-tool-result"


@described
class Start(OperationView):
    writes = "start"


@described
class Resume(OperationView):
    writes = "resume"


@described
class Retry(OperationView):
    writes = "retry"


@described
class Interrupt(OperationView):
    writes = "interrupt"


@described
class Abort(OperationView):
    writes = "abort"


@described
class Status(OperationView):
    reads = "status"


@described
class Sessions(OperationView):
    reads = "sessions-list"
    writes = "sessions-create"


@described
class Session(OperationView):
    reads = "session"


@described
class Messages(OperationView):
    writes = "messages"


@described
class Events(OperationView):
    reads = "events"


@described
class Calls(OperationView):
    reads = "calls"


@described
class Claim(OperationView):
    writes = "claim"


@described
class Checkpoints(OperationView):
    reads = "checkpoints"


@described
class Checkpoint(OperationView):
    reads = "checkpoint"


class Document(Gated, SpectacularJSONAPIView):
    """The API's OpenAPI description, for the same people as the API."""

    reads = "schema"
    custom_settings = document_settings()
