"""What an operator may do about a row: a page that says what will happen, a form, and one service call.

GET only shows (R-182). A refusal of the service stands on the form, with its code, and so does a failure that nobody
expected; what was done stands in the admin's log beside the audit row of the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from helix.admin.forms import ConfirmForm, DeadlineForm, ForceFailForm, StopForm
from helix.admin.inspection import Inspection
from helix.admin.operators import DOOR, may_operate, principal_of
from helix.admin.repairs import body_executes, can_be_failed, force_fail
from helix.clock import utc_now
from helix.edge.refusals import refusal_of
from helix.errors import HelixError
from helix.models import Checkpoint, PendingCall, Session
from helix.principals import Principal
from helix.services.deadlines import move_deadline
from helix.services.rewind import rewind
from helix.services.stops import stop_session
from helix.statuses import SESSION_BUSY, CallState, SessionStatus, StopKind


class Intervention(ABC):
    """One thing that may be done about rows of one model."""

    slug: ClassVar[str]
    label: ClassVar[str]
    consequence: ClassVar[str]

    @abstractmethod
    def is_offered(self, row: Any) -> bool:
        """Whether doing it now would change anything; a hint, judged again under the lock."""

    @abstractmethod
    def form(self, row: Any, now: datetime, posted: Any = None) -> forms.Form: ...

    @abstractmethod
    def perform(self, row: Any, principal: Principal, said: dict[str, Any], now: datetime) -> str:
        """A sentence about what was done. Raises: the refusals of its service."""


class ForceFail(Intervention):
    slug = "force-fail"
    label = "Force-fail"
    consequence = (
        "The call is closed as failed with your reason, for good: an answer that comes later is not used."
        " The model reads the reason, and the turn goes on as soon as its other calls are closed."
    )

    def is_offered(self, row: PendingCall) -> bool:
        return can_be_failed(row)

    def form(self, row: PendingCall, now: datetime, posted: Any = None) -> forms.Form:
        return ForceFailForm(posted, body_executes=body_executes(row))

    def perform(self, row: PendingCall, principal: Principal, said: dict[str, Any], now: datetime) -> str:
        return force_fail(
            row, principal=principal, error=said["error"], now=now, door=DOOR, override=said.get("override", False)
        )


class MoveDeadline(Intervention):
    slug = "deadline"
    label = "Move deadline"
    consequence = "Whoever shows the call is told the new deadline at once. Without one it waits until it is answered."

    def is_offered(self, row: PendingCall) -> bool:
        # The deadline of a remote child's call is judged at its peer.
        return row.is_external and row.state == CallState.AWAITING and not row.session.is_remote

    def form(self, row: PendingCall, now: datetime, posted: Any = None) -> forms.Form:
        return DeadlineForm(posted, now=now, initial={"deadline_at": row.deadline_at})

    def perform(self, row: PendingCall, principal: Principal, said: dict[str, Any], now: datetime) -> str:
        move_deadline(
            principal=principal,
            session_id=str(row.root_id),
            tool_call_id=row.tool_call_id,
            deadline_at=said["deadline_at"],
            now=now,
            door=DOOR,
        )
        moment = said["deadline_at"]
        return f"the deadline is {moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "the deadline is removed"


class Stop(Intervention):
    kind: ClassVar[StopKind]

    def is_offered(self, row: Session) -> bool:
        return row.is_root and row.status in SESSION_BUSY

    def form(self, row: Session, now: datetime, posted: Any = None) -> forms.Form:
        return StopForm(posted)

    def perform(self, row: Session, principal: Principal, said: dict[str, Any], now: datetime) -> str:
        stopped = stop_session(
            principal=principal,
            session_id=str(row.pk),
            kind=self.kind,
            now=now,
            reason=said["reason"],
            # An operator stops a delegated session too, in the name of its delegation.
            delegation_id=row.delegation_id,
        )
        return f"{stopped.stop}: {stopped.outcome}"


class Interrupt(Stop):
    slug = "interrupt"
    label = "Interrupt"
    kind = StopKind.INTERRUPT
    consequence = (
        "The turn ends, with its sub-agents. Open calls are closed; what was written stays. It can be resumed."
    )


class Abort(Stop):
    slug = "abort"
    label = "Abort"
    kind = StopKind.ABORT
    consequence = (
        "The run fails as cancelled, with its sub-agents, and its output is cleared."
        " On a session that is stopping already this ends the stop at once, whatever its worker does."
    )


class Rewind(Intervention):
    slug = "rewind"
    label = "Rewind to here"
    consequence = (
        "What the conversation said and did after this point is hidden, calls that were made later are closed, and a"
        " new run goes on from here. Calls that were open are asked again. What tools did outside is not undone."
    )

    def is_offered(self, row: Checkpoint) -> bool:
        return row.session.is_root and row.session.status not in (SessionStatus.RUNNING, SessionStatus.STOPPING)

    def form(self, row: Checkpoint, now: datetime, posted: Any = None) -> forms.Form:
        return ConfirmForm(posted)

    def perform(self, row: Checkpoint, principal: Principal, said: dict[str, Any], now: datetime) -> str:
        entered = rewind(principal=principal, session_id=str(row.session_id), checkpoint_id=row.checkpoint_id, now=now)
        return f"run {entered.run_id} goes on from {row.checkpoint_id}"


class Intervening(Inspection):
    """A page with interventions beside its row. ``key``: the kind of its model's primary key, as in a route."""

    interventions: tuple[Intervention, ...] = ()
    key: ClassVar[str] = "uuid"
    change_form_template = "helix/admin/inspect.html"

    def get_urls(self) -> list[URLPattern]:
        pages = [
            path(
                f"<{self.key}:object_id>/{one.slug}/",
                self.admin_site.admin_view(self._page_of(one)),
                name=self._url_name(one),
            )
            for one in self.interventions
        ]
        return [*pages, *super().get_urls()]

    def _url_name(self, one: Intervention) -> str:
        return f"helix_{self.opts.model_name}_{one.slug}"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id) if may_operate(request) else None
        offered = [one for one in self.interventions if row is not None and one.is_offered(row)]
        buttons = [(one.label, reverse(f"admin:{self._url_name(one)}", args=[object_id])) for one in offered]
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "buttons": buttons})

    def _page_of(self, one: Intervention) -> Any:
        def page(request: HttpRequest, object_id: Any) -> HttpResponse:
            return self._intervene(request, str(object_id), one)

        return page

    def _intervene(self, request: HttpRequest, object_id: str, one: Intervention) -> HttpResponse:
        if not may_operate(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        now = utc_now()
        back = reverse(f"admin:helix_{self.opts.model_name}_change", args=[object_id])
        form = one.form(row, now, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                done = one.perform(row, principal_of(request), form.cleaned_data, now)
            except Exception as failure:
                form.add_error(None, as_sentence(refusal_of(failure, one.slug)))
            else:
                self.log_change(request, row, f"{one.label}: {done}")
                self.message_user(request, f"{one.label}: {done}.", messages.SUCCESS)
                return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{one.label}: {row}",
            "opts": self.opts,
            "original": row,
            "back": back,
            "intervention": one,
            "form": form,
        }
        return TemplateResponse(request, "helix/admin/intervene.html", context)


def as_sentence(refusal: HelixError) -> str:
    """A refusal for a person: its text, its code, and what else it names."""
    named = ", ".join(f"{name}: {value}" for name, value in refusal.fields.items() if value is not None)
    return f"{refusal.message} ({refusal.code}{f'; {named}' if named else ''})"
