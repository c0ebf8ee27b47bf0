"""What a body may be: its size, its type, its shape and its characters (5.J, 5.K)."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from pytest_django.fixtures import Settings

from helix.agents import client_tool
from helix.models import PendingCall, Session
from helix.operations.bodies import LONGEST_LIFE_MS
from tests.api.conftest import Door, body_of, locate
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, session_of

pytestmark = pytest.mark.django_db

LIMIT = 100
FIXED = "The request is not valid."


@pytest.fixture
def free(world: World, agent: AgentMaker) -> UUID:
    """A conversation whose call ``c1`` takes any JSON."""
    anything = client_tool("anything", description="Anything.", input_schema={"type": "object"})
    return world.started(agent(ScriptedModel([call("anything", "c1")], ["ok"]), tools=[anything]))


def submit(door: Door, session_id: UUID, text: str | bytes, **more: Any) -> tuple[int, dict[str, Any]]:
    response = door.raw(f"chat/{session_id}/submit-tool-result", text, **more)
    return response.status_code, body_of(response)


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "accepted"),
    [
        ("x" * (LIMIT - 3), True),
        ("x" * (LIMIT - 2), True),
        ("x" * (LIMIT - 1), False),
        ("é" * ((LIMIT - 2) // 2), True),
        ("é" * (LIMIT // 2), False),
    ],
    ids=["one below", "at the limit", "one above", "two-byte characters at the limit", "two-byte characters above"],
)
def test_the_result_is_counted_exactly(
    owner: Door, free: UUID, settings: Settings, result: str, accepted: bool
) -> None:
    """R-290, R-301: UTF-8 bytes of the compact JSON, quotes included."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    status, _ = submit(owner, free, json.dumps({"toolCallId": "c1", "result": result}, ensure_ascii=False))
    assert (status == 200) is accepted


def test_white_space_of_the_sender_is_not_counted(owner: Door, free: UUID, settings: Settings) -> None:
    """R-290: as this server writes it."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    text = json.dumps({"toolCallId": "c1", "result": list(range(40))}, indent=1)
    assert len(text) > 2 * LIMIT
    refused = submit(owner, free, text)
    assert refused[1]["sizeBytes"] == len(json.dumps(list(range(40)), separators=(",", ":")))
    assert submit(owner, free, json.dumps({"toolCallId": "c1", "result": [1, 2]}, indent=30))[0] == 200


def test_a_smaller_result_is_accepted_after_a_refusal(owner: Door, free: UUID, settings: Settings) -> None:
    """R-292: not retryable as it is, and the call stays pending."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    status, body = submit(owner, free, json.dumps({"toolCallId": "c1", "result": "x" * LIMIT}))
    assert (status, body["code"], body["retryable"]) == (413, "validation_payload_too_large", False)
    assert submit(owner, free, '{"toolCallId":"c1","result":1}')[0] == 200


def test_an_unreadable_limit_is_the_default_and_never_none(owner: Door, free: UUID, settings: Settings) -> None:
    """R-291."""
    settings.HELIX_MAX_RESULT_BYTES = "lots"
    status, body = submit(owner, free, json.dumps({"toolCallId": "c1", "result": "x" * 1_048_576}))
    assert (status, body["limitBytes"]) == (413, 1_048_576)


def test_a_declared_length_over_the_cap_is_refused_unread(owner: Door, free: UUID, settings: Settings) -> None:
    """R-302, R-304: the body itself would have been fine."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    status, body = submit(owner, free, '{"toolCallId":"c1","result":1}', CONTENT_LENGTH=str(4 * LIMIT + 1))
    assert (status, body["cause"], body["sizeBytes"]) == (413, "request_body", 4 * LIMIT + 1)


def test_a_body_without_a_length_is_counted(owner: Door, free: UUID, settings: Settings) -> None:
    """R-296, R-293: a WSGI server that ends the stream itself; the size is not known."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT

    def sent(text: str) -> tuple[int, dict[str, Any]]:
        stream = {"wsgi.input": io.BytesIO(text.encode()), "wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
        return submit(owner, free, text, **stream)

    padding = " " * (4 * LIMIT - len('{"toolCallId":"c1","result":1}'))
    status, body = sent('{"toolCallId":"c1","result":1} ' + padding)
    assert (status, body["cause"]) == (413, "request_body") and "sizeBytes" not in body
    assert sent('{"toolCallId":"c1","result":1}' + padding)[0] == 200


def test_other_routes_have_a_cap_of_their_own(owner: Door, free: UUID, settings: Settings) -> None:
    """R-295."""
    settings.HELIX_MAX_CHAT_BODY_BYTES = LIMIT
    refused = owner.post(f"sessions/{free}/messages", {"message": "x" * LIMIT})
    assert (refused.status_code, body_of(refused)["limitBytes"]) == (413, LIMIT)
    assert owner.post(f"sessions/{free}/messages", {"message": "x", "abandonPending": True}).status_code == 200


# -- type and shape ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "text/json", ""])
def test_another_content_type_is_refused(owner: Door, free: UUID, content_type: str) -> None:
    """R-369."""
    status, body = submit(owner, free, '{"toolCallId":"c1","result":1}', content_type=content_type)
    assert (status, body["code"], body["cause"]) == (415, "validation_error", "content_type")


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_json_however_it_is_spelled(owner: Door, free: UUID, content_type: str) -> None:
    assert submit(owner, free, '{"toolCallId":"c1","result":1}', content_type=content_type)[0] == 200


REFUSED = {
    "no json": "{",
    "empty": "",
    "a list": "[]",
    "a duplicate key": '{"toolCallId":"c1","result":1,"result":2}',
    "no call": '{"result":1}',
    "an empty id": '{"toolCallId":"","result":1}',
    "a long id": json.dumps({"toolCallId": "c" * 257, "result": 1}),
    "an id of another type": '{"toolCallId":1,"result":1}',
    "neither result nor error": '{"toolCallId":"c1"}',
    "both": '{"toolCallId":"c1","result":null,"error":"no"}',
    "an error of another type": '{"toolCallId":"c1","error":null}',
    "a long error": json.dumps({"toolCallId": "c1", "error": "é" * 4097}),
    "another kind": '{"toolCallId":"c1","kind":"wish","result":1}',
    "a verdict without approved": '{"toolCallId":"c1","kind":"approval-response","approvalId":"a"}',
    "NaN": '{"toolCallId":"c1","result":NaN}',
    "infinity": '{"toolCallId":"c1","result":-Infinity}',
    "overflow": '{"toolCallId":"c1","result":1e400}',
    "U+0000": '{"toolCallId":"c1","result":"\\u0000"}',
    "U+0000 in a key": '{"toolCallId":"c1","result":{"\\u0000":1}}',
    "a lone surrogate": '{"toolCallId":"c1","result":"\\ud800"}',
    "no UTF-8": b'{"toolCallId":"c1","result":"\xff"}',
    "too deep": '{"toolCallId":"c1","result":' + "[" * 64 + "]" * 64 + "}",
    "far too deep": '{"toolCallId":"c1","result":' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_a_malformed_submit_meets_one_fixed_text(owner: Door, free: UUID, text: str | bytes) -> None:
    """R-061, R-300, R-315, R-322, R-324, R-321."""
    status, body = submit(owner, free, text)
    assert (status, body) == (400, {"error": FIXED, "code": "validation_error", "retryable": False})
    assert PendingCall.objects.get().state == "awaiting"


def test_verbose_mode_says_what_is_wrong(owner: Door, free: UUID, settings: Settings) -> None:
    """R-316."""
    settings.HELIX_VERBOSE_VALIDATION_ERRORS = True
    assert "toolCallId" in submit(owner, free, '{"result":1}')[1]["details"]


@pytest.mark.parametrize("verbose", [False, True])
def test_the_schema_is_revealed_in_verbose_mode_only(
    owner: Door, waiting: UUID, settings: Settings, verbose: bool
) -> None:
    """R-317, R-318."""
    settings.HELIX_VERBOSE_VALIDATION_ERRORS = verbose
    _, body = submit(owner, waiting, '{"toolCallId":"c1","result":{"city":1}}')
    assert body["code"] == "INVALID_RESULT"
    assert ("issues" in body) is verbose


def test_unknown_fields_are_ignored(owner: Door, free: UUID) -> None:
    """R-325, R-085: no field names a role, a tool or a status."""
    body = {"toolCallId": "c1", "result": 1, "toolName": "pay", "role": "operator", "status": "consumed", "runTo": "x"}
    assert submit(owner, free, json.dumps(body))[0] == 200


@pytest.mark.parametrize(
    "message",
    [
        None,
        "",
        " \n\t\u3000",
        [],
        7,
        {},
        ["hello"],
        [{"type": "text"}],
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": "  "}],
        [{"type": "image", "text": "x"}],
        [{"type": "file", "url": "http://169.254.169.254/", "mediaType": "image/png"}],
        [{"type": "file", "url": "file:///etc/passwd", "mediaType": "text/plain"}],
        [{"type": "file", "url": "https://example.org/a.png"}],
        [{"type": "file", "url": "https://[", "mediaType": "image/png"}],
    ],
)
def test_a_message_says_something(owner: Door, world: World, agent: AgentMaker, message: Any) -> None:
    """R-315. Control: a text, and a file over https."""
    name = agent(ScriptedModel(["ok"]), tools=[locate]).name
    assert owner.post("start", {"agentType": name, "message": message}).status_code == 400
    file = {"type": "file", "url": "https://example.org/a.png", "mediaType": "image/png"}
    assert owner.post("start", {"agentType": name, "message": [file]}).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"agentType": 1},
        {"state": []},
        {"metadata": "x"},
        {"tags": "blue"},
        {"tags": [1]},
        {"tags": [""]},
        {"tags": ["t"] * 65},
        {"clientId": ""},
        {"expiresAfterMs": 0},
        {"expiresAfterMs": True},
        {"expiresAfterMs": 1.5},
        {"expiresAfterMs": "1000"},
        {"expiresAfterMs": LONGEST_LIFE_MS + 1},
    ],
)
def test_a_session_is_created_from_the_right_types_only(
    owner: Door, world: World, agent: AgentMaker, wrong: dict[str, Any]
) -> None:
    """R-315. Control: without the wrong field."""
    good = {"agentType": agent(ScriptedModel(["ok"])).name}
    assert owner.post("sessions", {**good, **wrong}).status_code == 400
    assert owner.post("sessions", good).status_code == 201


@pytest.mark.parametrize("life", [1, LONGEST_LIFE_MS])
def test_a_conversation_is_given_its_life_in_milliseconds(
    owner: Door, world: World, agent: AgentMaker, life: int
) -> None:
    """R-048: `sessions` and `start` alike. Control: without the field it lives for ever."""
    good = {"agentType": agent(ScriptedModel(["ok"])).name}
    made = [
        owner.post("sessions", {**good, "expiresAfterMs": life}),
        owner.post("start", {**good, "message": "hi", "expiresAfterMs": life}),
        owner.post("sessions", {**good, "expiresAfterMs": None}),
    ]
    lives = [session_of(UUID(body_of(answer)["sessionId"])).expires_at for answer in made]
    until = world.now + timedelta(milliseconds=life)
    assert lives == [until, until, None]


@pytest.mark.parametrize("alias", [".", "..", "a/b", "a?b", "a#b", "a\nb", "a\x7fb", "a\x85b"])
def test_an_alias_fits_into_one_segment_of_a_path(owner: Door, world: World, agent: AgentMaker, alias: str) -> None:
    """R-365: under another one the conversation would begin, and no route could name it."""
    name = agent(ScriptedModel(["ok"])).name
    for path, field in (("sessions", "clientId"), ("start", "sessionId")):
        body = {"agentType": name, "message": "hello", field: alias}
        refused = owner.post(path, body)
        assert (refused.status_code, body_of(refused)["code"]) == (400, "validation_error")
    assert not Session.objects.exists()
    # Control: whatever can be escaped is a name.
    odd = "...a b%2F:é"
    assert owner.post("sessions", {"agentType": name, "clientId": odd}).status_code == 201
    assert owner.get(f"sessions/{quote(odd, safe='')}").status_code == 200


def test_a_name_in_the_path_obeys_the_bounds_of_one_in_a_body(owner: Door, free: UUID) -> None:
    """R-300, R-324: PostgreSQL would fail on U+0000, late."""
    for name in ("a%00b", "s" * 257):
        assert owner.get(f"sessions/{name}").status_code == 400
        assert owner.post(f"sessions/{free}/calls/{name}/claim", {"claimant": "tab"}).status_code == 400
    assert owner.get(f"sessions/{'s' * 256}").status_code == 404


def test_a_stop_reason_is_bounded(owner: Door, free: UUID) -> None:
    named = {"sessionId": str(free)}
    assert owner.post("interrupt", {**named, "reason": "é" * 4097}).status_code == 400
    assert owner.post("interrupt", {**named, "reason": "é" * 4096}).status_code == 200


def test_state_over_its_limit_is_refused(owner: Door, world: World, agent: AgentMaker, settings: Settings) -> None:
    """R-297, R-346."""
    settings.HELIX_MAX_STATE_BYTES = 20
    name = agent(ScriptedModel(["ok"])).name
    refused = owner.post("sessions", {"agentType": name, "state": {"a": "x" * 20}})
    assert (refused.status_code, body_of(refused)["code"]) == (413, "state_size_exceeded")
    assert owner.post("sessions", {"agentType": name, "state": {"a": "x"}}).status_code == 201
