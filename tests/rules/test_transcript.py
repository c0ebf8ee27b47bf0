"""What a model reads: every call followed directly by its one result, the whole history, and readable codes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.utils import translation

from helix.errors import RESULT_ERROR_CODES
from helix.loop import LoggedMessage, arrange, result_text, unpaired
from helix.loop.texts import APPROVAL_TEXTS, RESULT_TEXTS, edited_note, text_for


def user(text: str) -> LoggedMessage:
    return LoggedMessage("user", ({"type": "text", "text": text},))


def notice(text: str) -> LoggedMessage:
    return LoggedMessage("notice", ({"type": "text", "text": text},))


def assistant(*call_ids: str, text: str = "") -> LoggedMessage:
    calls = [
        {
            "type": "tool_call",
            "toolCallId": call_id,
            "providerCallId": f"own-{call_id}",
            "toolName": "look",
            "argumentsJson": "{}",
            "private": call_id == "secret",
        }
        for call_id in call_ids
    ]
    return LoggedMessage("assistant", ({"type": "text", "text": text}, *calls))


def tool_result(call_id: str, text: str = "seen") -> LoggedMessage:
    part = {"type": "tool_result", "toolCallId": call_id, "toolName": "look", "text": text}
    return LoggedMessage("tool", (part,), tool_call_id=call_id)


def test_results_follow_their_calls_in_emission_order() -> None:
    """R-144: whatever the order in which they were written."""
    asked = assistant("a", "b", "c")
    a, b, c = tool_result("a"), tool_result("b"), tool_result("c")
    assert arrange([user("go"), asked, c, a, b]) == (user("go"), asked, a, b, c)


def test_no_message_stays_between_a_call_and_its_result() -> None:
    """R-468, R-208: users and notices come after the results, in their own order."""
    asked, a, b = assistant("a", "b"), tool_result("a"), tool_result("b")
    log = [asked, user("first"), a, notice("late"), b, user("second")]
    assert arrange(log) == (asked, a, b, user("first"), notice("late"), user("second"))


def test_a_call_without_a_result_is_paired_as_not_executed() -> None:
    """R-457, with the control that its sibling keeps its own result."""
    asked = assistant("secret", "b")
    _, healed, kept, _ = arrange([asked, user("go on"), tool_result("b")])
    assert kept == tool_result("b")
    assert (healed.role, healed.tool_call_id, healed.error_code) == ("tool", "secret", "not_executed")
    (part,) = healed.parts
    assert (part["toolCallId"], part["providerCallId"], part["toolName"]) == ("secret", "own-secret", "look")
    assert (part["errorCode"], part["private"]) == ("not_executed", True)
    assert result_text(part) == text_for("not_executed")


def test_what_heal_owes_is_what_arranging_would_invent() -> None:
    log = [assistant("a", "b"), tool_result("b"), assistant("c")]
    assert [call["toolCallId"] for call in unpaired(log)] == ["a", "c"]
    assert unpaired(arrange(log)) == ()


def test_a_result_without_a_call_is_left_out() -> None:
    asked = assistant("a")
    assert arrange([tool_result("nobody"), asked, tool_result("a"), tool_result("a", "again")]) == (
        asked,
        tool_result("a"),
    )


def test_two_steps_keep_their_own_results() -> None:
    first, second = assistant("a"), assistant("b")
    assert arrange([first, second, tool_result("b"), tool_result("a")]) == (
        first,
        tool_result("a"),
        second,
        tool_result("b"),
    )


def test_the_whole_history_is_read() -> None:
    """R-467: no silent cap."""
    log = [user(str(number)) for number in range(5000)]
    assert arrange(log) == tuple(log)


@pytest.mark.parametrize("seed", range(40))
def test_any_log_is_well_formed_once_and_twice(seed: int) -> None:
    """R-144, R-468, F-7: shuffled logs with missing, foreign and early results."""
    draw = random.Random(seed)
    log: list[LoggedMessage] = []
    for step in range(draw.randint(1, 6)):
        ids = [f"{step}-{number}" for number in range(draw.randint(0, 4))]
        written = [tool_result(call_id) for call_id in ids if draw.random() < 0.7]
        written += [user("between"), notice("hint"), tool_result("foreign")][: draw.randint(0, 3)]
        draw.shuffle(written)
        log += [user("ask"), assistant(*ids), *written]
    arranged = arrange(log)
    assert arrange(arranged) == arranged
    for place, message in enumerate(arranged):
        wanted = [call["toolCallId"] for call in message.calls()]
        following = arranged[place + 1 : place + 1 + len(wanted)]
        assert [result.tool_call_id for result in following] == wanted
    calls = sum(len(list(message.calls())) for message in arranged)
    assert sum(message.role == "tool" for message in arranged) == calls
    kept = [message for message in log if message.role != "tool"]
    assert [message for message in arranged if message.role != "tool"] == kept


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"text": 'a "quoted" text'}, 'a "quoted" text'),
        ({"text": ""}, ""),
        ({"value": None}, "null"),
        ({"value": False}, "false"),
        ({"value": {"b": 1, "a": ["é"]}}, '{"b":1,"a":["é"]}'),
        ({"error": "It failed.", "errorCode": "x"}, "It failed."),
        ({"text": "done", "note": "Edited."}, "Edited.\n\ndone"),
    ],
)
def test_a_text_is_verbatim_and_any_other_value_is_compact_json(part: dict[str, Any], read: str) -> None:
    """R-017, R-073, R-178."""
    assert result_text(part) == read


def test_every_built_in_code_has_a_readable_text() -> None:
    """R-745: the table and the list of codes are one set."""
    assert set(RESULT_TEXTS) == set(RESULT_ERROR_CODES)
    assert set(APPROVAL_TEXTS) <= set(RESULT_ERROR_CODES)
    assert all(text_for(code) != code for code in RESULT_ERROR_CODES)


def test_an_approval_says_what_became_of_it() -> None:
    """R-183: denied, expired, abandoned and stopped read differently, and not like a client's tool."""
    codes = ("approval_denied", "client_tool_timeout", "client_tool_abandoned", "run_stopped")
    texts = [text_for(code, kind="approval") for code in codes]
    assert len(set(texts)) == len(codes)
    for code in codes[1:]:
        assert text_for(code, kind="approval") != text_for(code, kind="client")


def test_an_agent_may_override_a_text() -> None:
    """R-745."""
    own = {"approval_denied": "No: {detail}!", "not_executed": "Skipped."}
    assert text_for("approval_denied", kind="approval", agent_texts=own, detail="too dear") == "No: too dear!"
    assert text_for("not_executed", agent_texts=own) == "Skipped."
    assert text_for("run_stopped", agent_texts=own) == text_for("run_stopped")


def test_a_detail_is_kept_verbatim() -> None:
    """R-170: the reviewer's reason reaches the model as it was given."""
    assert text_for("approval_denied", kind="approval", detail="too {dear} 100%").endswith(" too {dear} 100%")
    assert '{"a":"%s"}' in edited_note('{"a":"%s"}')


def test_an_unknown_code_is_tolerated() -> None:
    """R-742."""
    assert text_for("somebody_elses_code") == "somebody_elses_code"
    assert text_for("somebody_elses_code", detail="It broke.") == "It broke."


def test_texts_follow_the_active_language() -> None:
    """R-745: the catalogue is asked when the text is read, not when the module is loaded."""
    with translation.override("en"):
        assert text_for("not_executed") == "The tool was not executed."
