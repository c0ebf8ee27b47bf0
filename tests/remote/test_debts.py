"""What a peer is owed: answers and stops, tried with growing pauses until taken, refused for good, or given up."""

from __future__ import annotations

import pytest

from helix.agents import SubAgent
from helix.errors import AlreadyRunning
from helix.models import PendingCall, RemoteDebt, Session
from helix.peers import PeerUnreachable
from helix.services.reap import reap_batch
from helix.statuses import StopKind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import OWNER, World, call_named, current_run, events, results, session_of
from tests.remote.conftest import Crew
from tests.remote.peers import Peers, at_peer, child_of, mirror, refused, remote, stand_in

pytestmark = pytest.mark.django_db


def asking() -> ScriptedModel:
    return ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])


def owed(kind: str = "answer") -> RemoteDebt:
    return RemoteDebt.objects.get(kind=kind)


def pauses_of(world: World, peers: Peers, kind: str, times: int) -> list[float]:
    found = []
    for _ in range(times):
        peers.relay()
        found.append((owed(kind).next_attempt_at - world.now).total_seconds())
        world.now = owed(kind).next_attempt_at
    return found


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_waits_for_a_peer_that_is_down_and_is_taken_when_it_is_up(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-214, B-14: accepted here while nobody is there, and never asked for again."""
    helper = asking()
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    peers.is_down = True
    assert world.submit(session_id, "c1", result="Bern")["status"] == "accepted"
    assert pauses_of(world, peers, "answer", 10) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert owed().last_error == "ConnectError" and mirror(session_id, "locate").state == "answered"
    peers.is_down = False
    peers.settle()
    assert helper.results_seen() == {"c1": "Bern"} and owed().state == "settled"
    assert session_of(session_id).status == "idle"


def test_an_answer_that_was_taken_although_its_reply_was_lost_is_taken_once(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-214, F-7: the repeat is `already_completed`, which settles the debt."""
    helper = asking()
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="Bern")
    peers.lose_answers = True
    peers.relay()
    peers.lose_answers = False
    peers.settle()
    assert len(peers.asked("submit-tool-result")) == 2 and helper.asked == 2
    assert owed().state == "settled" and session_of(session_id).status == "idle"


@pytest.mark.parametrize(
    "why", [refused(429, "rate_limited", retryable=True), refused(401, "transport_unauthorized"), refused(409, "x")]
)
def test_a_refusal_that_may_pass_is_tried_again(world: World, peers: Peers, crew: Crew, why: BaseException) -> None:
    """R-214."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="Bern")
    peers.meet("submit-tool-result", why)
    peers.relay()
    assert (owed().state, mirror(session_id, "locate").state) == ("owed", "answered")
    peers.settle()
    assert owed().state == "settled" and session_of(session_id).status == "idle"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "INVALID_RESULT"), (400, "validation_error"), (413, "validation_payload_too_large"), (403, "not_permitted")],
)
def test_a_typed_refusal_opens_the_call_again_and_says_why(
    world: World, peers: Peers, crew: Crew, status: int, code: str
) -> None:
    """R-140, P-17: kept verbatim in the event; the next answer is another debt."""
    helper = asking()
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="wrong")
    refusal = refused(status, code, toolName="locate", extra={"kept": ["as", "it", "is"]})
    peers.meet("submit-tool-result", refusal)
    peers.relay()
    row = mirror(session_id, "locate")
    assert (row.state, row.answer_json, row.answered_at) == ("awaiting", None, None)
    assert session_of(session_id).status == "awaiting_client_tool"
    assert events(session_id, "call_reopened")[0]["refusal"] == refusal.body
    assert world.submit(session_id, "c1", result="right")["status"] == "accepted"
    peers.settle()
    assert helper.results_seen() == {"c1": "right"} and RemoteDebt.objects.filter(kind="answer").count() == 1


def test_an_answer_is_given_up_at_the_end_of_its_window(
    world: World, peers: Peers, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    """R-214, R-618: visible, logged as an error, and the call can be answered again."""
    session_id = world.started(crew(asking(), tools=[locate], declared={"timeout_ms": None}))
    peers.settle()
    peers.meet("submit-tool-result", *[PeerUnreachable("HTTP 503")] * 400)
    world.submit(session_id, "c1", result="Bern")
    ends = owed().window_ends_at
    assert (ends - world.now).total_seconds() == 86_400
    world.now = ends
    peers.relay()
    assert (owed().state, owed().last_error) == ("given_up", "HTTP 503")
    assert [record.levelname for record in caplog.records if record.message == "debt.given_up"] == ["ERROR"]
    assert mirror(session_id, "locate").state == "awaiting"
    assert events(session_id, "call_reopened")[0]["refusal"]["code"] == "peer_unreachable"


def test_an_answer_that_a_stop_overtook_is_not_handed_on(world: World, peers: Peers, crew: Crew) -> None:
    """R-214, R-422: the call is closed here; the peer hears of the stop."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="Bern")
    world.stop(session_id)
    peers.settle()
    assert peers.asked("submit-tool-result") == [] and len(peers.asked("interrupt")) == 1
    assert owed().state == "settled"


def test_a_late_word_of_the_first_attempt_does_not_undo_a_newer_answer(world: World, peers: Peers, crew: Crew) -> None:
    """F-7, P-17: the refused answer was replaced while its worker slept."""
    helper = asking()
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="first")

    def meanwhile() -> None:
        world.tick(minutes=2)
        peers.meet("submit-tool-result", refused(400, "INVALID_RESULT"))
        peers.relay()
        world.submit(session_id, "c1", result="second")
        raise refused(400, "INVALID_RESULT")

    peers.meet("submit-tool-result", meanwhile)
    peers.relay()
    assert len(events(session_id, "call_reopened")) == 1
    assert mirror(session_id, "locate").answer_json == '"second"'
    peers.settle()
    assert helper.results_seen() == {"c1": "second"}


# -- stops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(StopKind))
def test_the_stop_of_a_remote_child_names_its_delegation(
    world: World, peers: Peers, crew: Crew, kind: StopKind
) -> None:
    """R-203, R-363, R-422: closed here in one transaction, stopped there by a debt."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    assert world.stop(session_id, kind, reason="enough").outcome == "resolved"
    assert session_of(session_id).status == ("interrupted" if kind == StopKind.INTERRUPT else "failed")
    assert mirror(session_id, "locate").discard_reason == "run_stopped" and owed("stop").state == "owed"
    peers.settle()
    path = "interrupt" if kind == StopKind.INTERRUPT else "abort"
    (sent,) = peers.asked(path)
    assert (sent["delegationId"], sent["reason"]) == (child_of(session_id).delegation_id, "enough")
    (there,) = at_peer()
    assert there.status == session_of(session_id).status and owed("stop").state == "settled"
    assert set(results(session_id)) == {"d1"}


def test_a_stop_waits_for_a_peer_that_is_down(world: World, peers: Peers, crew: Crew) -> None:
    """B-40, R-203: peer down, stop, peer up: confirmed, with growing pauses in between."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    peers.is_down = True
    world.stop(session_id, StopKind.ABORT)
    assert session_of(session_id).status == "failed"
    assert pauses_of(world, peers, "stop", 4) == [1, 2, 4, 8]
    assert at_peer()[0].status == "awaiting_client_tool"
    peers.is_down = False
    peers.settle()
    assert at_peer()[0].status == "failed" and owed("stop").state == "settled"


def test_a_stop_is_given_up_at_the_end_of_its_window(
    world: World, peers: Peers, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    """R-203, R-618: and stays to be seen by operators."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    peers.is_down = True
    world.stop(session_id)
    world.now = owed("stop").window_ends_at
    peers.relay()
    assert owed("stop").state == "given_up" and owed("stop").attempts == 1
    assert "debt.given_up" in [record.message for record in caplog.records]
    peers.is_down = False
    assert peers.relay() == 0


def test_a_child_that_no_peer_was_ever_asked_for_owes_no_stop(world: World, peers: Peers, crew: Crew) -> None:
    """R-203: stopped before its start left this server; it never starts."""
    session_id = world.started(crew(asking(), tools=[locate]))
    world.stop(session_id)
    peers.settle()
    assert peers.requests == [] and not RemoteDebt.objects.exists()


def test_a_stop_that_overtook_its_start_is_sent_again(world: World, peers: Peers, crew: Crew) -> None:
    """R-203, F-7: the child begins at the peer after it was stopped here, and is stopped there all the same."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.meet("start", lambda: world.stop(session_id))
    peers.settle()
    assert len(peers.asked("start")) == 1 and len(peers.asked("interrupt")) >= 1
    assert at_peer()[0].status == "interrupted" and owed("stop").state == "settled"


def test_a_start_that_may_have_arrived_is_stopped_once_it_must_have(world: World, peers: Peers, crew: Crew) -> None:
    """R-203: the answer of the start was lost, and the stop waits until that start cannot be on its way any more."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.lose_answers = True
    peers.relay()
    peers.lose_answers = False
    world.stop(session_id)
    assert owed("stop").next_attempt_at >= child_of(session_id).next_attempt_at
    peers.settle()
    assert at_peer()[0].status == "interrupted"


def test_a_stop_that_finds_no_session_is_settled(world: World, peers: Peers, crew: Crew) -> None:
    """R-203: what is not there needs no stop."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    world.stop(session_id)
    peers.meet("interrupt", refused(404, "NOT_FOUND"))
    peers.relay()
    assert owed("stop").state == "settled"


def test_a_message_that_abandons_stops_the_child_at_its_peer(world: World, peers: Peers, crew: Crew) -> None:
    """R-460, R-203."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    world.send(session_id, "never mind", abandon_pending=True)
    peers.settle()
    assert at_peer()[0].status == "interrupted" and session_of(session_id).status == "idle"
    assert results(session_id)["d1"]["errorCode"] == "client_tool_abandoned"


def test_work_of_a_peer_is_not_abandoned(world: World, peers: Peers, agent: AgentMaker) -> None:
    """R-461: one child waits and may be given up, but another one computes at its peer."""
    agent(asking(), name="waits", tools=[locate], output_schema={"type": "object"})
    agent(ScriptedModel([call("__finish__", ok=True)]), name="computes", output_schema={"type": "object"})
    model = ScriptedModel([call("subagent__waits", "w", task="x"), call("subagent__computes", "c", task="y")], ["done"])
    session_id = world.started(agent(model, sub_agents=[remote("waits"), remote("computes")]))
    peers.busy_with.add("computes")
    peers.relay()
    world.drain()
    world.tick(seconds=1)
    peers.relay()
    assert session_of(session_id).status == "awaiting_client_tool"
    with pytest.raises(AlreadyRunning):
        world.send(session_id, "never mind", abandon_pending=True)


def test_the_stop_of_a_removed_conversation_is_still_owed(world: World, peers: Peers, crew: Crew) -> None:
    """R-048, R-203: the conversation's rows go, the debt stays until it is paid."""
    session_id = world.started(crew(asking(), tools=[locate]))
    peers.settle()
    world.stop(session_id, StopKind.ABORT)
    Session.objects.filter(pk=session_id).update(expires_at=world.now)
    while reap_batch(root_id=session_id, now=world.now):
        pass
    assert not Session.objects.filter(pk=session_id).exists() and owed("stop").state == "owed"
    peers.settle()
    assert at_peer()[0].status == "failed" and owed("stop").state == "settled"


def test_a_local_child_between_root_and_peer_is_stopped_with_it(world: World, peers: Peers, agent: AgentMaker) -> None:
    """R-422, R-212: every descendant in one transaction; the remote one by debt."""
    agent(asking(), name="far", tools=[locate], output_schema={"type": "object"})
    near = agent(
        ScriptedModel([call("subagent__far", "f1", task="x")]),
        name="near",
        sub_agents=[remote("far")],
        output_schema={"type": "object"},
    )
    top = ScriptedModel([call("subagent__near", "n1", task="x")], ["done"])
    session_id = world.started(agent(top, sub_agents=[SubAgent(near)]))
    peers.settle()
    assert stand_in(session_id).parent_id == call_named(session_id, "subagent__near").child.id
    world.stop(session_id, principal=OWNER)
    assert {session.status for session in Session.objects.filter(root_id=session_id)} == {"interrupted"}
    peers.settle()
    assert at_peer()[0].status == "interrupted"
    assert not PendingCall.objects.filter(root_id=session_id).exclude(state__in=["consumed", "discarded"]).exists()


def test_an_approved_body_of_the_peer_is_not_run_after_a_stop(world: World, peers: Peers, crew: Crew) -> None:
    """R-410, R-420, R-203: the stop reaches the peer before any verdict."""
    bodies = Bodies()
    helper = ScriptedModel([call("pay", "p1", number=7)], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[bodies.tool("pay", require_approval=True)]))
    peers.settle()
    world.decide(mirror(session_id, "pay"), principal=OWNER)
    world.stop(session_id)
    peers.settle()
    assert bodies.ran == [] and current_run(session_id).status == "interrupted"
