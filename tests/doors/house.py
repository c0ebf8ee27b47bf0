"""The doors inside the house: the reviewers' page, the operators' form and command, and the two Python verbs."""

from __future__ import annotations

import re
from html import unescape
from io import StringIO
from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from approvals.services import Decision, decide
from approvals.texts import said_of_outcome, said_of_refusal
from helix.answers import parse_submission
from helix.edge.refusals import refusal_of
from helix.models import PendingCall
from helix.principals import Principal
from helix.selectors import as_uuid
from helix.services.submit import submit_answer
from tests.doors.attempts import Attempt, CannotSay, Outcome
from tests.doors.cast import HOUSE_RULE, PEOPLE
from tests.doors.wire import Door, Heard, bearer

# How `as_sentence` ends: the code, and what else the refusal names.
NAMED = re.compile(r"\((\w+)(?:; ([^)]*))?\)(?:</li>|$)")


def row_of(attempt: Attempt) -> PendingCall | None:
    """The call as somebody who looks at rows finds it, whoever's it is."""
    return PendingCall.objects.filter(root_id=as_uuid(attempt.session), tool_call_id=attempt.call).first()


def decision_of(attempt: Attempt) -> Decision:
    """What the inbox sends: the digest always, from the page if the attempt has none of its own (R-179)."""
    said = attempt.said_in("kind", "approvalId", "approved", "reason", "argumentsDigest")
    if said["kind"] != "approval-response" or not isinstance(said["approved"], bool):
        raise CannotSay("a button is pressed or it is not")
    row = row_of(attempt)
    return Decision(
        session_id=attempt.session,
        tool_call_id=attempt.call,
        approval_id=said["approvalId"],
        arguments_digest=said.get("argumentsDigest") or (row.arguments_digest if row else "0" * 64),
        approved=said["approved"],
        reason=said.get("reason", ""),
    )


class Inbox(Door):
    """People read sentences; a script that asks for JSON reads them beside the status."""

    name = "inbox page"
    audited_as = "inbox"
    flavours = ("verdict",)
    only = "the page decides approvals and answers no client call"

    def send(self, attempt: Attempt) -> Heard:
        said = decision_of(attempt)
        self._approves = said.approved
        form = {**vars(said), "verdict": "approve" if said.approved else "deny"}
        headers = {**bearer(attempt), "Accept": "application/json"}
        response = Client(raise_request_exception=False).post(reverse("inbox-decide"), form, headers=headers)
        if response.status_code == 302:
            return (302, response["Location"].partition("?")[0])
        is_json = response["Content-Type"] == "application/json"
        return (response.status_code, response.json()["text"] if is_json else response.content.decode())

    def says(self, outcome: Outcome) -> Heard:
        if outcome.status == 302:
            return (302, outcome.code)
        if not outcome.is_refusal:
            return (outcome.status, said_of_outcome(outcome.code, approved=self._approves))
        if outcome.code == HOUSE_RULE.code:
            return (outcome.status, HOUSE_RULE.text)
        return (outcome.status, said_of_refusal(outcome.as_refusal()))


class InPython(Door):
    """Something that raises what the edges render: `refusal_of` is how each of them does it."""

    def send(self, attempt: Attempt) -> Heard:
        verb = self._verb(attempt)
        try:
            word = verb()
        except Exception as failure:
            refusal = refusal_of(failure)
            fields = refusal.fields
            return (refusal.status, refusal.code, fields.get("cause"), fields.get("reason"))
        return (200, word, None, None)

    def _verb(self, attempt: Attempt) -> Any:
        raise NotImplementedError

    @staticmethod
    def _person(attempt: Attempt) -> Principal:
        if attempt.who not in PEOPLE:
            raise CannotSay("a caller brings a principal")
        return PEOPLE[attempt.who]


class Submitting(InPython):
    name = "services.submit"
    audited_as = "python"
    shared = ("result",)

    def _verb(self, attempt: Attempt) -> Any:
        person = self._person(attempt)
        if attempt.raw is not None or attempt.content_type != "application/json":
            raise CannotSay("nothing is parsed here")
        if attempt.who == "reader":
            raise CannotSay("what a token covers is asked where tokens are taken")

        def submit() -> str:
            said = parse_submission({"toolCallId": attempt.call, **attempt.body})
            return submit_answer(
                principal=person,
                session_id=attempt.session,
                tool_call_id=said.tool_call_id,
                answer=said.answer,
                run_id=said.run_id,
                now=self.world.now,
            ).status

        return submit


class Deciding(InPython):
    name = "approvals.services"
    audited_as = "inbox"
    flavours = ("verdict",)
    only = "it decides approvals and answers no client call"

    def _verb(self, attempt: Attempt) -> Any:
        person, decision = self._person(attempt), decision_of(attempt)
        return lambda: decide(principal=person, decision=decision, now=self.world.now)


class Operating(Door):
    """Whoever works here is an operator, finds the call among the rows, and gives it up with an error."""

    flavours = ("error",)
    only = "an operator gives a call up; nobody answers or decides in another one's place here"

    def says(self, outcome: Outcome) -> Heard:
        return (outcome.code, outcome.cause, outcome.reason)

    @staticmethod
    def _found(attempt: Attempt) -> PendingCall:
        row = row_of(attempt)
        if attempt.who != "owner":
            raise CannotSay("only operators work here; others see no form and have no shell")
        if row is None:
            raise CannotSay("the call is chosen from those that are stored")
        return row

    @staticmethod
    def _refused(text: str) -> Heard:
        found = NAMED.search(text)
        if found is None:
            # The form's or the parser's own words about what was filled in.
            assert 'class="errorlist"' in text or "arguments are required" in text, text
            return ("validation_error", None, None)
        named = dict(pair.split(": ", 1) for pair in (found[2] or "").split(", ") if pair)
        return (found[1], named.get("cause"), named.get("reason"))


class AdminForm(Operating):
    name = "admin form"
    audited_as = "admin"

    def send(self, attempt: Attempt) -> Heard:
        row, said = self._found(attempt), attempt.said_in("error")
        user, is_new = User.objects.get_or_create(username="operator", is_staff=True)
        if is_new:
            user.user_permissions.set(Permission.objects.filter(codename="operate", content_type__app_label="helix"))
        client = Client(raise_request_exception=False)
        client.force_login(user)
        page = reverse("admin:helix_pendingcall_force-fail", args=[row.pk])
        answer = client.post(page, said, follow=True)
        text = unescape(answer.content.decode())
        done = re.search(r"Force-fail: (\w+): \w+ follows", text)
        return (done[1], None, None) if done else self._refused(text)


class ForceFailCommand(Operating):
    name = "helix_force_fail"
    audited_as = "command"

    def send(self, attempt: Attempt) -> Heard:
        row, said = self._found(attempt), attempt.said_in("error")
        reason = ["--reason", said["error"]] if "error" in said else []
        out = StringIO()
        try:
            call_command("helix_force_fail", str(row.root_id), row.tool_call_id, *reason, stdout=out)
        except CommandError as refusal:
            return self._refused(str(refusal))
        except Exception as failure:
            # A terminal shows the traceback.
            return self.says(Outcome(500, refusal_of(failure).code))
        return (out.getvalue().partition(":")[0], None, None)
