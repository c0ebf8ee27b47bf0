"""The kit that names interleavings is itself shown to notice a missing lock (D-1, D-9, D-11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import pytest
from django.db import transaction

from helix.models import Session
from helix.rows import tree
from helix.services import submit
from helix.waypoints import Waypoint, listening, reach
from tests.fixtures import AgentMaker
from tests.kit.interleave import actors, meet
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World


@contextmanager
def without_the_lock(root_id: UUID, now: datetime) -> Iterator[tree.Tree]:
    """`tree.locked` with its one lock taken out."""
    reach(Waypoint.BEFORE_LOCK)
    with transaction.atomic(durable=True):
        unlocked = tree.Tree(Session.objects.get(pk=root_id), now)
        reach(Waypoint.LOCKED)
        yield unlocked
        unlocked.close()
    reach(Waypoint.AFTER_COMMIT)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("has_lock", [True, False])
def test_a_verb_that_does_not_wait_for_the_lock_is_noticed(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch, has_lock: bool
) -> None:
    """D-9: taking the lock out of one verb turns every race of it red; F-2."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    if not has_lock:
        monkeypatch.setattr(submit, "locked", without_the_lock)

    def race() -> None:
        meet(lambda: world.submit(session_id, "c1", result=1), lambda: world.submit(session_id, "c1", result=2))

    if has_lock:
        race()
    else:
        with pytest.raises(AssertionError, match="did not wait for the lock"):
            race()


@pytest.mark.django_db(transaction=True)
def test_an_actor_goes_no_further_than_it_is_told() -> None:
    passed: list[int] = []

    def act() -> str:
        for number in range(4):
            passed.append(number)
            reach(Waypoint.CLAIMED)
        return "done"

    with actors(act) as [actor]:
        assert passed == []
        actor.until(Waypoint.CLAIMED, 2)
        assert passed == [0, 1]
        assert list(actor.steps()) == [Waypoint.CLAIMED, Waypoint.CLAIMED]
        assert actor.finish() == "done" and passed == [0, 1, 2, 3]


def test_nobody_hears_of_a_point_after_the_listener_left() -> None:
    heard: list[Waypoint] = []
    with listening(heard.append):
        reach(Waypoint.LOCKED)
    reach(Waypoint.LOCKED)
    assert heard == [Waypoint.LOCKED]
