"""The inbox over HTTP: shown in full, decided once, and every refusal is said (R-182, R-383, R-168)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from approvals import selectors
from helix.models import CallAudit, PendingCall
from tests.approvals.conftest import AskForApproval, Person
from tests.kit.world import World

# A decision is a durable transaction, as it is behind every door (F-3).
pytestmark = pytest.mark.django_db(transaction=True)

JSON = {"HTTP_ACCEPT": "application/json"}


def window(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def filled(person: Person, **changes: Any) -> dict[str, Any]:
    """The form of the person's oldest request, as its page sends it."""
    item = selectors.inbox(person.principal).items[0]
    form = {
        "session_id": str(item.call.root_id),
        "tool_call_id": item.shown["toolCallId"],
        "approval_id": item.shown["approvalId"],
        "arguments_digest": item.shown["argumentsDigest"],
        "verdict": "approve",
        "reason": "",
    }
    return {**form, **changes}


@pytest.mark.parametrize("path", ["/inbox/", "/inbox/list/"])
def test_a_stranger_is_sent_to_the_login(path: str) -> None:
    """R-380, R-394."""
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={path}")


def test_the_page_shows_the_request_and_escapes_it(ask: AskForApproval, reviewer: Person) -> None:
    ask(cents=5, who="<script>alert(1)</script>")
    page = window(reviewer.assigned()).get("/inbox/").content.decode()
    assert "<script>alert(1)" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert 'name="arguments_digest"' in page


@pytest.mark.parametrize(("verdict", "kind"), [("approve", "approved"), ("deny", "denied")])
def test_a_verdict_is_stored_with_its_door_and_its_reviewer(
    ask: AskForApproval, reviewer: Person, verdict: str, kind: str
) -> None:
    """B-31, R-168."""
    call = ask()
    reviewer.assigned()
    answer = window(reviewer).post("/inbox/decide/", filled(reviewer, verdict=verdict, reason="because"), **JSON)
    assert answer.status_code == 200
    call.refresh_from_db()
    assert call.answer_kind == kind
    audited = CallAudit.objects.get(call=call)
    assert (audited.actor, audited.door) == (reviewer.principal.id, "inbox")


def test_a_plain_form_gets_the_page_back_with_a_message(ask: AskForApproval, reviewer: Person) -> None:
    ask()
    reviewer.assigned()
    answer = window(reviewer).post("/inbox/decide/", filled(reviewer), follow=True)
    assert answer.redirect_chain == [("/inbox/", 302)]
    assert "Approved. The conversation goes on." in answer.content.decode()


def test_the_second_verdict_changes_nothing_and_is_told_so(
    ask: AskForApproval, reviewer: Person, stranger: Person
) -> None:
    """X-17: two reviewers press at the same time; the first verdict stands."""
    call = ask()
    form = filled(reviewer.assigned())
    stranger.assigned()
    window(reviewer).post("/inbox/decide/", form, **JSON)
    answer = window(stranger).post("/inbox/decide/", {**form, "verdict": "deny"}, **JSON)
    assert (answer.status_code, answer.json()) == (200, {"text": "This was decided already; the first verdict stands."})
    call.refresh_from_db()
    assert call.answer_kind == "approved"


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"arguments_digest": "0" * 64}, 409, "not those that you were shown"),
        ({"arguments_digest": ""}, 400, "nothing was decided"),
        ({"verdict": "maybe"}, 400, "nothing was decided"),
        ({"approval_id": "other::call"}, 400, ""),
        ({"reason": "ü" * 4097}, 400, ""),
        ({"tool_call_id": "another"}, 404, "This request is closed"),
    ],
)
def test_a_refused_verdict_stores_nothing_and_says_why(
    ask: AskForApproval, reviewer: Person, changes: dict[str, Any], status: int, said: str
) -> None:
    """R-164, R-176, R-179; the unchanged form of the tests above is the control."""
    call = ask()
    reviewer.assigned()
    answer = window(reviewer).post("/inbox/decide/", filled(reviewer, **changes), **JSON)
    assert answer.status_code == status
    assert said in answer.json()["text"]
    call.refresh_from_db()
    assert call.answered_at is None


def test_whoever_asked_is_told_that_somebody_else_decides(ask: AskForApproval, owner: Person, reviewer: Person) -> None:
    """R-023."""
    ask("wire_money")
    answer = window(owner).post("/inbox/decide/", filled(reviewer.assigned()), **JSON)
    assert (answer.status_code, "somebody else has to decide it" in answer.json()["text"]) == (403, True)


def test_a_stopped_request_is_told_to_be_closed(
    world: World, ask: AskForApproval, owner: Person, reviewer: Person
) -> None:
    """R-413."""
    call = ask()
    form = filled(reviewer.assigned())
    world.stop(call.root_id, principal=owner.principal)
    answer = window(reviewer).post("/inbox/decide/", form, **JSON)
    assert (answer.status_code, "closed" in answer.json()["text"]) == (404, True)


@pytest.mark.parametrize("method", ["get", "head"])
def test_reading_never_decides(ask: AskForApproval, reviewer: Person, method: str) -> None:
    """R-182."""
    call = ask()
    answer = getattr(window(reviewer.assigned()), method)("/inbox/decide/", filled(reviewer))
    assert answer.status_code == 405
    assert PendingCall.objects.get(pk=call.pk).answered_at is None


def test_a_verdict_needs_the_forms_token(ask: AskForApproval, reviewer: Person) -> None:
    """R-385a; the control is any verdict above, whose client holds one."""
    call = ask()
    client = Client(enforce_csrf_checks=True)
    client.force_login(reviewer.assigned().user)
    assert client.post("/inbox/decide/", filled(reviewer), **JSON).status_code == 403
    token = client.get("/inbox/").context["csrf_token"]
    answer = client.post("/inbox/decide/", filled(reviewer, csrfmiddlewaretoken=str(token)), **JSON)
    assert answer.status_code == 200
    call.refresh_from_db()
    assert call.answered_at is not None
