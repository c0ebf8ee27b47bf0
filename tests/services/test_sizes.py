"""Sizes that a service judges, whatever the door: results in UTF-8 bytes of compact JSON, state, ids, texts (5.J)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from helix import jsontext
from helix.agents import ToolContext, tool
from helix.answers import MAX_ERROR_BYTES, parse_submission
from helix.errors import PayloadTooLarge, StateTooLarge, ValidationFailed
from helix.models import Session
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, events, pending, results, session_of

pytestmark = pytest.mark.django_db

LIMIT = 100


@pytest.fixture
def waiting(world: World, agent: AgentMaker, settings: Settings) -> UUID:
    """A call that waits where a result may have 100 bytes."""
    settings.HELIX_MAX_RESULT_BYTES = LIMIT
    return world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))


def of_size(size: int, letter: str = "x") -> str:
    """A text whose compact JSON has that many UTF-8 bytes."""
    text = letter * ((size - 2) // len(letter.encode()))
    assert len(jsontext.dumps(text).encode()) == size
    return text


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["x", "é", "𝄞"])
@pytest.mark.parametrize("size", [LIMIT - 4, LIMIT])
def test_a_result_at_the_limit_is_accepted(world: World, waiting: UUID, letter: str, size: int) -> None:
    """R-290, R-301: counted in UTF-8, so a letter counts as often as it has bytes."""
    if (size - 2) % len(letter.encode()):
        size -= (size - 2) % len(letter.encode())
    assert world.submit(waiting, "c1", result=of_size(size, letter))["status"] == "accepted"


def test_a_result_over_the_limit_is_refused_before_any_row_is_read(
    world: World, waiting: UUID, django_assert_num_queries: Any
) -> None:
    """R-292, R-301: by one byte; the call stays pending and a smaller result is accepted."""
    with django_assert_num_queries(0), pytest.raises(PayloadTooLarge) as refused:
        world.submit(waiting, "c1", result=of_size(LIMIT + 1))
    assert refused.value.as_body() == {
        "error": "The result is too large.",
        "code": "validation_payload_too_large",
        "retryable": False,
        "cause": "tool_result",
        "limitBytes": LIMIT,
        "sizeBytes": LIMIT + 1,
    }
    assert [row.tool_call_id for row in pending(waiting)] == ["c1"]
    assert world.submit(waiting, "c1", result=of_size(LIMIT))["status"] == "accepted"


def test_it_is_the_compact_form_that_counts(world: World, waiting: UUID) -> None:
    """R-290: as this server writes it, whatever blanks and escapes it came with."""
    body = jsontext.loads('{ "toolCallId" : "c1",\n "result" : [ 1 ,  2 , "\\u00e9" ] }' + " " * LIMIT)
    answer: Any = parse_submission(body).answer
    assert answer.text == '[1,2,"é"]'
    assert world.answer(waiting, "c1", answer)["status"] == "accepted"


@pytest.mark.parametrize("unreadable", [None, 0, -1, "many", float("inf")])
def test_an_unreadable_limit_is_the_default_and_never_none(
    world: World, waiting: UUID, settings: Settings, unreadable: Any
) -> None:
    """R-291: one mebibyte."""
    settings.HELIX_MAX_RESULT_BYTES = unreadable
    with pytest.raises(PayloadTooLarge) as refused:
        world.submit(waiting, "c1", result=of_size(1_048_577))
    assert refused.value.fields["limitBytes"] == 1_048_576
    assert world.submit(waiting, "c1", result=of_size(1_048_576))["status"] == "accepted"


def test_siblings_do_not_compete_for_space(world: World, agent: AgentMaker, settings: Settings) -> None:
    """R-297: each answer has its own row; the limit of the state is not theirs."""
    settings.HELIX_MAX_RESULT_BYTES = settings.HELIX_MAX_STATE_BYTES = LIMIT
    model = ScriptedModel([call("locate", f"c{n}") for n in range(5)], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    for n in range(5):
        assert world.submit(session_id, f"c{n}", result=of_size(LIMIT))["status"] == "accepted"
    world.drain()
    assert len(model.results_seen()) == 5 and session_of(session_id).status == "idle"


# -- ids and texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["toolCallId", "sessionId", "runId"])
def test_an_id_has_1_to_256_characters(field: str) -> None:
    """R-300, R-301."""
    body = {"toolCallId": "c1", "result": 1}
    for good in ("x", "é" * 256):
        parse_submission({**body, field: good})
    for bad in ("", "x" * 257, 7, ["x"]):
        with pytest.raises(ValidationFailed):
            parse_submission({**body, field: bad})


def test_an_error_text_has_at_most_8192_bytes() -> None:
    """R-300, R-301: two-byte letters count twice."""
    for good in ("", "x" * MAX_ERROR_BYTES, "é" * (MAX_ERROR_BYTES // 2)):
        parse_submission({"toolCallId": "c1", "error": good})
    for bad in ("x" * (MAX_ERROR_BYTES + 1), "é" * (MAX_ERROR_BYTES // 2) + "x", 7):
        with pytest.raises(ValidationFailed):
            parse_submission({"toolCallId": "c1", "error": bad})


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_beginning_with_too_much_state_is_refused(world: World, agent: AgentMaker, settings: Settings) -> None:
    """R-297, R-346, R-466: nothing was written; without a limit, or at it, the same state is accepted."""
    declared = agent(ScriptedModel(["hello"]))
    state = {"note": of_size(LIMIT - len('{"note":}'))}
    settings.HELIX_MAX_STATE_BYTES = LIMIT - 1
    with pytest.raises(StateTooLarge) as refused:
        world.start(declared, state=state)
    assert (refused.value.fields["limitBytes"], refused.value.fields["sizeBytes"]) == (LIMIT - 1, LIMIT)
    assert not Session.objects.exists()
    settings.HELIX_MAX_STATE_BYTES = LIMIT
    world.start(declared, state=state)
    settings.HELIX_MAX_STATE_BYTES = None
    world.start(declared, state={"note": "x" * 10_000})


def test_a_body_that_writes_too_much_state_has_failed_and_the_run_goes_on(
    world: World, agent: AgentMaker, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-299: a failed result, nothing of its writes kept; the next body's smaller write is."""

    @tool
    def note(context: ToolContext, length: int) -> str:
        """Keep a note."""
        context.set_state("note", "x" * length)
        return "kept"

    settings.HELIX_MAX_STATE_BYTES = LIMIT
    model = ScriptedModel([call("note", "large", length=LIMIT), call("note", "small", length=3)], ["done"])
    session_id = world.started(agent(model, tools=[note]))
    assert results(session_id)["large"]["errorCode"] == "state_size_exceeded"
    assert "too large" in model.results_seen()["large"] and model.results_seen()["small"] == "kept"
    assert session_of(session_id).state == {"note": "xxx"} and session_of(session_id).status == "idle"
    assert len(events(session_id, "state_patch")) == 1
