"""Break each guard and see its test turn red: ``python scripts/mutants.py [name ...]`` or ``make mutants`` (D-9, Q-55).

A mutant is one small replacement in one file, made in a copy of the repository, and the test that has to fail because
of it. The same test first has to pass in the copy as it is; a mutant that survives fails the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "var", "node_modules", "__pycache__", ".*_cache", ".hypothesis")
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """``old`` stands exactly once in ``path``. needs_row_locks: the test runs on PostgreSQL only."""

    name: str
    path: str
    old: str
    new: str
    test: str
    needs_row_locks: bool = False


LEASES = "tests/liveness/test_leases.py::"
MUTANTS = (
    Mutant(
        "registration",
        "helix/services/advance/claim.py",
        "turn.mark(run.id, run.epoch, now)",
        "pass",
        LEASES + "test_a_process_never_judges_the_lease_of_a_run_that_it_holds",
    ),
    Mutant(
        "never about oneself",
        "helix/services/advance/claim.py",
        "if runs.is_held_here(run):",
        "if False:",
        LEASES + "test_a_process_never_judges_the_lease_of_a_run_that_it_holds",
    ),
    Mutant(
        "the finally of a mark",
        "helix/rows/holdings.py",
        "turn.end()",
        "pass",
        "tests/liveness/test_marks.py::test_a_turn_clears_its_own_mark_only",
    ),
    Mutant(
        "the guard of that finally",
        "helix/rows/holdings.py",
        "if self._held.get(mine.run_id) is mine:",
        "if mine.run_id in self._held:",
        "tests/liveness/test_marks.py::test_a_turn_clears_its_own_mark_only",
    ),
    Mutant(
        "epoch",
        "helix/rows/runs.py",
        "if run.status != RunStatus.RUNNING or run.epoch != epoch:",
        "if run.status != RunStatus.RUNNING:",
        LEASES + "test_a_loser_writes_nothing_while_the_winner_is_at_work",
    ),
    Mutant(
        "stop at each write",
        "helix/rows/runs.py",
        "if run.stop_is_open and not ignore_stop:",
        "if False:",
        "tests/liveness/test_attempts.py::test_a_stop_that_came_between_two_attempts_is_read",
    ),
    Mutant(
        "renewal by commits",
        "helix/rows/runs.py",
        "    _keep_lease(run, tree.now)\n",
        "",
        LEASES + "test_the_rounds_of_a_turn_renew_its_lease_when_the_pulse_starves",
    ),
    Mutant(
        "renewal of what is held",
        "helix/services/leases.py",
        ", run_id__in=[holding.run_id for holding in held]",
        "",
        LEASES + "test_a_turn_that_broke_off_is_not_renewed_by_its_process",
    ),
    Mutant(
        "owner below the barrier",
        "helix/services/barrier.py",
        "below = Q(parent_call__run__in=chains) | Q(parent_call__emitted_by__in=chains)",
        "below = Q(pk__in=[])",
        "tests/liveness/test_generations.py::test_a_held_grandchild_keeps_every_ancestor_open",
    ),
    Mutant(
        "barrier of a batch",
        "helix/rows/batch.py",
        "complete = lapse_the_rest(tree, session) and not has_open_subagents(session)",
        "complete = lapse_the_rest(tree, session)",
        "tests/liveness/test_no_clock.py::test_a_body_in_a_child_outlives_the_lapse_beside_it",
    ),
    Mutant(
        "stop reaches the token",
        "helix/rows/runs.py",
        '    HOLDINGS.cut_after_commit(run.id, "stop")\n',
        "",
        "tests/liveness/test_stops.py::test_calls_that_the_stop_found_waiting_never_start",
    ),
    Mutant(
        "contention and nothing else",
        "helix/rows/attempts.py",
        "if not is_contention(failure):",
        "if False:",
        "tests/liveness/test_attempts.py::test_what_is_no_contention_is_not_tried_again",
    ),
    Mutant(
        "a leaving process takes nothing",
        "helix/services/advance/driver.py",
        "    if HOLDINGS.is_leaving:\n        return False\n",
        "",
        "tests/liveness/test_handover.py::test_a_leaving_process_takes_nothing_new",
    ),
    Mutant(
        "watchers are taken back",
        "helix/loop/execution.py",
        "        over.wait()\n    finally:\n        forget()",
        "        over.wait()\n    finally:\n        pass",
        "tests/loop/test_execution.py::test_no_ending_leaves_anything_behind",
    ),
    Mutant(
        "outage fairness",
        "helix/services/deadlines.py",
        "if not sweeps.expiry_is_fair(now):",
        "if False:",
        "tests/services/test_outage.py",
    ),
    Mutant(
        "CHECK of deadlines",
        "helix/migrations/0001_initial.py",
        "('deadline_at__isnull', True), ('kind__in', ['client', 'approval'])",
        "('deadline_at__isnull', True), ('kind__in', ['client', 'approval', 'server', 'subagent'])",
        "tests/services/test_deadlines.py::test_the_database_refuses_a_deadline_on_our_own_work",
    ),
    Mutant(
        "unique continuation",
        "helix/migrations/0001_initial.py",
        "condition=models.Q(('cause', 'continuation')), fields=('continues',)",
        "condition=models.Q(('cause', 'nothing')), fields=('continues',)",
        "tests/services/test_continuation.py::test_the_database_refuses_a_second_continuation_of_a_run",
    ),
    Mutant(
        "lock",
        "helix/rows/tree.py",
        "Session.objects.select_for_update(no_key=True).get(pk=root_id)",
        "Session.objects.get(pk=root_id)",
        "tests/concurrency/test_submit_races.py",
        needs_row_locks=True,
    ),
)


def copy_of_the_repository(place: Path) -> Path:
    """A copy without history, environments and caches."""
    copy = place / "copy"
    shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
    return copy


def run_test(copy: Path, test: str) -> int:
    """pytest's own status: 0 passed, 1 failed; anything else is no verdict."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
        cwd=copy,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode


def survives(copy: Path, mutant: Mutant) -> str | None:
    """Why the mutant is not caught, or None."""
    if run_test(copy, mutant.test) != PASSED:
        return f"{mutant.test} does not pass as it is"
    file = copy / mutant.path
    source = file.read_text()
    if source.count(mutant.old) != 1:
        return f"{mutant.path} does not hold the guard exactly once"
    file.write_text(source.replace(mutant.old, mutant.new))
    try:
        status = run_test(copy, mutant.test)
    finally:
        file.write_text(source)
    return None if status == FAILED else f"{mutant.test} ends with status {status} without the guard"


def main(names: Sequence[str]) -> int:
    has_row_locks = os.environ.get("DATABASE_URL", "").startswith("postgres")
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        print(f"No such mutants: {', '.join(sorted(unknown))}.")
        return 2
    alive = 0
    with tempfile.TemporaryDirectory(prefix="helix-mutants-") as place:
        copy = copy_of_the_repository(Path(place))
        for mutant in MUTANTS:
            if names and mutant.name not in names:
                continue
            if mutant.needs_row_locks and not has_row_locks:
                print(f"left out  {mutant.name}: set DATABASE_URL to a PostgreSQL", flush=True)
                continue
            why = survives(copy, mutant)
            alive += why is not None
            print(f"{'SURVIVES' if why else 'caught  '}  {mutant.name}{': ' + why if why else ''}", flush=True)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
