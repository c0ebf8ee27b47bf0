"""Every rule of a finished group has a test that cites it, and the table that says so is fresh."""

from __future__ import annotations

import pytest

from scripts import rules

# Groups that are built: letter, first and last number.
FINISHED = (
    ("R", 1, 325),
    ("R", 335, 369),
    ("R", 410, 497),
    ("R", 560, 570),
    ("R", 652, 654),
    ("R", 740, 745),
    ("X", 1, 20),
    ("B", 1, 18),
    ("B", 23, 27),
    ("B", 35, 36),
    ("B", 38, 40),
    ("Q", 1, 62),
    ("L", 1, 12),
    ("T", 1, 10),
)


def is_finished(rule: str) -> bool:
    letter, number, _ = rules.sort_key(rule)
    return any("RXBQLTDIC"[letter] == group and low <= number <= high for group, low, high in FINISHED)


@pytest.fixture(scope="module")
def cited() -> dict[str, list[str]]:
    return rules.citations()


def test_every_rule_of_a_finished_group_is_cited_by_a_test(cited: dict[str, list[str]]) -> None:
    assert [rule for rule in rules.defined() if is_finished(rule) and rule not in cited] == []


def test_no_test_cites_a_rule_that_does_not_exist(cited: dict[str, list[str]]) -> None:
    known = set(rules.defined())
    assert {rule: tests for rule, tests in cited.items() if rule not in known and not rule.startswith("D-")} == {}


def test_the_definitions_are_read_whole() -> None:
    """The control of the first test: a parser that finds nothing would let everything pass."""
    found = rules.defined()
    assert {"R-033", "R-036", "R-262a", "R-335", "R-385a", "X-20", "B-40", "I-63", "Q-62", "L-12", "T-10"} <= set(found)
    assert sum(is_finished(rule) for rule in found) > 200


def test_the_table_is_fresh() -> None:
    assert rules.TABLE.read_text() == rules.table()
