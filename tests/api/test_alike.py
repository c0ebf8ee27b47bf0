"""Missing and foreign look alike, byte for byte, at every route (F-8, R-075, R-394, R-365)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from helix import selectors
from helix.agents import lookup
from helix.errors import UnknownToolCall
from helix.models import Session
from helix.principals import Principal
from tests.api.conftest import Door, body_of
from tests.kit.world import OPERATOR, REVIEWER, STRANGER, World, session_of

pytestmark = pytest.mark.django_db

Ask = Callable[[Door, str], HttpResponse]
ASKING: dict[str, Ask] = {
    "submit by path": lambda door, name: door.post(
        f"chat/{name}/submit-tool-result", {"toolCallId": "c1", "result": {"city": "Bern"}}
    ),
    "submit by body": lambda door, name: door.post(
        "submit-tool-result", {"sessionId": name, "toolCallId": "c1", "result": {"city": "Bern"}}
    ),
    "resume": lambda door, name: door.post("resume", {"sessionId": name}),
    "resume with message": lambda door, name: door.post("resume", {"sessionId": name, "message": "x"}),
    "resume from checkpoint": lambda door, name: door.post(
        "resume", {"sessionId": name, "mode": "from_checkpoint", "checkpointId": "x"}
    ),
    "retry": lambda door, name: door.post("retry", {"sessionId": name}),
    "interrupt": lambda door, name: door.post("interrupt", {"sessionId": name}),
    "abort": lambda door, name: door.post("abort", {"sessionId": name}),
    "messages": lambda door, name: door.post(f"sessions/{name}/messages", {"message": "x"}),
    "claim": lambda door, name: door.post(f"sessions/{name}/calls/c1/claim", {"claimant": "tab"}),
    "status": lambda door, name: door.get("status", sessionId=name),
    "snapshot": lambda door, name: door.get(f"sessions/{name}"),
    "events": lambda door, name: door.get(f"sessions/{name}/events"),
    "calls": lambda door, name: door.get(f"sessions/{name}/calls"),
    "checkpoints": lambda door, name: door.get(f"sessions/{name}/checkpoints"),
}


@pytest.fixture(params=ASKING.values(), ids=ASKING.keys())
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


def test_a_strangers_answer_does_not_tell_whether_the_session_exists(
    stranger: Door, nobody: Door, waiting: UUID, ask: Ask
) -> None:
    foreign, missing = ask(stranger, str(waiting)), ask(stranger, str(uuid4()))
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content and foreign.headers == missing.headers
    assert "reason" not in body_of(foreign)
    assert ask(nobody, str(waiting)).content == ask(nobody, str(uuid4())).content


def test_an_alias_is_its_owners_alone(owner: Door, stranger: Door, waiting: UUID, ask: Ask) -> None:
    """R-365. Control: the owner is not told that the alias is missing."""
    Session.objects.filter(pk=waiting).update(client_id="desk")
    assert ask(stranger, "desk").content == ask(stranger, "elsewhere").content
    assert body_of(ask(owner, "desk")).get("error") != body_of(ask(stranger, "desk"))["error"]


def test_a_call_that_is_out_of_reach_is_as_unknown_as_a_random_one(
    owner: Door, stranger: Door, world: World, waiting: UUID
) -> None:
    """B-26: those with rights get a reason, a stranger none."""

    def submit(door: Door, call: str) -> HttpResponse:
        return door.post("submit-tool-result", {"sessionId": str(waiting), "toolCallId": call, "result": 1})

    assert submit(stranger, "c1").content == submit(stranger, "c2").content
    assert body_of(submit(owner, "c2"))["reason"] == "never_existed"


def test_looking_for_a_call_asks_as_much_about_a_foreign_session_as_about_a_missing_one(waiting: UUID) -> None:
    """R-075: neither the body nor the work that was done tells them apart; by id, by alias, with a bound token."""
    Session.objects.filter(pk=waiting).update(client_id="desk")
    bound = Principal(id="stranger", session_id="elsewhere")
    for principal in (STRANGER, REVIEWER, bound):
        for foreign, missing in ((str(waiting), str(uuid4())), ("desk", "no-desk")):
            costs = []
            for name in (foreign, missing):
                with CaptureQueriesContext(connection) as captured, pytest.raises(UnknownToolCall) as refused:
                    selectors.call_for(principal, name, "c1")
                assert "reason" not in refused.value.fields
                costs.append(len(captured))
            assert costs[0] == costs[1]


def test_a_call_is_reached_by_the_same_names_as_its_session(world: World, waiting: UUID) -> None:
    """R-365, R-385: an operator may name an owner's alias; a bound token reaches its own session's calls only."""
    Session.objects.filter(pk=waiting).update(client_id="desk")
    other = world.create(lookup(session_of(waiting).agent_type))
    assert selectors.call_for(OPERATOR, "desk", "c1").root_id == waiting
    assert selectors.call_for(Principal(id="owner", session_id="desk"), str(waiting), "c1").root_id == waiting
    with pytest.raises(UnknownToolCall) as refused:
        selectors.call_for(Principal(id="owner", session_id=str(other)), str(waiting), "c1")
    assert "reason" not in refused.value.fields


def test_lists_hold_nothing_foreign(owner: Door, stranger: Door, operator: Door, waiting: UUID) -> None:
    """R-398."""
    listed = [len(body_of(door.get("sessions"))["sessions"]) for door in (owner, stranger, operator)]
    assert listed == [1, 0, 1]
