"""Four drivers with a defect that somebody once shipped, and the key test that each of them fails (D-15, Q-55).

A key test is called here as it stands; beside each defect stands the control that the same test passes without it,
which for the tests of other modules is their own run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from helix import tasks
from helix.models import PendingCall, Run, Session
from helix.principals import SYSTEM
from helix.rows import takeover
from helix.rows.batch import continue_if_complete
from helix.rows.tree import Tree, locked
from helix.services import barrier, force, submit
from tests.fixtures import AgentMaker
from tests.kit.crash import WorkerDied
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, session_of
from tests.liveness.test_generations import test_a_held_grandchild_keeps_every_ancestor_open as held_grandchild
from tests.liveness.test_no_clock import test_ten_years_end_nothing_of_ours as ten_years
from tests.recovery.test_crashes import test_a_worker_may_die_at_any_point_of_a_turn as any_death

pytestmark = pytest.mark.django_db(transaction=True)

Defect = Callable[[pytest.MonkeyPatch], None]


def tools_have_two_minutes(patch: pytest.MonkeyPatch) -> None:
    """A bound on local work, "large enough"."""
    sweep = tasks.sweep_runs

    def sweep_and_cut(now: datetime) -> int:
        long_ago = now - timedelta(seconds=120)
        for slow in PendingCall.objects.filter(state="executing", kind="server", body_started_at__lt=long_ago):
            force.fail_body(
                principal=SYSTEM,
                session_id=str(slow.root_id),
                tool_call_id=slow.tool_call_id,
                error="timeout",
                now=now,
                door="sweep",
                override=True,
            )
        return sweep(now)

    sweep_and_cut.__name__ = "sweep_runs"
    patch.setattr(tasks, "sweep_runs", sweep_and_cut)


def barriers_ignore_children(patch: pytest.MonkeyPatch) -> None:
    """A barrier that looks at its own run only, and so returns early (Q-33)."""
    judgements = barrier._judgements

    def own_only(level: list[Run]) -> Iterator[barrier.Settled]:
        yield next(judgements(level))

    patch.setattr(barrier, "_judgements", own_only)


def bodies_run_again_whenever_a_run_is_reopened(patch: pytest.MonkeyPatch) -> None:
    """Whoever reopens a run runs its begun bodies again, safe or not."""
    patch.setattr(takeover, "may_run_again", lambda _: True)


def answers_and_continuations_are_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """The answer is stored; the continuation is queued afterwards, if the process still lives."""

    def later(tree: Tree, session: Session) -> None:
        tree.changed(session)

        def queue() -> None:
            with locked(tree.root.id, tree.now) as another:
                continue_if_complete(another, another.session(session.id))

        transaction.on_commit(queue)

    patch.setattr(submit, "after_an_answer", later)


def an_answer_strands_nobody(world: World, agent: AgentMaker) -> None:
    """X-15, Q-25: the process dies as soon as the answer is committed; sweeps alone bring the turn to its end."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))

    with death_at_the_first_commit(), pytest.raises(WorkerDied):
        world.submit(session_id, "c1", result="here")
    assert PendingCall.objects.get().state == "answered"
    world.hints.clear()
    world.tick(seconds=60)
    world.sweep()
    world.drain()
    assert model.asked == 2 and session_of(session_id).status == "idle"


@contextmanager
def death_at_the_first_commit() -> Iterator[None]:
    """Before any hook of the commit has run: the first thing that the process does afterwards is to die."""
    run_hooks = transaction.get_connection().run_and_clear_commit_hooks

    def die() -> None:
        raise WorkerDied("after the commit")

    connection = transaction.get_connection()
    connection.run_and_clear_commit_hooks = die  # type: ignore[method-assign]
    try:
        yield
    finally:
        connection.run_on_commit.clear()
        connection.run_and_clear_commit_hooks = run_hooks  # type: ignore[method-assign]


def caught(defect: Defect, key_test: Callable[..., Any], *arguments: Any) -> None:
    """The key test fails under the defect, in its own words: an assertion, or a row that is not as it should be."""
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises((AssertionError, ObjectDoesNotExist)):
            key_test(*arguments)


def test_a_bound_on_tools_is_caught(world: World, agent: AgentMaker) -> None:
    """D-15, Q-01, Q-02."""
    caught(tools_have_two_minutes, ten_years, world, agent, "server tool")


def test_a_barrier_without_children_is_caught(world: World, agent: AgentMaker) -> None:
    """D-15, Q-29, Q-33."""
    caught(barriers_ignore_children, held_grandchild, world, agent)


def test_bodies_that_run_again_are_caught(world: World, agent: AgentMaker) -> None:
    """D-15, R-016, L-8."""
    caught(bodies_run_again_whenever_a_run_is_reopened, any_death, world, agent, "never")


def test_a_continuation_in_a_second_transaction_is_caught(world: World, agent: AgentMaker) -> None:
    """D-15, Q-25, X-15."""
    caught(answers_and_continuations_are_two_transactions, an_answer_strands_nobody, world, agent)


def test_one_transaction_strands_nobody(world: World, agent: AgentMaker) -> None:
    """D-15, D-5: the control of the last one."""
    an_answer_strands_nobody(world, agent)
