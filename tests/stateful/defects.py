"""Services with one thing wrong each (D-15): the random histories must notice every one of them.

A defect replaces one function of the real code for as long as the block lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helix.models import PendingCall, Run
from helix.rows import batch, calls, takeover
from helix.rows.tree import Tree
from helix.services import deadlines, entries, submit
from helix.services.advance import drain
from helix.statuses import CallState

Defect = Callable[[pytest.MonkeyPatch], None]


def a_repeat_replaces_the_stored_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(submit, "_already_answered", lambda *given: None)


def the_continuation_is_queued_in_a_second_transaction_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    def answer_alone(tree: Tree, session: Any) -> None:
        calls.expose(tree)
        tree.changed(session)

    patch.setattr(submit, "after_an_answer", answer_alone)


def every_answer_continues(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "lapse_the_rest", lambda tree, session: True)


def a_deadline_is_judged_by_whoever_reads(patch: pytest.MonkeyPatch) -> None:
    real = submit._already_over

    def too_late(tree: Tree, call: PendingCall, *given: Any) -> Any:
        if call.state == CallState.AWAITING and call.deadline_at is not None and call.deadline_at <= tree.now:
            return submit._unknown(call, "expired")
        return real(tree, call, *given)

    patch.setattr(submit, "_already_over", too_late)


def an_outage_is_not_made_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deadlines, "shift_deadlines", lambda **given: 0)


def a_lost_body_runs_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "may_run_again", lambda call: True)


def a_new_run_leaves_the_calls_behind(patch: pytest.MonkeyPatch) -> None:
    def takes_nothing_over(tree: Tree, old: Run, new: Run) -> int:
        return 0

    patch.setattr(entries.runs, "take_over_calls", takes_nothing_over)


def the_drain_leaves_a_message_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drain, "append_message", lambda *given: None)


DEFECTS: tuple[Defect, ...] = (
    a_repeat_replaces_the_stored_answer,
    the_continuation_is_queued_in_a_second_transaction_that_is_lost,
    every_answer_continues,
    a_deadline_is_judged_by_whoever_reads,
    an_outage_is_not_made_good,
    a_lost_body_runs_again,
    a_new_run_leaves_the_calls_behind,
    the_drain_leaves_a_message_behind,
)
