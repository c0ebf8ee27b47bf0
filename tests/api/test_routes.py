"""Every route of 5.L once, as its owner sees it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix import selectors
from helix.agents import Agent
from helix.loop import ModelError
from helix.models import CallAudit, PendingCall, Session
from helix.operations.bodies import cursor_of
from helix.selectors import SessionFilters
from tests.api.conftest import CANARY, Door, body_of, locate, look_up
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import OWNER, World, call_named, current_run, pending, session_of

pytestmark = pytest.mark.django_db

Talker = Callable[[], Agent]
ANSWER = {"toolCallId": "c1", "result": {"city": "Bern"}}


# -- entries -----------------------------------------------------------------------------------------------------------


def test_start_answers_under_the_name_that_the_caller_chose(owner: Door, world: World, talker: Talker) -> None:
    """R-359, R-365: a repeat while the run is live gives the same answer."""
    request = {"agentType": talker().name, "message": "hello", "sessionId": "desk-7"}
    first, again = owner.post("start", request), owner.post("start", request)
    assert first.status_code == 200 and body_of(first) == body_of(again)
    assert (body_of(first)["sessionId"], body_of(first)["streamId"]) == ("desk-7", "desk-7")
    assert body_of(first)["runId"] == str(Session.objects.get(client_id="desk-7").current_run_id)
    world.drain()
    assert body_of(owner.post("start", request))["code"] == "ALREADY_COMPLETED"


def test_start_without_a_name_answers_with_a_minted_one(owner: Door, world: World, talker: Talker) -> None:
    """R-386."""
    started = body_of(owner.post("start", {"agentType": talker().name, "message": [{"type": "text", "text": "hi"}]}))
    assert Session.objects.filter(pk=started["sessionId"], owner="owner").exists()


def test_start_of_an_unknown_agent_is_not_found(owner: Door, world: World) -> None:
    """R-359."""
    refused = owner.post("start", {"agentType": "nobody-knows", "message": "hello"})
    assert (refused.status_code, body_of(refused)["code"]) == (404, "NOT_FOUND")


def test_a_created_session_takes_its_first_message(owner: Door, world: World, talker: Talker) -> None:
    created = owner.post(
        "sessions",
        {"agentType": talker().name, "clientId": "desk", "tags": ["blue"], "metadata": {"a": 1}, "state": {"b": 2}},
    )
    assert created.status_code == 201
    session = session_of(UUID(body_of(created)["sessionId"]))
    assert (session.client_id, session.tags, session.metadata, session.state) == ("desk", ["blue"], {"a": 1}, {"b": 2})
    sent = owner.post("sessions/desk/messages", {"message": "hello", "clientMessageId": "m1"})
    repeated = owner.post("sessions/desk/messages", {"message": "hello", "clientMessageId": "m1"})
    assert sent.status_code == 200 and body_of(sent) == body_of(repeated)
    assert set(body_of(sent)) == {"runId", "startSequence"}
    world.drain()
    assert body_of(owner.get("sessions/desk"))["status"] == "idle"


def test_a_message_may_give_the_open_calls_up(owner: Door, world: World, waiting: UUID) -> None:
    """R-460, R-463."""
    refused = owner.post(f"sessions/{waiting}/messages", {"message": "never mind"})
    assert (refused.status_code, body_of(refused)["code"]) == (409, "state_not_resumable")
    assert body_of(refused)["toolCallIds"] == ["c1"]
    assert owner.post(f"sessions/{waiting}/messages", {"message": "go", "abandonPending": True}).status_code == 200
    world.drain()
    assert body_of(owner.get(f"sessions/{waiting}"))["status"] == "idle"


def test_resume_adopts_the_continuation_that_the_last_answer_caused(owner: Door, waiting: UUID) -> None:
    """R-123."""
    stored = body_of(owner.post(f"chat/{waiting}/submit-tool-result", ANSWER))
    resumed = owner.post("resume", {"sessionId": str(waiting)})
    assert resumed.status_code == 200
    assert body_of(resumed)["runId"] == stored["continuation"]["runId"]


def test_resume_with_a_message_needs_no_mode(owner: Door, world: World, waiting: UUID) -> None:
    """R-460."""
    named = {"sessionId": str(waiting), "message": "go on", "abandonPending": True}
    assert owner.post("resume", named).status_code == 200
    world.drain()
    assert session_of(waiting).status == "idle"


def test_resume_from_a_checkpoint_goes_back_to_it(owner: Door, world: World, talker: Talker) -> None:
    """R-103, R-464, R-566: the id comes from the list of checkpoints."""
    session_id = world.started(talker())
    points = body_of(owner.get(f"sessions/{session_id}/checkpoints"))["checkpoints"]
    assert points
    named = {"sessionId": str(session_id), "mode": "from_checkpoint"}
    assert owner.post("resume", {**named, "checkpointId": points[0]["checkpointId"]}).status_code == 200
    world.drain()
    unknown = owner.post("resume", {**named, "checkpointId": "elsewhere"})
    assert (unknown.status_code, body_of(unknown)["code"]) == (404, "NOT_FOUND")
    assert owner.post("resume", named).status_code == 400


def test_retry_runs_a_failed_turn_again(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-491."""
    broken = ModelError("no such model")
    session_id = world.started(agent(ScriptedModel(broken, ["Good day."])))
    status = body_of(owner.get("status", sessionId=str(session_id)))
    assert (status["status"], status["errorDetail"]["code"]) == ("failed", "provider_error")
    assert owner.post("retry", {"sessionId": str(session_id)}).status_code == 200
    world.drain()
    assert session_of(session_id).status == "idle"


@pytest.mark.parametrize(("route", "status"), [("interrupt", "interrupted"), ("abort", "failed")])
def test_a_stop_says_what_came_of_it(owner: Door, waiting: UUID, route: str, status: str) -> None:
    """R-364, R-411, R-424."""
    named = {"sessionId": str(waiting), "reason": "enough"}
    stopped = body_of(owner.post(route, named))
    assert stopped == {"runId": str(current_run(waiting).id), "stop": route, "outcome": "resolved"}
    assert session_of(waiting).status == status
    assert body_of(owner.post(route, named))["outcome"] == "nothing_to_stop"


# -- answers -----------------------------------------------------------------------------------------------------------


def test_both_submit_routes_store_the_same_answer(owner: Door, waiting: UUID) -> None:
    """R-335, R-336, R-066: the second is a repeat."""
    stored = owner.post(f"chat/{waiting}/submit-tool-result", ANSWER)
    assert stored.status_code == 200
    assert (body_of(stored)["status"], body_of(stored)["continuation"]["kind"]) == ("accepted", "new_run")
    repeated = owner.post("submit-tool-result", {"sessionId": str(waiting), **ANSWER})
    assert body_of(repeated)["status"] == "already_completed" and "continuation" in body_of(repeated)
    assert CallAudit.objects.get().door == "http"


def test_a_verdict_goes_through_the_same_route(owner: Door, reviewed: UUID) -> None:
    """R-163, R-164, R-179."""
    (shown,) = body_of(owner.get("status", sessionId=str(reviewed)))["pendingCalls"]
    verdict = {"kind": "approval-response", "toolCallId": "p1", "approvalId": shown["approvalId"], "approved": True}
    changed = owner.post(f"chat/{reviewed}/submit-tool-result", {**verdict, "argumentsDigest": "0" * 64})
    assert (changed.status_code, body_of(changed)["code"]) == (409, "state_arguments_changed")
    decided = owner.post(
        f"chat/{reviewed}/submit-tool-result", {**verdict, "argumentsDigest": shown["argumentsDigest"]}
    )
    assert body_of(decided)["status"] == "accepted"


def test_an_operator_gives_up_a_stuck_call_with_three_fields(operator: Door, world: World, waiting: UUID) -> None:
    """R-665, R-666."""
    given_up = {"sessionId": str(waiting), "toolCallId": "c1", "error": "given up by the operator"}
    assert body_of(operator.post("submit-tool-result", given_up))["status"] == "accepted"
    world.drain()
    assert session_of(waiting).status == "idle"


def test_one_claimant_wins_for_good(owner: Door, waiting: UUID) -> None:
    """I-20: whoever repeats its claim has lost too."""
    route = f"sessions/{waiting}/calls/c1/claim"
    claims = [body_of(owner.post(route, {"claimant": name}))["claimed"] for name in ("tab-1", "tab-2", "tab-1")]
    assert claims == [True, False, False]


def test_a_call_id_with_a_slash_can_be_claimed(owner: Door, world: World, agent: AgentMaker) -> None:
    session_id = world.started(agent(ScriptedModel([call("locate", "a/b")], ["ok"]), tools=[locate]))
    assert body_of(owner.post(f"sessions/{session_id}/calls/a/b/claim", {"claimant": "tab"})) == {"claimed": True}


# -- reads -------------------------------------------------------------------------------------------------------------


def test_status_and_snapshot_agree_about_a_waiting_conversation(owner: Door, waiting: UUID) -> None:
    """R-361, R-519, R-528."""
    status = body_of(owner.get("status", sessionId=str(waiting)))
    snapshot = body_of(owner.get(f"sessions/{waiting}"))
    assert status["awaitingClientTool"] is True and status["status"] == "awaiting_client_tool"
    assert snapshot["pendingTools"] == status["pendingCalls"]
    assert [tool["toolCallId"] for tool in snapshot["pendingTools"]] == [one.tool_call_id for one in pending(waiting)]
    assert snapshot["streamSequence"] == status["streamSequence"] == session_of(waiting).stream_sequence


def test_events_are_read_page_by_page_without_a_gap(owner: Door, waiting: UUID) -> None:
    """R-518."""
    head = session_of(waiting).stream_sequence
    seen: list[int] = []
    page = {"nextAfter": 0, "head": head}
    while page["nextAfter"] < page["head"]:
        page = body_of(owner.get(f"sessions/{waiting}/events", after=page["nextAfter"], limit=2))
        assert len(page["events"]) <= 2
        seen += [event["sequence"] for event in page["events"]]
    assert seen == list(range(1, head + 1))
    beyond = body_of(owner.get(f"sessions/{waiting}/events", after=head))
    assert beyond == {"events": [], "nextAfter": head, "head": head}


def test_a_cursor_below_the_floor_is_gone(owner: Door, waiting: UUID) -> None:
    """R-368. Control: the floor itself can be read from."""
    session = session_of(waiting)
    session.events.filter(sequence__lt=3).delete()
    Session.objects.filter(pk=waiting).update(stream_floor=3)
    gone = owner.get(f"sessions/{waiting}/events", after=1)
    assert (gone.status_code, body_of(gone)["code"], body_of(gone)["floorSequence"]) == (410, "state_cursor_too_old", 3)
    assert owner.get(f"sessions/{waiting}/events", after=2).status_code == 200


def test_calls_are_listed_by_state_with_private_ones_redacted(owner: Door, world: World, agent: AgentMaker) -> None:
    """R-395."""
    model = ScriptedModel([call("look_up", "s1", secret=CANARY), call("look_up", "s2", secret=CANARY)], ["ok"])
    session_id = world.started(agent(model, tools=[look_up]))
    first = body_of(owner.get(f"sessions/{session_id}/calls", limit=1))
    second = body_of(owner.get(f"sessions/{session_id}/calls", limit=1, cursor=first["nextCursor"]))
    shown = first["calls"] + second["calls"]
    assert [(one["toolCallId"], one["argumentsJson"]) for one in shown] == [("s1", "{}"), ("s2", "{}")]
    assert second["nextCursor"] is None
    assert body_of(owner.get(f"sessions/{session_id}/calls", state="awaiting"))["calls"] == []
    # Control: the model saw the real value; no read shows it.
    assert CANARY in "".join(model.results_seen().values())
    for path in ("", "/events", "/calls", "/checkpoints"):
        assert CANARY not in owner.get(f"sessions/{session_id}{path}").content.decode()


def test_a_page_of_sessions_stands_still_while_new_ones_begin(owner: Door, world: World, talker: Talker) -> None:
    """R-567."""
    agent = talker()
    made = []
    for _ in range(5):
        world.tick(seconds=1)
        made.append(str(world.create(agent)))
    first = body_of(owner.get("sessions", limit=3))
    world.tick(seconds=1)
    world.create(agent)
    second = body_of(owner.get("sessions", limit=3, cursor=first["nextCursor"]))
    listed = [row["sessionId"] for row in first["sessions"] + second["sessions"]]
    assert listed == made[::-1] and second["nextCursor"] is None


@pytest.mark.parametrize("tag", ["Blau", "blau", "Größe", "größe", 'a "b"', "a\\b", "%", "日本", "1", "null"])
def test_a_tag_is_found_by_exactly_its_text(owner: Door, world: World, talker: Talker, tag: str) -> None:
    """R-567: case, accents and quotes tell tags apart on both databases; a part of a tag is not the tag."""
    agent = talker()
    wanted = world.create(agent, tags=["other", tag])
    world.create(agent, tags=[tag + "x", tag.swapcase() + tag, "x" + tag])
    world.create(agent)
    assert [row["sessionId"] for row in body_of(owner.get("sessions", tag=tag))["sessions"]] == [str(wanted)]
    if tag.swapcase() != tag:
        assert body_of(owner.get("sessions", tag=tag.swapcase()))["sessions"] == []


def test_the_newest_conversations_are_read_from_an_index(world: World, talker: Talker) -> None:
    """R-567: the database sorts nothing, however many conversations one owner has."""
    world.create(talker())
    with CaptureQueriesContext(connection) as captured:
        selectors.sessions_page(OWNER, SessionFilters())
    (asked,) = captured
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # With few rows a scan is cheaper than any index: here it is only asked what could be used.
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_bitmapscan = off")
            cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(("EXPLAIN " if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN ") + asked["sql"])
        plan = "\n".join(str(line) for line in cursor.fetchall())
    assert "helix_session_newest" in plan
    assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan


def test_sessions_are_filtered(owner: Door, operator: Door, world: World, talker: Talker) -> None:
    """R-567: filters of operators are ignored for others."""
    agent = talker()
    old = world.create(agent, tags=["blue", "green"])
    world.tick(hours=1)
    new = world.create(agent, tags=["dark blue"])

    def ids(door: Door, **query: str) -> set[str]:
        return {row["sessionId"] for row in body_of(door.get("sessions", **query))["sessions"]}

    assert ids(owner) == {str(old), str(new)}
    assert ids(owner, tag="blue") == {str(old)}
    assert ids(owner, status="running") == set()
    assert ids(owner, agentType=agent.name) == {str(old), str(new)}
    assert ids(owner, createdAfter=world.now.isoformat()) == {str(new)}
    assert ids(owner, createdBefore=world.now.isoformat()) == {str(old)}
    assert ids(owner, owner="stranger") == {str(old), str(new)}
    assert ids(operator, owner="stranger") == set()
    assert ids(operator, owner="owner") == {str(old), str(new)}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("sessions", {"limit": "0"}),
        ("sessions", {"limit": "many"}),
        ("sessions", {"cursor": "bm8"}),
        ("sessions", {"cursor": "!"}),
        ("sessions", {"cursor": "ü"}),
        ("sessions", {"status": "bored"}),
        ("sessions", {"createdAfter": "2026-03-01"}),
        ("sessions", {"createdAfter": "2026-13-01T00:00:00Z"}),
        # In UTC, these are outside the years that a calendar has.
        ("sessions", {"createdAfter": "0001-01-01T00:00:00+14:00"}),
        ("sessions", {"createdBefore": "9999-12-31T23:59:59-14:00"}),
        ("sessions", {"cursor": cursor_of("0001-01-01T00:00:00+14:00", str(UUID(int=1)))}),
        ("sessions", {"cursor": cursor_of("9999-12-31T23:59:59-14:00", str(UUID(int=1)))}),
        ("sessions", {"tag": "a\x00b"}),
        ("sessions/{id}/events", {"after": "-1"}),
        ("sessions/{id}/events", {"after": str(2**63)}),
        ("sessions/{id}/events", {"after": "4000"}),
        ("sessions/{id}/events", {"after": "²"}),
        ("sessions/{id}/calls", {"state": "lost"}),
        ("sessions/{id}/checkpoints", {"cursor": "bnVsbA"}),
        ("status", {}),
        ("status", {"sessionId": "s" * 257}),
    ],
)
def test_a_query_out_of_bounds_is_refused(owner: Door, waiting: UUID, path: str, query: dict[str, str]) -> None:
    """R-315. Control: every route answers without the bad value."""
    refused = owner.get(path.format(id=waiting), **query)
    assert (refused.status_code, body_of(refused)["code"]) == (400, "validation_error")
    good = {"sessionId": str(waiting)} if path == "status" else {}
    assert owner.get(path.format(id=waiting), **good).status_code == 200


def test_a_limit_over_the_largest_page_is_the_largest_page(owner: Door, waiting: UUID) -> None:
    assert owner.get(f"sessions/{waiting}/events", limit="100000").status_code == 200


def test_reading_changes_no_row(owner: Door, waiting: UUID) -> None:
    """I-19, R-182, R-524."""
    before = (Session.objects.values().get(pk=waiting), PendingCall.objects.values().get())
    for path in ("", "/events", "/calls", "/checkpoints"):
        assert owner.get(f"sessions/{waiting}{path}").status_code == 200
    owner.get("status", sessionId=str(waiting))
    assert (Session.objects.values().get(pk=waiting), PendingCall.objects.values().get()) == before


def test_get_decides_nothing(owner: Door, reviewed: UUID) -> None:
    """R-182."""
    refused = owner.get(f"chat/{reviewed}/submit-tool-result", toolCallId="p1", approved="true")
    assert refused.status_code == 405
    assert call_named(reviewed, "pay").state == "awaiting"


def test_an_answer_never_waits_for_the_run(owner: Door, world: World, waiting: UUID) -> None:
    """B-23: nobody has worked, and the answer is there."""
    assert body_of(owner.post(f"chat/{waiting}/submit-tool-result", ANSWER))["continuation"]["kind"] == "new_run"
    assert session_of(waiting).status == "queued"


def test_a_session_that_never_was_is_not_found(owner: Door, world: World) -> None:
    assert body_of(owner.get(f"sessions/{uuid4()}"))["code"] == "NOT_FOUND"
