"""Each guard has a removal that its test notices (D-9). All are tried by ``make mutants``; here the list is kept true,
and two are tried."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.mutants import MUTANTS, ROOT, Mutant, copy_of_the_repository, survives

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=BY_NAME)
def test_every_guard_of_the_list_is_there_and_has_its_test(mutant: Mutant) -> None:
    """D-9, Q-55: a guard that moved takes its line in the list along."""
    assert (ROOT / mutant.path).read_text().count(mutant.old) == 1
    path, _, name = mutant.test.partition("::")
    tests = {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}
    assert not name or name in tests


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_two_guards_are_broken_and_missed(tmp_path: Path) -> None:
    """D-9, Q-55: the finally of a mark, and the guard that keeps it from clearing another's."""
    copy = copy_of_the_repository(tmp_path)
    for name in ("the finally of a mark", "the guard of that finally"):
        assert survives(copy, BY_NAME[name]) is None


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_change_that_breaks_nothing_survives(tmp_path: Path) -> None:
    """D-9: the control. The script does not call everything caught."""
    guard = BY_NAME["the finally of a mark"]
    harmless = Mutant("harmless", guard.path, guard.old, f"{guard.old}  # as before", guard.test)
    assert "status 0 without the guard" in str(survives(copy_of_the_repository(tmp_path), harmless))
