"""What an error is called, what kind it is, and what the model reads of it (5.X, R-183)."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from django.utils import translation
from django.utils.translation import trans_real

from helix import errors
from helix.errors import CLIENT_TOOL_ERROR_CODES, RESULT_ERROR_CODES, RUN_ERROR_CODES, HelixError
from helix.loop.texts import RESULT_TEXTS, text_for
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import World, call_named, current_run, events, results

pytestmark = pytest.mark.django_db


# -- codes and categories ----------------------------------------------------------------------------------------------


def test_the_codes_of_client_tools_are_the_contracts() -> None:
    """R-740."""
    assert set(CLIENT_TOOL_ERROR_CODES) == {
        "client_tool_timeout",
        "aborted",
        "runtime_restarted",
        "disposed",
        "validation_failed",
        "client_tool_abandoned",
        "run_stopped",
    }
    assert all(errors.is_client_tool_code(code) for code in CLIENT_TOOL_ERROR_CODES)
    assert not errors.is_client_tool_code("approval_denied")


def test_guards_and_the_known_set_come_from_one_list() -> None:
    """R-743: every refusal class, every end of a run and every result code is known, once; nothing else is."""
    known = errors.known_codes()
    assert len(known) == len(set(known))
    assert set(known) == {
        *(refusal.code for refusal in errors.refusal_classes()),
        *RUN_ERROR_CODES,
        *RESULT_ERROR_CODES,
    }
    assert all(errors.is_known_code(code) for code in known)
    assert not errors.is_known_code("client_tool_on_fire")


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("state_run_superseded", "state"),
        ("transport_forbidden", "transport"),
        ("framework_internal", "framework"),
        ("provider_rate_limited", "provider"),
        ("validation_error", "validation"),
        ("INVALID_RESULT", "validation"),
        ("rate_limited", "transport"),
        ("NOT_FOUND", "state"),
        ("ALREADY_COMPLETED", "state"),
    ],
)
def test_the_category_follows_from_the_prefix(code: str, category: str) -> None:
    """R-741, with the four exceptions of section 7."""
    assert errors.category_of(code) == category


def test_an_unknown_code_is_tolerated(world: World, agent: AgentMaker) -> None:
    """R-742: it has a category, a client may submit it, and the model reads it as it came."""
    assert errors.category_of("quantum_flux") == "quantum"
    assert text_for("quantum_flux") == "quantum_flux"
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", error="quantum_flux")
    world.drain()
    assert model.results_seen() == {"c1": "quantum_flux"} and results(session_id)["c1"]["errorCode"] is None


def test_every_refusal_says_its_code_and_whether_to_try_again() -> None:
    """R-741, R-354, F-9: a status beside them, a cause where there is one."""
    for refusal in errors.refusal_classes():
        body = refusal("Why.", cause="because").as_body()
        assert (body["error"], body["code"], body["retryable"]) == ("Why.", refusal.code, refusal.retryable)
        assert body["cause"] == "because" and 400 <= refusal.status < 600
    assert HelixError("Later.", retryable=True).as_body()["retryable"] is True


def test_a_failed_run_carries_a_typed_detail(world: World, agent: AgentMaker) -> None:
    """R-741: code, message, retryable; a cause where there is one."""
    session_id = world.started(agent(ScriptedModel(RuntimeError("secret")), tools=[locate]))
    detail = current_run(session_id).error_detail
    assert detail["code"] in RUN_ERROR_CODES and detail["retryable"] is False
    assert "secret" not in detail["message"]
    (told,) = events(session_id, "run_failed")
    assert told["error"] == detail


# -- readable texts ----------------------------------------------------------------------------------------------------


def test_every_code_of_a_result_has_a_text_of_its_own() -> None:
    """R-745: from the catalogue, so that none reaches the model as a bare code."""
    assert set(RESULT_TEXTS) == set(RESULT_ERROR_CODES)
    texts = [text_for(code) for code in RESULT_ERROR_CODES]
    assert len(set(texts)) == len(texts) and not any(re.fullmatch(r"[a-z_]+", text) for text in texts)


@pytest.mark.parametrize("code", CLIENT_TOOL_ERROR_CODES)
def test_a_built_in_code_that_a_client_submits_is_read_as_its_text(world: World, agent: AgentMaker, code: str) -> None:
    """R-072, R-740, R-745: the code stands beside it, in the log and in the stream."""
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate]))
    world.submit(session_id, "c1", error=code)
    world.drain()
    assert model.results_seen() == {"c1": text_for(code)}
    (ended,) = events(session_id, "tool_end")
    assert (ended["errorCode"], ended["error"]) == (code, text_for(code))
    assert results(session_id)["c1"]["errorCode"] == code


def test_an_agent_may_say_it_in_its_own_words(world: World, agent: AgentMaker) -> None:
    """R-745, C-038: the text is the agent's, the code stays; another agent keeps the built-in text."""

    def told(**options: object) -> tuple[str, str]:
        model = ScriptedModel([call("locate", "c1")], ["done"])
        session_id = world.started(agent(model, tools=[locate], **options))
        world.wait(seconds=300)
        world.drain()
        return model.results_seen()["c1"], results(session_id)["c1"]["errorCode"]

    own = told(error_texts={"client_tool_timeout": "Take Bern as the default."})
    assert own == ("Take Bern as the default.", "client_tool_timeout")
    assert told() == (text_for("client_tool_timeout"), "client_tool_timeout")


def test_texts_are_read_in_the_language_that_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-745: the catalogue is asked each time a text is needed, not when the module was loaded."""
    before = text_for("approval_denied")
    with translation.override("de"):
        catalogue = trans_real.translation("de")
        monkeypatch.setitem(catalogue._catalog._catalogs[0], before, "Abgelehnt.")
        assert text_for("approval_denied") == "Abgelehnt."
    assert text_for("approval_denied") == before


def test_the_model_can_tell_how_an_approval_ended(world: World, agent: AgentMaker) -> None:
    """R-183, C-041: denied, expired, abandoned and stopped read differently, and each says that nothing ran."""
    bodies = Bodies()

    def asked() -> UUID:
        tool = bodies.tool("pay", require_approval=True)
        return world.started(agent(ScriptedModel([call("pay", "p1")], ["done"]), tools=[tool]))

    def text(session_id: UUID) -> str:
        world.drain()
        told: str = results(session_id)["p1"]["error"]
        return told

    denied, expired, abandoned, stopped = (asked() for _ in range(4))
    world.decide(call_named(denied, "pay"), approved=False)
    world.send(abandoned, "leave it", abandon_pending=True)
    world.stop(stopped)
    world.wait(days=7)
    texts = [text(session_id) for session_id in (denied, expired, abandoned, stopped)]
    assert len(set(texts)) == 4 and all("did not run" in one for one in texts)
    assert bodies.ran == []
