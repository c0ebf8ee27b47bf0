"""What a post does before it is answered with a stream: a new turn, or the answers and verdicts that a page brings.

Every refusal is an HTTP error, raised here (R-355). The history that a page posts is not believed: new words, answers
of open client calls and verdicts on open approvals are taken from it, and nothing else.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from helix import selectors
from helix.answers import malformed
from helix.dialects.aisdk import reading
from helix.dialects.aisdk.answering import Answering
from helix.dialects.aisdk.page import Page
from helix.dialects.aisdk.requests import ChatRequest, user_message
from helix.dialects.aisdk.translation import Turn
from helix.errors import AlreadyCompleted, NotFound, ValidationFailed
from helix.models import Run, Session
from helix.principals import Principal
from helix.services.entries import resume, send_message
from helix.services.retry import retry_run
from helix.services.sessions import create_session
from helix.statuses import RunStatus

# A path carries the id: other characters would not come through every client and proxy alike.
CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")


def enter(principal: Principal, request: ChatRequest, now: datetime) -> Turn:
    """Do what the post asks for; the turn whose events answer it.

    Raises: every refusal of a message, a resume or a submit.
    """
    if request.role not in ("user", "assistant"):
        malformed("the last message is neither a user's nor an assistant's")
    entry = _new_turn if request.role == "user" else _answers
    return entry(principal, request, now)


# -- a new turn --------------------------------------------------------------------------------------------------------


def _new_turn(principal: Principal, request: ChatRequest, now: datetime) -> Turn:
    message = user_message(request)
    session = _session(principal, request, now)
    said_before = _said_before(session, request, message)
    if said_before is None:
        entered = send_message(
            principal=principal,
            session_id=str(session.id),
            message=message,
            # Whoever types over an open call has moved on.
            abandon_pending=True,
            client_message_id=request.message_id,
            now=now,
        )
        run = Run.objects.get(pk=entered.run_id)
    elif _has_failed(session, said_before):
        run = _retried(principal, session, now)
    else:
        run = said_before
    session.refresh_from_db()
    return reading.turn_of(session, run, Page())


def _session(principal: Principal, request: ChatRequest, now: datetime) -> Session:
    """The conversation under the page's id; a first message with an agent type makes it the owner's."""
    try:
        return selectors.session_for(principal, request.session_id)
    except NotFound:
        if request.agent_type is None:
            raise
    if not CHAT_ID.fullmatch(request.session_id):
        malformed("the id of a new chat is made of letters, digits, hyphens and underscores")
    try:
        return create_session(principal=principal, agent_type=request.agent_type, client_id=request.session_id, now=now)
    except ValidationFailed:
        # A twin of this request was first.
        return selectors.session_for(principal, request.session_id)


def _said_before(session: Session, request: ChatRequest, message: list[dict[str, Any]]) -> Run | None:
    """The run that this very message began. Raises: `ValidationFailed` when the page changed what it had said."""
    if request.message_id is None:
        return None
    run = Run.objects.filter(session_id=session.id, client_message_id=request.message_id).first()
    if run is not None and reading.message_of_run(run)[-len(message) :] != message:
        raise ValidationFailed("A message that was sent is not edited here. Send a new one.", cause="edit")
    return run


def _has_failed(session: Session, run: Run | None) -> bool:
    if run is None or run.id != session.current_run_id:
        return False
    # An aborted turn is not tried again.
    return run.status == RunStatus.FAILED and run.error_code != "framework_cancelled"


def _retried(principal: Principal, session: Session, now: datetime) -> Run:
    entered = retry_run(principal=principal, session_id=str(session.id), now=now)
    return Run.objects.get(pk=entered.run_id)


# -- answers -----------------------------------------------------------------------------------------------------------


def _answers(principal: Principal, request: ChatRequest, now: datetime) -> Turn:
    session = selectors.session_for(principal, request.session_id)
    page = Page(request.message_id, request.parts)
    answering = Answering(principal, request.session_id, page, reading.calls_of_page(session, page))
    run = reading.run_of_page(session, page, answering.calls)
    if run is None:
        raise AlreadyCompleted("There is nothing to resume.", runId=None)
    answering.submit(now)
    session.refresh_from_db()
    if reading.waits_for_its_caller(session):
        resume(principal=principal, session_id=str(session.id), now=now)
    elif not answering.notes() and _has_failed(session, _last_of_turn(session, run)):
        _retried(principal, session, now)
    session.refresh_from_db()
    return reading.turn_of(session, run, page, notes=answering.notes())


def _last_of_turn(session: Session, run: Run) -> Run | None:
    return Run.objects.filter(session_id=session.id, turn=run.turn).order_by("-number").first()
