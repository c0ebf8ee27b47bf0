"""What this process says of itself: its name, and the runs that it holds, for exactly as long as it holds them."""

from __future__ import annotations

from uuid import UUID

import pytest

from helix.rows.holdings import HOLDINGS, Holdings
from helix.services.advance import advance_run
from tests.fixtures import AgentMaker
from tests.kit.gates import another_process
from tests.kit.models import ScriptedModel
from tests.kit.world import World, current_run

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_holder_is_named_once_per_process_start() -> None:
    """L-1, Q-47: host, process and chance; nothing of an input."""
    first, second = Holdings(), Holdings()
    assert first.holder == first.holder != second.holder
    assert len(first.holder.split(":")) == 3


def test_a_forked_child_holds_nothing_of_its_parent(world: World) -> None:
    """L-1, Q-40: another process, another holder."""
    with HOLDINGS.turn() as turn:
        turn.mark(UUID(int=1), 1, world.now)
        holder = HOLDINGS.holder
        with another_process():
            assert HOLDINGS.all() == () and HOLDINGS.holder != holder
        assert [held.run_id for held in HOLDINGS.all()] == [UUID(int=1)]
    assert HOLDINGS.all() == ()


def test_a_turn_clears_its_own_mark_only(world: World) -> None:
    """L-10, Q-40, Q-20: X is superseded by Y while it is held; the end of X leaves Y's mark alone."""
    run_id = UUID(int=1)
    with HOLDINGS.turn() as newer:
        with HOLDINGS.turn() as older:
            older.mark(run_id, 1, world.now)
            newer.mark(run_id, 2, world.now)
        held = HOLDINGS.get(run_id)
        assert held is not None and held.epoch == 2
    assert HOLDINGS.get(run_id) is None


def test_a_claim_that_does_not_commit_leaves_no_mark(
    world: World, agent: AgentMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-2, L-10: mark and claim stand in one block."""
    session_id = world.start(agent(ScriptedModel(["done"])))
    marked: list[int] = []

    class Unwritable(Exception):
        pass

    def fails(tree: object) -> None:
        marked.append(len(HOLDINGS.all()))
        raise Unwritable

    with monkeypatch.context() as patch:
        patch.setattr("helix.rows.tree.Tree.close", fails)
        with pytest.raises(Unwritable):
            advance_run(current_run(session_id).id, clock=world.clock)
    assert marked == [1] and HOLDINGS.all() == () and current_run(session_id).status == "queued"
