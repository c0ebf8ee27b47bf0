"""Checkpoints over HTTP, and the filters of the session list that need rows of several owners."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from helix.models import Session
from tests.api.conftest import Door, body_of
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import child_agent, locate
from tests.kit.world import World

pytestmark = pytest.mark.django_db


def points_of(door: Door, session_id: UUID) -> list[str]:
    return [one["checkpointId"] for one in body_of(door.get(f"sessions/{session_id}/checkpoints"))["checkpoints"]]


def test_a_checkpoint_is_read_by_its_id(owner: Door, waiting: UUID) -> None:
    """R-566: with what a rewind to it would restore."""
    (point,) = points_of(owner, waiting)
    shown = body_of(owner.get(f"sessions/{waiting}/checkpoints/{point}"))
    assert shown["checkpointId"] == point and shown["calls"] == [{"toolCallId": "c1", "state": "awaiting"}]
    assert shown["state"] == {} and shown["stepCount"] == 1


def test_checkpoints_are_read_in_pages(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-566: newest first, every one once."""
    session_id = world.started(agent(ScriptedModel(["one"], ["two"], ["three"])))
    for text in ("more", "even more"):
        world.send(session_id, text)
        world.drain()
    everything = points_of(owner, session_id)
    assert len(everything) == 3
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = body_of(owner.get(f"sessions/{session_id}/checkpoints", limit="1", **cursor))
        seen += [one["checkpointId"] for one in page["checkpoints"]]
        cursor = {"cursor": page["nextCursor"]} if page["nextCursor"] else {}
    assert seen == everything and not cursor


def test_a_checkpoint_of_another_session_is_missing(
    owner: Door, stranger: Door, world: World, waiting: UUID, agent: AgentMaker
) -> None:
    """R-464, R-398: alike for the owner of both and for a stranger; the control is the session that it is of."""
    other = world.started(agent(ScriptedModel(["done"])))
    (point,) = points_of(owner, waiting)
    for door, session_id in ((owner, other), (stranger, waiting), (stranger, other)):
        refused = door.get(f"sessions/{session_id}/checkpoints/{point}")
        assert (refused.status_code, body_of(refused)["code"]) == (404, "NOT_FOUND")
    rewound = owner.post("resume", {"sessionId": str(other), "mode": "from_checkpoint", "checkpointId": point})
    assert (rewound.status_code, body_of(rewound)["code"]) == (404, "NOT_FOUND")
    assert owner.get(f"sessions/{waiting}/checkpoints/{point}").status_code == 200


def listed(door: Door, **query: str) -> set[str]:
    return {row["sessionId"] for row in body_of(door.get("sessions", **query))["sessions"]}


def test_sessions_are_filtered_by_what_their_metadata_holds(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-567: every member that is named has to be there with that value."""
    declared = agent(ScriptedModel(["done"]))
    blue = str(world.create(declared, metadata={"team": "blue", "level": 2, "a__b": True}))
    world.create(declared, metadata={"team": "green", "level": 2})
    world.create(declared)
    assert listed(owner, metadata=json.dumps({"team": "blue"})) == {blue}
    assert listed(owner, metadata=json.dumps({"a__b": True})) == {blue}
    assert len(listed(owner, metadata=json.dumps({"level": 2}))) == 2
    assert listed(owner, metadata=json.dumps({"level": 2, "team": "red"})) == set()
    assert len(listed(owner, metadata="{}")) == 3
    for wrong in ("blue", "[]", '{"team": ["blue"]}', '{"team": null}'):
        assert owner.get("sessions", metadata=wrong).status_code == 400


def test_an_operator_lists_what_a_session_started(owner: Door, operator: Door, world: World, agent: AgentMaker) -> None:
    """R-567, R-190: for everybody else the filter is nothing, and a child is in no list."""
    child = child_agent("scout", ScriptedModel([call("locate", "c1")]), tools=[locate])
    root = world.started(agent(ScriptedModel([call("subagent__scout", task="go")]), sub_agents=[child]))
    below = str(Session.objects.get(parent_id=root).id)
    assert listed(operator, parent=str(root)) == {below}
    assert listed(owner, parent=str(root)) == {str(root)} == listed(operator)
    assert owner.get("sessions", parent="not-an-id").status_code == 400
    assert owner.get(f"sessions/{below}").status_code == 404
