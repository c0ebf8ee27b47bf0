"""The inbox: a page, its list alone for refreshing, and one POST that decides. GET never decides (R-182)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from approvals import selectors
from approvals.forms import DecisionForm
from approvals.services import SUBMIT, decide
from approvals.texts import said_of_outcome, said_of_refusal
from helix.clock import utc_now
from helix.edge.refusals import refusal_of
from helix.errors import Forbidden, Unauthorized
from helix.operations import authenticate
from helix.principals import Principal

View = Callable[[HttpRequest, Principal], HttpResponseBase]


def for_principal(operation: str) -> Callable[[View], Callable[[HttpRequest], HttpResponseBase]]:
    """Ask the same hook as the API who is there.

    A stranger is sent to the login; a token of one session gets no list and no foreign request.
    """

    def wrap(view: View) -> Callable[[HttpRequest], HttpResponseBase]:
        @wraps(view)
        def asked(request: HttpRequest) -> HttpResponseBase:
            try:
                principal = authenticate(operation, request)
                if principal.session_id is not None:
                    raise Forbidden("This credential belongs to one session.", cause="session_mismatch")
            except Unauthorized:
                return redirect_to_login(request.get_full_path())
            except Exception as failure:
                refusal = refusal_of(failure, operation)
                return HttpResponse(said_of_refusal(refusal), status=refusal.status, content_type="text/plain")
            return view(request, principal)

        return asked

    return wrap


@require_safe
@never_cache
@for_principal("ws-inbox")
def inbox(request: HttpRequest, principal: Principal) -> HttpResponse:
    """The page. It works without scripts; with them it refreshes itself."""
    return render(request, "approvals/inbox.html", _listed(request, principal))


@require_safe
@never_cache
@for_principal("ws-inbox")
def listing(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Only the lists, for a page that refreshes itself."""
    return render(request, "approvals/_lists.html", _listed(request, principal))


@require_POST
@for_principal(SUBMIT)
def decision(request: HttpRequest, principal: Principal) -> HttpResponseBase:
    """Decide one request. A script gets JSON, a plain form the inbox with a message on top."""
    form = DecisionForm(request.POST)
    status, text = _decided(form, principal)
    if request.accepts("text/html"):
        messages.add_message(request, messages.SUCCESS if status == 200 else messages.ERROR, text)
        return redirect("inbox")
    return JsonResponse({"text": text}, status=status)


def _decided(form: DecisionForm, principal: Principal) -> tuple[int, str]:
    if not form.is_valid():
        return 400, _("The form was not complete; nothing was decided. Load the page again.")
    verdict = form.decision()
    try:
        outcome = decide(principal=principal, decision=verdict, now=utc_now())
    except Exception as failure:
        refusal = refusal_of(failure, SUBMIT)
        return refusal.status, said_of_refusal(refusal)
    return 200, said_of_outcome(outcome, approved=verdict.approved)


def _listed(request: HttpRequest, principal: Principal) -> dict[str, Any]:
    return {
        "nav": "inbox",
        "page": selectors.inbox(principal, cursor=request.GET.get("after", "")),
        "conversations": selectors.waiting_conversations(principal),
    }
