"""``manage.py helix_force_fail <session> <call> --reason "…"``: give a stuck call up (R-665, R-666, R-677)."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from helix.admin.explanation import roots_named
from helix.admin.interventions import as_sentence
from helix.admin.repairs import force_fail
from helix.clock import utc_now
from helix.errors import HelixError
from helix.models import PendingCall
from helix.principals import Principal

DOOR = "command"


class Command(BaseCommand):
    """Whoever may run commands is an operator; the audit row names the account of this machine."""

    help = "Closes a call as failed; the model reads the reason and the turn goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="id of the conversation, or its alias")
        parser.add_argument("call", help="tool call id")
        parser.add_argument("--reason", required=True, help="what the model reads as the call's failure")
        parser.add_argument(
            "--override", action="store_true", help="although a worker with a fresh lease executes its body"
        )

    def handle(self, *args: Any, session: str, call: str, reason: str, override: bool, **options: Any) -> None:
        roots = roots_named(session)
        found = list(PendingCall.objects.filter(root__in=roots, tool_call_id=call).select_related("root")[:2])
        if len(found) != 1:
            many = "Several conversations of that name have" if found else "No conversation of that name has"
            raise CommandError(f"{many} a call {call}; name the session by its id.")
        principal = Principal(id=f"command:{getpass.getuser()}", is_operator=True)
        try:
            done = force_fail(found[0], principal=principal, error=reason, now=utc_now(), door=DOOR, override=override)
        except HelixError as refusal:
            raise CommandError(as_sentence(refusal)) from refusal
        self.stdout.write(done)
