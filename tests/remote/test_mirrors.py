"""A remote child's open calls as calls of this tree: shown, answered here, relayed, closed as the peer closes them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from helix.admin.interventions import MoveDeadline
from helix.errors import InvalidResult, NotResumable, NotSupported, UnknownToolCall, ValidationFailed
from helix.models import CallAudit, CallOwnership, CallTombstone, Checkpoint, Message, RemoteDebt, Session
from helix.selectors import snapshot_rows
from helix.services.deadlines import move_deadline
from helix.services.rewind import rewind
from helix.services.stops import stop_session
from helix.statuses import StopKind
from helix.wire import snapshot, status
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate, measure
from tests.kit.world import OPERATOR, OWNER, World, current_run, events, pending, results, session_of
from tests.remote.conftest import Crew
from tests.remote.peers import DELEGATE, URL, Peers, at_peer, child_of, mirror, stand_in

pytestmark = pytest.mark.django_db


def asking(*calls: object) -> ScriptedModel:
    return ScriptedModel(list(calls), [call("__finish__", ok=True)])


def test_a_call_of_the_peer_is_pending_at_the_root_with_the_path_of_agents(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-201, R-213, B-14, C-074, C-078: kind, arguments text and deadline are the peer's; it has none of its own."""
    helper = asking(call("locate", "c1", precise=True))
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    (row,) = pending(session_id)
    (there,) = pending(at_peer()[0].id)
    assert (row.kind, row.arguments_json, row.arguments_digest) == (
        "client",
        '{"precise":true}',
        there.arguments_digest,
    )
    assert row.deadline_at is None and there.deadline_at is not None
    shown = snapshot(snapshot_rows(OWNER, str(session_id)), world.now)
    assert shown["status"] == "awaiting_client_tool" and session_of(session_id).waiting_since == row.exposed_at
    assert shown["pendingTools"][0]["agentPath"] == ["parent", "helper"]
    assert shown["pendingTools"][0]["deadlineAt"] == there.deadline_at.isoformat().replace("+00:00", "Z")
    (started,) = [event for event in events(session_id, "tool_start") if event["toolName"] == "locate"]
    assert started["deadlineAt"] == shown["pendingTools"][0]["deadlineAt"]


def test_the_ownership_row_of_a_mirror_leads_to_the_peer(world: World, peers: Peers, crew: Crew) -> None:
    """R-201, R-193: exactly the remote form, and gone when the call is closed."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    owned = CallOwnership.objects.get(root_id=session_id)
    assert (owned.owner_session_id, owned.remote_url, owned.remote_tool_call_id) == (None, URL, "c1")
    assert owned.delegation_id == child_of(session_id).delegation_id
    world.submit(session_id, "c1", result="Bern")
    peers.settle()
    assert not CallOwnership.objects.filter(root_id=session_id).exists()


def test_registering_a_mirror_moves_no_version(world: World, peers: Peers, crew: Crew) -> None:
    """R-201, R-194: the first one changes the session's status, which has a version; a second one changes nothing."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    before = {session.id: session.version for session in Session.objects.filter(root_id=session_id)}
    listed = status(snapshot_rows(DELEGATE, child_of(session_id).named))
    (one,) = listed["pendingCalls"]
    world.tick(seconds=15)
    peers.meet("status", {**listed, "pendingCalls": [one, {**one, "toolCallId": "c2"}]})
    peers.relay()
    assert [row.tool_call_id for row in pending(session_id)] == ["c1", "c2"]
    assert {session.id: session.version for session in Session.objects.filter(root_id=session_id)} == before


def test_an_answer_is_stored_at_once_and_deferred_to_the_run_that_awaits_the_peer(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-214, R-120, F-11, B-14: 2xx and the debt in one transaction, then the peer's model, then the parent's."""
    helper = asking(call("locate", "c1"))
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    done = world.submit(session_id, "c1", result={"city": "Bern"})
    waits = current_run(session_id)
    assert done == {"status": "accepted", "continuation": {"kind": "deferred", "blockingRunId": str(waits.id)}}
    debt = RemoteDebt.objects.get()
    assert (debt.kind, debt.state, debt.url) == ("answer", "owed", URL) and peers.asked("submit-tool-result") == []
    peers.settle()
    assert helper.results_seen() == {"c1": '{"city":"Bern"}'}
    assert RemoteDebt.objects.get().state == "settled" and session_of(session_id).status == "idle"


def test_the_parents_log_holds_the_result_of_its_own_call_and_nothing_of_the_peers(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-144, R-208: the mirror's result is no message of the parent."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="Bern")
    peers.settle()
    assert set(results(session_id)) == {"d1"}
    assert set(results(stand_in(session_id).id)) == {"c1"}
    roles = Message.objects.filter(session_id=session_id).order_by("position").values_list("role", flat=True)
    assert list(roles) == ["user", "assistant", "tool", "assistant"]


def test_a_repeat_is_recognised_before_and_after_the_relay(world: World, peers: Peers, crew: Crew) -> None:
    """R-065, R-121, R-198, R-214: first deferred, then consumed, with the tombstone on the root."""
    helper = ScriptedModel([call("locate", "c1"), call("locate", "c2")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    assert world.submit(session_id, "c1", result=1)["continuation"] == {"kind": "awaiting_batch"}
    assert world.submit(session_id, "c1", result=2)["status"] == "already_completed"
    peers.relay()
    assert CallTombstone.objects.get(root_id=session_id).tool_call_id == "c1"
    again = world.submit(session_id, "c1", result=3)
    assert again == {"status": "already_completed", "continuation": {"kind": "consumed"}}
    assert [body["result"] for body in peers.asked("submit-tool-result")] == [1]


def test_a_result_is_held_to_the_childs_output_schema_here_already(world: World, peers: Peers, crew: Crew) -> None:
    """R-197, R-213, R-317: the schema came with the call; nothing is stored and nothing is owed."""
    session_id = world.started(crew(asking(call("measure", "c1", metres=1)), tools=[measure]))
    peers.settle()
    with pytest.raises(InvalidResult):
        world.submit(session_id, "c1", result={"value": "long"})
    assert not RemoteDebt.objects.exists()
    world.submit(session_id, "c1", result={"value": 1.5})
    peers.settle()
    assert session_of(session_id).status == "idle"


@pytest.mark.parametrize("approved", [True, False])
def test_a_verdict_crosses_the_boundary(world: World, peers: Peers, crew: Crew, approved: bool) -> None:
    """R-160, R-164, R-168, R-169, R-170, R-214: asked and decided here; the body runs there, once, or never."""
    bodies = Bodies()
    helper = asking(call("pay", "p1", number=7))
    session_id = world.started(crew(helper, tools=[bodies.tool("pay", require_approval=True)]))
    peers.settle()
    row = mirror(session_id, "pay")
    there = pending(at_peer()[0].id)[0]
    assert row.approval_id != there.approval_id and bodies.ran == []
    (request,) = events(session_id, "tool_approval_request")
    assert request["approvalId"] == row.approval_id
    assert world.decide(row, approved=approved, principal=OWNER, reason="as agreed")["status"] == "accepted"
    peers.settle()
    assert bodies.ran == ([("pay", 7)] if approved else [])
    (sent,) = peers.asked("submit-tool-result")
    assert (sent["approvalId"], sent["reason"]) == (there.approval_id, "as agreed")
    assert ("pay 7" if approved else "as agreed") in helper.results_seen()["p1"]
    assert session_of(session_id).status == "idle"


def test_edited_arguments_cross_the_boundary(world: World, peers: Peers, crew: Crew) -> None:
    """R-177, R-178, R-181."""
    bodies = Bodies()
    helper = asking(call("pay", "p1", number=7))
    session_id = world.started(crew(helper, tools=[bodies.tool("pay", require_approval=True)]))
    peers.settle()
    world.decide(mirror(session_id, "pay"), principal=OWNER, editedArguments={"number": 5})
    peers.settle()
    assert bodies.ran == [("pay", 5)] and "A reviewer changed the arguments" in helper.results_seen()["p1"]


def test_an_edit_that_the_peer_refuses_opens_the_request_again(world: World, peers: Peers, crew: Crew) -> None:
    """R-140, R-177, P-17: only the peer knows the input schema; its refusal is shown as it stands."""
    bodies = Bodies()
    session_id = world.started(
        crew(asking(call("pay", "p1", number=7)), tools=[bodies.tool("pay", require_approval=True)])
    )
    peers.settle()
    world.decide(mirror(session_id, "pay"), principal=OWNER, editedArguments={"number": "many"})
    peers.relay()
    row = mirror(session_id, "pay")
    assert (row.state, row.answer_kind, row.edited_arguments_json) == ("awaiting", None, None)
    (reopened,) = events(session_id, "call_reopened")
    assert reopened["refusal"]["code"] == ValidationFailed.code and reopened["refusal"]["cause"] == "edited_arguments"
    world.decide(row, principal=OWNER)
    peers.settle()
    assert bodies.ran == [("pay", 7)]


def test_a_call_id_that_the_tree_knows_is_replaced_by_a_minted_one(world: World, peers: Peers, crew: Crew) -> None:
    """R-052: two servers may use one id; the answer still finds the right call."""
    helper = asking(call("locate", "d1"))
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    (row,) = pending(session_id)
    assert row.tool_call_id != "d1" and row.provider_call_id == "d1"
    world.submit(session_id, row.tool_call_id, result="Bern")
    peers.settle()
    assert helper.results_seen() == {"d1": "Bern"}


def test_one_pause_at_a_time_covers_the_calls_of_a_peer(world: World, peers: Peers, crew: Crew) -> None:
    """R-051: the root's `max_open_calls` bounds what is shown of the whole tree."""
    helper = asking(call("locate", "c1"), call("locate", "c2"))
    session_id = world.started(crew(helper, tools=[locate], parent_options={"max_open_calls": 1}))
    peers.settle()
    assert [row.tool_call_id for row in pending(session_id)] == ["c1"]
    world.submit(session_id, "c1", result=1)
    assert [row.tool_call_id for row in pending(session_id)] == ["c2"]
    world.submit(session_id, "c2", result=2)
    peers.settle()
    assert helper.results_seen() == {"c1": "1", "c2": "2"}


def test_the_peers_deadline_governs(world: World, peers: Peers, crew: Crew) -> None:
    """R-214, T-4: it lapses there; here the call is closed as it was closed there, and the turn goes on."""
    helper = asking(call("locate", "c1"))
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.wait(minutes=6)
    world.drain()
    peers.settle()
    row = mirror(session_id, "locate")
    assert (row.state, row.answer_kind) == ("consumed", "timeout")
    assert session_of(session_id).status == "idle" and "not answered in time" in helper.results_seen()["c1"]


def test_a_deadline_that_moved_at_the_peer_is_shown_here(world: World, peers: Peers, crew: Crew) -> None:
    """R-214, R-241."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    later = world.now + timedelta(hours=2)
    listed = status(snapshot_rows(DELEGATE, child_of(session_id).named))
    moved = [{**one, "deadlineAt": later.isoformat()} for one in listed["pendingCalls"]]
    world.tick(seconds=15)
    peers.meet("status", {**listed, "pendingCalls": moved})
    peers.relay()
    assert events(session_id, "deadline_changed")[-1]["deadlineAt"] == later.isoformat().replace("+00:00", "Z")
    assert mirror(session_id, "locate").deadline_at is None


def test_a_late_answer_is_handed_on_once(world: World, peers: Peers, crew: Crew) -> None:
    """R-214, R-272, R-273: the peer's model gets the notice, and the debt is settled by `late_answer_after_timeout`."""
    helper = ScriptedModel([call("locate", "c1")], [call("locate", "c2")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.wait(minutes=6)
    peers.settle()
    assert world.submit(session_id, "c1", result="Bern") == {"status": "late_answer_after_timeout"}
    assert world.submit(session_id, "c1", result="Rome") == {"status": "late_answer_after_timeout"}
    peers.settle()
    (sent,) = peers.asked("submit-tool-result")
    assert sent["result"] == "Bern" and RemoteDebt.objects.get().state == "settled"
    world.submit(session_id, "c2", result="here")
    peers.settle()
    notices = [message for message in helper.requests[-1].messages if message.role == "notice"]
    assert len(notices) == 1 and "Bern" in notices[0].parts[0]["text"]


def test_a_call_that_somebody_answered_at_the_peer_is_closed_here(world: World, peers: Peers, crew: Crew) -> None:
    """R-201, R-263: nothing is left to do; a repeat here says so."""
    helper = asking(call("locate", "c1"))
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    world.submit(at_peer()[0].id, "c1", principal=DELEGATE, result="there")
    peers.settle()
    assert (mirror(session_id, "locate").state, mirror(session_id, "locate").answer_kind) == ("consumed", "result")
    assert world.submit(session_id, "c1", result="here")["status"] == "already_completed"
    assert helper.results_seen() == {"c1": "there"} and session_of(session_id).status == "idle"


def test_a_call_that_was_stopped_at_the_peer_answers_as_it_does_there(world: World, peers: Peers, crew: Crew) -> None:
    """R-140, R-339: the answer met a stop; the mirror is closed with the peer's own reason."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    world.submit(session_id, "c1", result="Bern")
    child = child_of(session_id)
    stop_session(
        principal=OPERATOR,
        session_id=str(at_peer()[0].id),
        kind=StopKind.INTERRUPT,
        delegation_id=child.delegation_id,
        now=world.now,
    )
    peers.relay()
    with pytest.raises(UnknownToolCall) as refusal:
        world.submit(session_id, "c1", result="Bern")
    assert refusal.value.fields["reason"] == "run_stopped"
    peers.settle()
    assert session_of(session_id).status == "idle"


def test_the_status_of_a_session_that_nobody_delegated_shows_no_schema_and_no_output(
    world: World, peers: Peers, agent: AgentMaker
) -> None:
    """R-213, R-361: what a delegating server needs is for it alone."""
    session_id = world.started(agent(ScriptedModel([call("measure", "c1", metres=1)], ["x"]), tools=[measure]))
    shown = status(snapshot_rows(OWNER, str(session_id)))
    assert "outputSchema" not in shown["pendingCalls"][0] and "output" not in shown


def test_the_deadline_of_a_mirror_is_moved_at_its_peer_only(world: World, peers: Peers, crew: Crew) -> None:
    """R-214, R-241: one set here would lapse an answer that the peer still awaits. Control: the call at the peer."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    there = at_peer()[0].id

    def move(root_id: UUID) -> None:
        later = world.now + timedelta(hours=1)
        move_deadline(
            principal=OPERATOR,
            session_id=str(root_id),
            tool_call_id="c1",
            deadline_at=later,
            now=world.now,
            door="test",
        )

    with pytest.raises(NotSupported):
        move(session_id)
    assert pending(session_id)[0].deadline_at is None
    assert not CallAudit.objects.exists() and not events(session_id, "deadline_changed")
    move(there)
    assert events(there, "deadline_changed")
    offered = [MoveDeadline().is_offered(row) for row in (*pending(session_id), *pending(there))]
    assert offered == [False, True]


def test_work_of_a_peer_is_not_rewound_under_it(world: World, peers: Peers, crew: Crew) -> None:
    """R-464: refused typed, as with local sub-agents."""
    session_id = world.started(crew(asking(call("locate", "c1")), tools=[locate]))
    peers.settle()
    point = Checkpoint.objects.filter(session_id=session_id).order_by("-id")[0]
    with pytest.raises(NotResumable):
        rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=point.checkpoint_id, now=world.now)
