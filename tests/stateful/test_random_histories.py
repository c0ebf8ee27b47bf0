"""Random histories: Helix and a small model of the contract are told the same, and never disagree (D-14, D-15).

``HELIX_STATEFUL_STEPS`` asks for a longer run, with another seed each time; CI always repeats the same histories.
"""

from __future__ import annotations

import os
from math import ceil

import pytest
from django.db import DatabaseError
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.defects import DEFECTS, Defect
from tests.stateful.machine import Histories

pytestmark = pytest.mark.django_db

STEPS_OF_CI = 2_000
STEPS_OF_ONE = 30
# Hypothesis ends some histories early.
SHARE_OF_STEPS = 0.7


def histories(steps: int, *, is_fresh: bool = False) -> settings:
    """is_fresh: histories that no run before had, shrunk when one fails; else always the same, and not shrunk."""
    return settings(
        max_examples=ceil(steps / STEPS_OF_ONE / SHARE_OF_STEPS),
        stateful_step_count=STEPS_OF_ONE,
        derandomize=not is_fresh,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if is_fresh else [Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(0)
def test_helix_and_the_contract_agree_after_every_step() -> None:
    """D-14: at least 2,000 steps of random histories of messages, steps, answers, stops, deaths and time."""
    wanted = os.environ.get("HELIX_STATEFUL_STEPS")
    steps = int(wanted or STEPS_OF_CI)
    Histories.steps = 0
    run_state_machine_as_test(Histories, settings=histories(steps, is_fresh=bool(wanted)))
    assert Histories.steps >= steps


@pytest.mark.timeout(0)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-15, D-9: the same machine with one thing wrong. It ends where the two disagree, long before the bound."""
    defect(monkeypatch)
    with pytest.raises((AssertionError, LookupError, ValueError, DatabaseError)):
        run_state_machine_as_test(Histories, settings=histories(3 * STEPS_OF_CI))
