"""``manage.py helix_explain <session, run or call>``: why a conversation stands where it stands (R-667)."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from helix.admin.explanation import Explanation, explain, roots_named
from helix.admin.waiting import instant
from helix.clock import utc_now


class Command(BaseCommand):
    """Prints ids, states and what each thing waits for; never an argument or a result, so it may be pasted."""

    help = "Explains a conversation: its sessions, runs, leases, calls and debts, and what each of them waits for."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", help="id of a session, run or call; a session's alias; or a tool call id")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        roots = roots_named(what)
        if not roots:
            raise CommandError(f"No session, run or call is named {what}.")
        now = utc_now()
        for root in roots:
            for line in lines_of(explain(root, now)):
                self.stdout.write(line)


def lines_of(explanation: Explanation) -> Iterator[str]:
    root = explanation.root
    yield f"conversation {root.id} of {root.owner}: {root.status}"
    if explanation.settled is not None:
        yield f"its present turn, sub-agents included: {explanation.settled}"
    swept = instant(explanation.sweep_finished_at) if explanation.sweep_finished_at else "never"
    overdue = "; it is overdue, so no deadline is judged" if explanation.sweep_is_due else ""
    yield f"deadline sweep last finished: {swept}{overdue}"
    for part in explanation.sessions:
        indent = "  " * part.depth
        yield f"{indent}session {part.session.id} {part.session.agent_type}: {part.session.status}"
        for run in part.runs:
            yield f"{indent}  run {run.run.number} {run.run.id} {run.run.status} waits for {run.waits_for}"
        for one in part.calls:
            call = one.call
            named = f"{call.tool_name} {call.tool_call_id} {call.kind} {call.state}"
            yield f"{indent}  call {named} waits for {one.waits_for}"
    for owed in explanation.debts:
        yield f"debt {owed.debt.id} waits for {owed.waits_for}"
