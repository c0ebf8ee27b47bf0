"""Missing and foreign look alike, byte for byte, at every route (F-8, R-075, R-394, R-365)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.http import HttpResponse

from helix.models import Session
from tests.api.conftest import Door, body_of
from tests.kit.world import World

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


def test_lists_hold_nothing_foreign(owner: Door, stranger: Door, operator: Door, waiting: UUID) -> None:
    """R-398."""
    listed = [len(body_of(door.get("sessions"))["sessions"]) for door in (owner, stranger, operator)]
    assert listed == [1, 0, 1]
