"""A sub-agent at another server: begun after the commit, read at due times, and its end climbs like any other."""

from __future__ import annotations

import pytest

from helix.errors import NotFound
from helix.models import PendingCall, Run, RunLease, Session
from helix.peers import PeerUnreachable
from helix.services.barrier import Settled, settled_for
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, current_run, events, results, session_of
from tests.remote.conftest import Crew
from tests.remote.peers import DELEGATE, URL, Peers, at_peer, child_of, refused, remote, stand_in

pytestmark = pytest.mark.django_db


def finishing(**output: object) -> ScriptedModel:
    return ScriptedModel([call("__finish__", **output)])


def test_the_output_of_a_remote_child_is_the_result_of_the_call(world: World, peers: Peers, crew: Crew) -> None:
    """R-209, R-211, R-213, B-14: the child's task, its output, and one continuation of the parent."""
    model = ScriptedModel([call("subagent__helper", "d1", task="Look it up.")], ["done"])
    helper = finishing(answer=42)
    session_id = world.started(crew(helper, parent=model))
    peers.settle()
    assert helper.requests[0].messages[0].parts == [{"type": "text", "text": "Look it up."}]
    assert model.results_seen() == {"d1": '{"answer":42}'}
    assert session_of(session_id).status == "idle" and model.asked == 2
    assert Run.objects.filter(session_id=session_id, cause="continuation").count() == 1
    assert child_of(session_id).state == "ended"


def test_the_peer_is_asked_after_the_commit_and_by_a_hint(world: World, peers: Peers, crew: Crew) -> None:
    """F-4, R-210, R-213: the suspension made no request and holds no worker; the parent's run waits for a child."""
    session_id = world.started(crew(finishing()))
    assert peers.requests == [] and world.relay_hints == 1
    assert current_run(session_id).status == "suspended_awaiting_children"
    assert session_of(session_id).status == "running" and not RunLease.objects.exists()
    assert peers.relay() == 1
    assert [path for path, _ in peers.requests] == ["start"]


def test_a_lost_hint_costs_a_sweep(world: World, peers: Peers, crew: Crew) -> None:
    """F-1, R-213, R-238."""
    world.started(crew(finishing()))
    world.relay_hints = 0
    world.sweep()
    world.commit()
    assert world.relay_hints == 1
    peers.settle()
    before = world.relay_hints
    world.sweep()
    world.commit()
    assert world.relay_hints == before


def test_a_start_whose_answer_was_lost_is_repeated_and_begins_one_child(world: World, peers: Peers, crew: Crew) -> None:
    """R-199, R-359, F-7: whether the peer's run is live, suspended or over when the start comes again."""
    helper = ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    peers.lose_answers = True
    peers.relay()
    assert child_of(session_id).state == "starting" and len(at_peer()) == 1
    world.drain()
    world.tick(seconds=5)
    peers.lose_answers = False
    peers.relay()
    assert child_of(session_id).state == "running"
    assert len(at_peer()) == 1 and len(peers.asked("start")) == 2


def test_a_child_is_bound_to_a_delegation_that_nobody_can_work_out(world: World, peers: Peers, crew: Crew) -> None:
    """R-199, R-190, R-363: the ids of parent and call are in no name of it, and the parent's owner cannot enter it."""
    session_id = world.started(crew(finishing()))
    peers.relay()
    child = child_of(session_id)
    (session,) = at_peer()
    assert session.delegation_id == child.delegation_id and session.id != child.session_id
    (call_row,) = PendingCall.objects.filter(root_id=session_id, tool_call_id="d1")
    made_of = (session_id, child.session_id, call_row.id, call_row.run_id)
    assert not any(key.hex in child.delegation_id or str(key) in child.delegation_id for key in made_of)
    for name in (session.id, child.session_id):
        with pytest.raises(NotFound):
            world.send(name, "hello")
    assert session_of(session.id).owner == DELEGATE.id


def test_the_end_of_the_child_stands_directly_before_the_end_of_its_call(
    world: World, peers: Peers, crew: Crew
) -> None:
    """R-205, R-515."""
    session_id = world.started(crew(finishing(ok=True)))
    peers.settle()
    (started,) = events(session_id, "subagent_start")
    assert started["childSessionId"] == str(stand_in(session_id).id) and started["childAgentType"] == "helper"
    types = [event["type"] for event in events(session_id)]
    at = types.index("subagent_end")
    assert types[at + 1] == "tool_end"
    assert events(session_id, "subagent_end")[0]["status"] == "completed"


def test_a_child_that_ends_without_output_gives_an_explicit_null(world: World, peers: Peers, crew: Crew) -> None:
    """R-211."""
    model = ScriptedModel([call("subagent__helper", "d1", task="x")], ["done"])
    world.started(crew(ScriptedModel(["no output"]), parent=model))
    peers.settle()
    assert model.results_seen() == {"d1": "null"}


def test_a_child_that_failed_is_a_failed_result_with_its_code(world: World, peers: Peers, crew: Crew) -> None:
    """R-211: the parent goes on."""
    session_id = world.started(crew(ScriptedModel([call("nothing")]), max_steps=1))
    peers.settle()
    assert results(session_id)["d1"]["errorCode"] == "tool_execution_failed"
    ended = [event for event in events(session_id, "tool_end") if event["toolCallId"] == "d1"]
    assert ended[0]["cause"] == "framework_max_steps_exceeded"
    assert session_of(session_id).status == "idle"


def test_an_output_that_does_not_fit_the_declared_schema_is_no_result(world: World, peers: Peers, crew: Crew) -> None:
    """R-015: what a peer says is judged here too; the control is an output that fits."""
    schema = {"type": "object", "required": ["answer"]}
    wrong = world.started(crew(finishing(guess=1), declared={"output_schema": schema}))
    peers.settle()
    assert results(wrong)["d1"]["errorCode"] == "tool_execution_failed"


def test_an_output_that_fits_the_declared_schema_is_the_result(world: World, peers: Peers, crew: Crew) -> None:
    """R-015: the control of the test above."""
    schema = {"type": "object", "required": ["answer"]}
    right = world.started(crew(finishing(answer=1), declared={"output_schema": schema}))
    peers.settle()
    assert results(right)["d1"]["value"] == {"answer": 1}


def test_two_remote_children_that_end_at_once_cause_one_continuation(
    world: World, peers: Peers, agent: AgentMaker
) -> None:
    """R-209, B-15."""
    for name in ("left", "right"):
        agent(finishing(side=name), name=name, output_schema={"type": "object"})
    model = ScriptedModel([call("subagent__left", "l", task="x"), call("subagent__right", "r", task="y")], ["done"])
    session_id = world.started(agent(model, sub_agents=[remote("left"), remote("right")]))
    peers.settle()
    assert model.results_seen() == {"l": '{"side":"left"}', "r": '{"side":"right"}'}
    assert model.asked == 2 and session_of(session_id).status == "idle"


def test_the_barrier_of_the_parent_holds_while_the_peer_computes(world: World, peers: Peers, crew: Crew) -> None:
    """Q-24: working while the peer is, waiting once a call of it waits for somebody, finished at the end."""
    helper = ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    run_id = current_run(session_id).id
    assert settled_for(run_id) is Settled.WORKING
    peers.settle()
    assert settled_for(run_id) is Settled.WAITING
    world.submit(session_id, "c1", result="Bern")
    peers.settle()
    assert settled_for(run_id) is Settled.FINISHED


def test_a_reading_without_news_is_repeated_with_growing_pauses(world: World, peers: Peers, crew: Crew) -> None:
    """R-213: due times on the row; at most fifteen seconds apart, and news brings them near again."""
    helper = ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    pauses = []
    for _ in range(3):
        world.now = child_of(session_id).next_attempt_at
        peers.relay()
        pauses.append((child_of(session_id).next_attempt_at - world.now).total_seconds())
    assert pauses == [8, 15, 15]
    world.submit(session_id, "c1", result="Bern")
    peers.relay()
    assert (child_of(session_id).next_attempt_at - world.now).total_seconds() == 1


def test_an_older_reading_changes_nothing(world: World, peers: Peers, crew: Crew) -> None:
    """F-7: the peer's place in its stream orders readings, however late a worker records one."""
    helper = ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])
    session_id = world.started(crew(helper, tools=[locate]))
    peers.settle()
    before = session_of(session_id).stream_sequence
    older = {"status": "running", "runStatus": "running", "streamSequence": 1, "pendingCalls": []}
    world.tick(seconds=15)
    peers.meet("status", older)
    peers.relay()
    assert len(peers.asked("status")) > 1 and session_of(session_id).stream_sequence == before


def test_two_workers_on_one_errand_do_it_once(world: World, peers: Peers, crew: Crew) -> None:
    """F-7: whoever moves the due time has the errand."""
    world.started(crew(finishing()))
    peers.meet("start", lambda: peers.relay())
    peers.relay()
    assert len(peers.asked("start")) == 1 and len(at_peer()) == 1


def test_a_peer_may_delegate_in_its_turn(world: World, peers: Peers, agent: AgentMaker) -> None:
    """R-212, R-190, B-14: a call two servers away is answered at the root, and each level climbs by its child's end."""
    deepest = ScriptedModel([call("locate", "c1")], [call("__finish__", city="Bern")])
    agent(deepest, name="deepest", tools=[locate], output_schema={"type": "object"})
    middle = ScriptedModel([call("subagent__deepest", "m1", task="ask")], [call("__finish__", passed="on")])
    agent(middle, name="middle", sub_agents=[remote("deepest")], output_schema={"type": "object"})
    top = ScriptedModel([call("subagent__middle", "t1", task="ask")], ["done"])
    session_id = world.started(agent(top, sub_agents=[remote("middle")]))
    peers.settle()
    assert world.submit(session_id, "c1", result="Bern")["continuation"]["kind"] == "deferred"
    peers.settle()
    assert deepest.results_seen() == {"c1": "Bern"}
    assert middle.results_seen() == {"m1": '{"city":"Bern"}'} and top.results_seen() == {"t1": '{"passed":"on"}'}


def test_the_credentials_are_asked_for_anew_and_stand_in_no_row(
    world: World, peers: Peers, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    """R-389, R-397: the declaration holds them; rows, events and logs do not."""
    given = iter(["first-secret", "second-secret"])
    headers = {"headers": lambda: {"Authorization": f"Bearer {next(given, 'third-secret')}"}}
    session_id = world.started(crew(finishing(), declared=headers))
    caplog.set_level("DEBUG")
    peers.meet("start", PeerUnreachable("ConnectError"))
    peers.relay()
    world.tick(seconds=1)
    peers.relay()
    sent = [address.headers["Authorization"] for address in peers.addresses]
    assert sent == ["Bearer first-secret", "Bearer second-secret"]
    assert {address.url for address in peers.addresses} == {URL}
    assert "secret" not in repr(peers.addresses) + caplog.text
    rows = [
        str(vars(row)) for row in (*Session.objects.all(), child_of(session_id), *session_of(session_id).events.all())
    ]
    assert "secret" not in "".join(rows)


def test_headers_that_cannot_be_had_are_silence_and_not_an_end(world: World, peers: Peers, crew: Crew) -> None:
    """R-202: a function that raises is tried again."""
    tries: list[int] = []

    def headers() -> dict[str, str]:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no vault")
        return {}

    session_id = world.started(crew(finishing(), declared={"headers": headers}))
    peers.relay()
    assert child_of(session_id).state == "starting" and child_of(session_id).last_error == "no credentials"
    world.tick(seconds=1)
    peers.relay()
    assert child_of(session_id).state == "running"


def test_a_start_that_the_peer_refuses_fails_the_call_at_once(world: World, peers: Peers, crew: Crew) -> None:
    """R-202: typed and final; nothing began, so nothing is owed."""
    session_id = world.started(crew(finishing()))
    peers.meet("start", refused(404, "NOT_FOUND"))
    peers.settle()
    (ended,) = [event for event in events(session_id, "tool_end") if event["toolCallId"] == "d1"]
    assert (ended["errorCode"], ended["cause"]) == ("framework_subagent_lost", "refused:NOT_FOUND")
    assert session_of(session_id).status == "idle" and peers.asked("abort") == []
