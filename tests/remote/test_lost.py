"""A child that its peer lost, refuses or cannot serve, and a peer that fell silent: settled typed, never hanging."""

from __future__ import annotations

from typing import Any

import pytest

from helix.errors import UnknownToolCall
from helix.models import RemoteDebt
from helix.peers import PeerRefused
from tests.api.conftest import Door, believe, body_of
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import OWNER, World, events, results, session_of
from tests.remote.conftest import Crew
from tests.remote.peers import Peers, at_peer, child_of, mirror, refused

pytestmark = pytest.mark.django_db

MINUTE = 60_000


def asking() -> ScriptedModel:
    return ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])


def end_of_call(session_id: Any) -> dict[str, Any]:
    (ended,) = [event for event in events(session_id, "tool_end") if event["toolCallId"] == "d1"]
    return ended


def suspended(world: World, peers: Peers, crew: Crew, **declared: Any) -> Any:
    session_id = world.started(crew(asking(), tools=[locate], client_tool_timeout_ms=None, declared=declared))
    peers.settle()
    return session_id


@pytest.mark.parametrize(
    ("refusal", "cause"),
    [(refused(404, "NOT_FOUND"), "not_found"), (refused(403, "transport_forbidden"), "refused:transport_forbidden")],
)
def test_a_child_that_its_peer_does_not_find_is_lost_at_once(
    world: World, peers: Peers, crew: Crew, refusal: PeerRefused, cause: str
) -> None:
    """R-202: typed, with its cause; the parent's model is told and goes on."""
    session_id = suspended(world, peers, crew)
    world.tick(seconds=15)
    peers.meet("status", refusal)
    peers.relay()
    ended = end_of_call(session_id)
    assert (ended["errorCode"], ended["cause"]) == ("framework_subagent_lost", cause)
    assert child_of(session_id).state == "lost"
    world.drain()
    assert session_of(session_id).status == "idle"
    assert results(session_id)["d1"]["errorCode"] == "framework_subagent_lost"
    assert RemoteDebt.objects.filter(kind="stop").count() == (0 if cause == "not_found" else 1)


def test_the_calls_of_a_lost_child_are_answerable_no_more(
    world: World, peers: Peers, crew: Crew, settings: Any
) -> None:
    """R-204, R-340: also the one whose answer was on its way; the same words over HTTP."""
    session_id = suspended(world, peers, crew)
    world.submit(session_id, "c1", result="Bern")
    world.tick(seconds=15)
    peers.meet("submit-tool-result", refused(401, "transport_unauthorized"))
    peers.meet("status", refused(404, "NOT_FOUND"))
    peers.relay()
    assert mirror(session_id, "locate").state == "discarded"
    with pytest.raises(UnknownToolCall) as refusal:
        world.submit(session_id, "c1", result="Bern")
    assert refusal.value.fields["reason"] == "owner_not_continuable"
    settings.HELIX_AUTHENTICATE = believe
    answer = Door(OWNER).post(f"chat/{session_id}/submit-tool-result", {"toolCallId": "c1", "result": "Bern"})
    body = body_of(answer)
    assert (answer.status_code, body["status"], body["reason"]) == (404, "unknown_tool_call", "owner_not_continuable")


def test_a_silent_peer_is_lost_after_its_bound_and_a_minute(world: World, peers: Peers, crew: Crew) -> None:
    """R-202, liveness section 11: `timeout_ms` and 60 s of failed readings, not a second less."""
    session_id = suspended(world, peers, crew, timeout_ms=2 * MINUTE)
    peers.is_down = True
    world.tick(seconds=15)
    peers.relay()
    since = child_of(session_id).silent_since
    while (world.now - since).total_seconds() <= 180:
        assert child_of(session_id).state == "running"
        world.tick(seconds=15)
        peers.relay()
    world.tick(seconds=60)
    peers.relay()
    assert end_of_call(session_id)["cause"] == "status_unreachable"
    assert child_of(session_id).state == "lost"
    peers.is_down = False
    peers.settle()
    assert at_peer()[0].status == "failed" and session_of(session_id).status == "idle"


def test_a_peer_that_is_heard_again_was_not_lost(world: World, peers: Peers, crew: Crew) -> None:
    """R-202: one good reading ends the silence."""
    session_id = suspended(world, peers, crew, timeout_ms=MINUTE)
    for is_down in (True, False, True):
        peers.is_down = is_down
        for _ in range(6):
            world.tick(seconds=15)
            peers.relay()
    assert child_of(session_id).state == "running"
    peers.is_down = False
    world.submit(session_id, "c1", result="Bern")
    peers.settle()
    assert results(session_id)["d1"]["errorCode"] is None


def test_the_time_in_which_nobody_here_listened_is_not_silence(world: World, peers: Peers, crew: Crew) -> None:
    """Q-03, R-202: this server was away for a day between two readings; the peer is given its time from then on."""
    session_id = suspended(world, peers, crew, timeout_ms=5 * MINUTE)
    peers.is_down = True
    world.tick(seconds=15)
    peers.relay()
    world.tick(days=1)
    peers.relay()
    assert child_of(session_id).state == "running"
    peers.is_down = False
    world.submit(session_id, "c1", result="Bern")
    peers.settle()
    assert results(session_id)["d1"]["errorCode"] is None


def test_without_a_bound_a_silent_peer_is_waited_for(world: World, peers: Peers, crew: Crew) -> None:
    """R-202, R-015: `None` is for ever; the control is the default, an hour."""
    session_id = suspended(world, peers, crew, timeout_ms=None)
    peers.is_down = True
    for _ in range(100):
        world.tick(minutes=2)
        peers.relay()
    assert child_of(session_id).state == "running"


def test_left_out_the_bound_is_an_hour(world: World, peers: Peers, crew: Crew) -> None:
    """R-202: the control of the test above."""
    session_id = suspended(world, peers, crew)
    peers.is_down = True
    for _ in range(100):
        world.tick(minutes=2)
        peers.relay()
    assert child_of(session_id).state == "lost"


def test_a_peer_that_hides_its_calls_fails_the_delegation_at_once(world: World, peers: Peers, crew: Crew) -> None:
    """R-200: it waits for a client and says for none of its calls what it waits for."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.relay()
    world.tick(seconds=1)
    peers.meet("status", {"status": "awaiting_client_tool", "awaitingClientTool": True, "streamSequence": 9})
    peers.relay()
    ended = end_of_call(session_id)
    assert ended["errorCode"] == "framework_remote_client_tool_unsupported"
    assert ended["failureReason"] == "client-tool-unsupported"
    peers.settle()
    assert session_of(session_id).status == "idle" and len(peers.asked("abort")) == 1


@pytest.mark.parametrize(
    "refusal", [PeerRefused(404, {}), PeerRefused(405, {}), refused(501, "framework_not_supported")]
)
def test_a_peer_that_takes_no_relayed_answer_fails_the_delegation_at_once(
    world: World, peers: Peers, crew: Crew, refusal: PeerRefused
) -> None:
    """R-200: no route for it, or a typed refusal of the operation."""
    session_id = suspended(world, peers, crew)
    world.submit(session_id, "c1", result="Bern")
    peers.meet("submit-tool-result", refusal)
    peers.settle()
    assert end_of_call(session_id)["errorCode"] == "framework_remote_client_tool_unsupported"
    assert session_of(session_id).status == "idle"


@pytest.mark.parametrize(
    "nonsense",
    [
        {"pendingCalls": "none"},
        {"pendingCalls": [{"toolCallId": "c9"}]},
        {"streamSequence": -1},
        {"pendingCalls": [{"toolCallId": "c9", "toolName": "x", "kind": "server", "argumentsJson": "{}"}]},
        {"pendingCalls": [{"toolCallId": "c" * 257, "toolName": "x", "kind": "client", "argumentsJson": "{}"}]},
        {"pendingCalls": [{"toolCallId": "c9", "toolName": "x", "kind": "approval", "argumentsJson": "{}"}]},
    ],
)
def test_an_answer_that_makes_no_sense_is_silence(
    world: World, peers: Peers, crew: Crew, nonsense: dict[str, Any]
) -> None:
    """R-202: what no row could hold is not taken in, and the next reading may make sense."""
    session_id = suspended(world, peers, crew)
    world.tick(seconds=15)
    peers.meet("status", {"status": "running", "runStatus": "running", "streamSequence": 99, **nonsense})
    peers.relay()
    assert child_of(session_id).silent_since == world.now
    world.tick(seconds=15)
    peers.relay()
    assert child_of(session_id).silent_since is None and len(events(session_id, "tool_start")) == 2


def test_a_schema_that_cannot_be_used_is_left_to_the_peer(world: World, peers: Peers, crew: Crew) -> None:
    """R-213, R-197: it leads outside itself; the call is open all the same."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.relay()
    world.tick(seconds=1)
    one = {
        "toolCallId": "c1",
        "toolName": "locate",
        "kind": "client",
        "argumentsJson": '{"a": 1, "a": 2}',
        "outputSchema": {"$ref": "https://elsewhere.example/schema.json"},
    }
    peers.meet("status", {"status": "awaiting_client_tool", "streamSequence": 9, "pendingCalls": [one]})
    peers.relay()
    row = mirror(session_id, "locate")
    assert (row.state, row.output_schema, row.arguments_json) == ("awaiting", None, '{"a": 1, "a": 2}')
