"""Services with one thing wrong each (D-15): the random histories must notice every one of them.

A defect replaces one function of the real code for as long as the test lasts. Only what any few hundred steps stumble
over is here: whether a rare mistake is met depends on the histories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helix.models import Run
from helix.rows import calls
from helix.rows.tree import Tree
from helix.services import entries, submit

Defect = Callable[[pytest.MonkeyPatch], None]


def a_repeat_replaces_the_stored_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(submit, "_already_answered", lambda *given: None)


def the_continuation_is_queued_in_a_second_transaction_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    def answer_alone(tree: Tree, session: Any) -> None:
        calls.expose(tree)
        tree.changed(session)

    patch.setattr(submit, "after_an_answer", answer_alone)


def a_new_run_leaves_the_calls_behind(patch: pytest.MonkeyPatch) -> None:
    def takes_nothing_over(tree: Tree, old: Run, new: Run) -> int:
        return 0

    patch.setattr(entries.runs, "take_over_calls", takes_nothing_over)


DEFECTS: tuple[Defect, ...] = (
    a_repeat_replaces_the_stored_answer,
    the_continuation_is_queued_in_a_second_transaction_that_is_lost,
    a_new_run_leaves_the_calls_behind,
)
