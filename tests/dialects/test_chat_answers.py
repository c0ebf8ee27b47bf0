"""``POST chat`` with answers and verdicts: the rows of the table in docs/spec/ai-sdk.md section 6, one by one.

Every exchange ends with the question that matters: would this page post again by itself?
"""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from helix.models import CallAudit, Message, PendingCall, Run
from helix.statuses import StopKind
from tests.dialects.conftest import PageMaker
from tests.dialects.page import ChatPage, Refused, aside, kinds
from tests.kit.models import call
from tests.kit.world import REVIEWER, call_named, session_of

pytestmark = pytest.mark.django_db(transaction=True)


async def session_id(tab: ChatPage) -> Any:
    run = await aside(Run.objects.filter(session__client_id=tab.session_id).first)
    return run.session_id


async def stored(call_id: str) -> PendingCall:
    return await aside(PendingCall.objects.get, tool_call_id=call_id)


async def refused(tab: ChatPage) -> Refused:
    with pytest.raises(Refused) as caught:
        await tab.post()
    return caught.value


# -- the batch is complete ---------------------------------------------------------------------------------------------


async def test_an_answer_is_answered_with_what_is_new_only(page: PageMaker) -> None:
    """R-135, R-356: the continuation, in the same message, opening with a step; nothing of before is repeated."""
    tab = page([call("locate", "c1")], ["You are in ", "Bern."])
    await tab.say("where am I?")
    chunks = await tab.answer("c1", "Bern")
    assert kinds(chunks)[:3] == ["start", "start-step", "text-start"]
    assert kinds(chunks)[-2:] == ["finish-step", "finish"]
    assert not [kind for kind in kinds(chunks) if kind.startswith("tool-")]
    assert tab.part("c1")["output"] == "Bern" and tab.text() == "You are in Bern."
    assert (tab.posts, tab.would_post_again()) == (2, False)
    audit = await aside(CallAudit.objects.get)
    assert (audit.action, audit.door) == ("submit", "chat")


async def test_results_of_gated_calls_come_before_the_next_step(page: PageMaker) -> None:
    """R-169: the approved body's result, marked as the server's now that it has one."""
    tab = page([call("pay", "p1", cents=5)], ["Paid."])
    await tab.say("pay")
    tab.decide("p1", approved=True)
    chunks = await tab.auto_send()
    assert chunks[1] == {
        "type": "tool-output-available",
        "toolCallId": "p1",
        "output": "paid 5",
        "providerExecuted": True,
    }
    assert kinds(chunks)[2] == "start-step" and tab.text() == "Paid." and not tab.would_post_again()


async def test_a_denial_is_shown_as_denied(page: PageMaker) -> None:
    """R-170: nothing ran; the reason reaches the log."""
    tab = page([call("pay", "p1", cents=5)], ["I did not."])
    await tab.say("pay")
    tab.decide("p1", approved=False, reason="too much")
    chunks = await tab.auto_send()
    assert chunks[1] == {"type": "tool-output-denied", "toolCallId": "p1"}
    assert tab.text() == "I did not." and not tab.would_post_again()
    result = await aside(Message.objects.get, role="tool")
    assert "too much" in result.parts[0]["error"]


@pytest.mark.parametrize("answered_first", ["client", "gated"])
async def test_a_client_call_and_a_gated_call_are_one_post_in_either_order(
    page: PageMaker, answered_first: str
) -> None:
    """R-144: the page posts once both are done, and the batch is complete then."""
    tab = page([call("locate", "c1"), call("pay", "p1", cents=5)], ["Done."])
    await tab.say("go")
    acts = [lambda: tab.output("c1", output="Bern"), lambda: tab.decide("p1", approved=True)]
    for act in acts if answered_first == "client" else acts[::-1]:
        assert not tab.would_post_again()
        act()
    await tab.auto_send()
    assert tab.text() == "Done." and (tab.posts, tab.would_post_again()) == (2, False)


async def test_an_error_of_the_handler_and_a_missing_output_are_error_answers(page: PageMaker) -> None:
    """R-072: ``output-error``, and ``addToolOutput(output: undefined)`` which posts no output at all."""
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Well."])
    await tab.say("go")
    tab.output("c1", state="output-error", errorText="denied by the user")
    tab.output("c2")
    await tab.auto_send()
    rows = await aside(lambda: list(Message.objects.filter(role="tool").values_list("parts", flat=True)))
    assert [parts[0]["error"] for parts in rows] == ["denied by the user", "The handler returned no value."]
    assert tab.part("c2")["state"] == "output-error" and not tab.would_post_again()


async def test_a_caller_that_resumes_is_resumed_in_the_same_request(page: PageMaker) -> None:
    """R-135, R-143: the agent leaves it to the caller, and the caller is this post."""
    tab = page([call("locate", "c1")], ["You are in Bern."], continue_on_submit=False)
    await tab.say("where am I?")
    await tab.answer("c1", "Bern")
    assert tab.text() == "You are in Bern." and not tab.would_post_again()


# -- partial batches and repeats ---------------------------------------------------------------------------------------


async def test_a_partial_batch_that_the_page_knows_of_ends_no_step(page: PageMaker) -> None:
    """R-113: start and finish, no step, no error, no model call; the other answer is still sent later."""
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Done."])
    await tab.say("go")
    tab.output("c1", output=1)
    assert kinds(await tab.post()) == ["start", "finish"]
    await tab.answer("c2", 2)
    assert tab.text() == "Done." and not tab.would_post_again()


async def test_a_partial_batch_that_the_page_takes_for_complete_ends_the_step(page: PageMaker) -> None:
    """R-113: another tab owns the open call; without the boundary this page would post for ever."""
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Done."])
    await tab.say("go")
    tab.shown[:] = [part for part in tab.shown if part.get("toolCallId") != "c2"]
    # What this tab lacks is a call of a step that it has: it is shown, and then the page knows.
    chunks = await tab.answer("c1", 1)
    assert kinds(chunks) == ["start", "tool-input-available", "finish"] and not tab.would_post_again()


async def test_a_repeat_of_a_consumed_answer_ends_the_step(page: PageMaker) -> None:
    """R-356, R-065: nothing is stored twice, and the note moves the boundary on the page."""
    tab = page([call("locate", "c1")], ["You are in Bern."])
    await tab.say("where am I?")
    await tab.answer("c1", "Bern")
    # The page lost the end of the answer.
    del tab.shown[-2:]
    await tab.post()
    assert tab.text() == "You are in Bern."
    tab.shown[:] = [part for part in tab.shown if part["type"] != "text"]
    chunks = await tab.post()
    assert kinds(chunks) == ["start", "finish"] and not tab.would_post_again()
    assert await aside(Message.objects.filter(role="tool").count) == 1


async def test_an_answer_after_the_turn_was_stopped_elsewhere_is_refused(page: PageMaker) -> None:
    """R-357: 409, cause ``run_stopped``, when no other answer applies."""
    tab = page([call("locate", "c1")], ["Never said."])
    await tab.say("where am I?")
    await aside(tab.world.stop, await session_id(tab), StopKind.INTERRUPT)
    tab.output("c1", output="Bern")
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"], refusal.body["cause"]) == (409, "state_not_resumable", "run_stopped")
    assert refusal.body["retryable"] is False and refusal.body["error"]


async def test_an_answer_to_a_call_that_a_failure_closed_was_not_stored(page: PageMaker) -> None:
    """R-356: 409, cause ``answer_not_stored``, with the calls."""
    tab = page([call("locate", "c1")], ["Never said."])
    await tab.say("where am I?")
    await aside(PendingCall.objects.filter(tool_call_id="c1").update, state="discarded", discard_reason="run_failed")
    tab.output("c1", output="Bern")
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"], refusal.body["cause"]) == (
        409,
        "state_not_resumable",
        "answer_not_stored",
    )
    assert refusal.body["toolCallIds"] == ["c1"]


async def test_an_unknown_call_is_refused_alone_and_noted_beside_others(page: PageMaker) -> None:
    """R-075, R-355: never an empty 200, and an answer that applies is not lost to one that does not."""
    tab = page([call("locate", "c1")], ["You are in Bern."])
    await tab.say("where am I?")
    tab.shown.append({"type": "tool-locate", "toolCallId": "cX", "state": "output-available", "input": {}, "output": 1})
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (404, "unknown_tool_call")
    tab.output("c1", output="Bern")
    chunks = await tab.post()
    assert [chunk["data"] for chunk in chunks if chunk["type"] == "data-resume-rejected"] == [
        {"reason": "unknown-tool-call", "toolCallIds": ["cX"]}
    ]
    assert tab.text() == "You are in Bern." and not tab.would_post_again()


# -- pages that are behind ---------------------------------------------------------------------------------------------


async def test_a_page_that_is_behind_catches_up(page: PageMaker) -> None:
    """R-135: answered elsewhere and gone on: each known call is corrected, then every step that the page lacks."""
    tab = page([call("pick", "c1")], ["First. ", call("pick", "c2")], ["Second."])
    await tab.say("go")
    other = await session_id(tab)
    await aside(tab.world.submit, other, "c1", result="theirs")
    await aside(tab.world.drain)
    await aside(tab.world.submit, other, "c2", result="theirs too")
    await aside(tab.world.drain)
    chunks = await tab.answer("c1", "mine")
    assert tab.part("c1")["output"] == tab.part("c2")["output"].removesuffix(" too") == "theirs"
    assert tab.text() == "First. Second." and kinds(chunks).count("start-step") == 2
    assert tab.dispatched == ["c1"], "an answered call was handed to the page's handler"
    assert not tab.would_post_again()


async def test_a_late_answer_is_shown_as_the_timeout_that_stands(page: PageMaker) -> None:
    """R-272: 200: the correction, the steps since, and the model is told once; the echo is no second late answer."""
    tab = page([call("pick", "c1")], ["Too late."], ["I see."])
    await tab.say("go")
    await aside(tab.world.wait, minutes=10)
    await aside(tab.world.drain)
    chunks = await tab.answer("c1", "late")
    assert kinds(chunks)[1] == "tool-output-error" and tab.part("c1")["state"] == "output-error"
    assert tab.text() == "Too late." and not tab.would_post_again()
    late = (await stored("c1")).late_answer_json
    assert late == '"late"'
    await tab.post()
    assert (await stored("c1")).late_answer_json == late and not tab.would_post_again()


async def test_an_echo_of_a_timeout_is_not_taken_for_an_answer(page: PageMaker) -> None:
    """R-272: a page posts back what it was shown."""
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Too late.", call("pick", "c3")], ["Done."])
    await tab.say("go")
    await aside(tab.world.wait, minutes=10)
    await aside(tab.world.drain)
    await tab.post()
    assert tab.part("c1")["state"] == "output-error"
    await tab.answer("c3", 3)
    assert tab.text() == "Too late.Done."
    assert (await stored("c1")).late_answer_json is None


async def test_an_answer_to_an_earlier_turn_ends_the_step_of_its_own_message(page: PageMaker) -> None:
    """R-460: the other turn is no business of this message."""
    tab = page([call("pick", "c1")], ["Never mind, then."])
    await tab.say("go")
    old = tab.messages[:]
    await tab.say("never mind")
    tab.messages[:] = old
    chunks = await tab.answer("c1", 1)
    assert "Never mind" not in str(chunks) and tab.part("c1")["state"] == "output-error"
    assert chunks[-3]["type"] == "data-resume-rejected" and not tab.would_post_again()


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_result_against_the_schema_is_refused_and_a_second_one_is_taken(
    page: PageMaker, settings: Settings
) -> None:
    """R-317, R-318: 400, the call stays open; verbose mode adds nothing on the chat route."""
    settings.HELIX_VERBOSE_VALIDATION_ERRORS = True
    tab = page([call("locate", "c1")], ["You are in Bern."])
    await tab.say("where am I?")
    tab.output("c1", output=47)
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (400, "INVALID_RESULT") and "issues" not in refusal.body
    assert (await stored("c1")).state == "awaiting"
    await tab.answer("c1", "Bern")
    assert tab.text() == "You are in Bern."


async def test_several_answers_are_checked_whole(page: PageMaker, settings: Settings) -> None:
    """R-294: one too large refuses all, typed, and nothing is stored."""
    settings.HELIX_MAX_RESULT_BYTES = 100
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Done."])
    await tab.say("go")
    tab.output("c1", output=1)
    tab.output("c2", output="x" * 200)
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (413, "validation_payload_too_large")
    assert [(await stored(one)).state for one in ("c1", "c2")] == ["awaiting", "awaiting"]
    await tab.answer("c2", 2)
    assert tab.text() == "Done."


async def test_a_page_cannot_answer_a_gated_call(page: PageMaker) -> None:
    """R-167, R-174: an output for it is noise, a verdict needs the right id and a real boolean."""
    tab = page([call("pay", "p1", cents=5)], ["Paid."])
    await tab.say("pay")
    kept = dict(tab.part("p1"))
    wrong: list[dict[str, Any]] = [
        {"state": "output-available", "output": "paid"},
        {"state": "output-error", "errorText": "no"},
        {"state": "approval-responded", "approval": {"id": "another", "approved": True}},
        {"state": "approval-responded", "approval": {**kept["approval"], "approved": "yes"}},
        {"state": "approval-responded", "approval": {**kept["approval"]}},
    ]
    for claim in wrong:
        tab.part("p1").update(claim)
        await tab.post()
        assert (await stored("p1")).state == "awaiting"
        assert not tab.would_post_again()
    tab.shown[:] = [part for part in tab.shown if part["type"] != "step-start" and not part["type"].startswith("data-")]
    tab.part("p1").update(kept)
    tab.decide("p1", approved=True)
    await tab.auto_send()
    assert tab.text() == "Paid."


async def test_a_verdict_without_the_right_to_decide_is_refused(page: PageMaker, settings: Settings) -> None:
    """R-180, R-355: 403 with its code, and the call waits for somebody who may."""
    settings.HELIX_APPROVAL_POLICY = "tests.kit.policy.DecidersDecide"
    tab = page([call("pay", "p1", cents=5)], ["Paid."])
    await tab.say("pay")
    tab.decide("p1", approved=True)
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (403, "transport_forbidden")
    assert (await stored("p1")).state == "awaiting"


async def test_a_replaced_run_is_named_as_such(page: PageMaker) -> None:
    """R-068: 409 ``state_run_superseded``."""
    tab = page([call("locate", "c1")], ["Never said."])
    await tab.say("where am I?")
    held = await stored("c1")
    newer = await aside(
        Run.objects.create,
        session_id=held.session_id,
        number=2,
        turn=2,
        cause="execute",
        started_by="owner",
        status="suspended_client_tool",
    )
    await aside(type(await aside(session_of, held.session_id)).objects.update, current_run=newer)
    tab.output("c1", output="Bern")
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (409, "state_run_superseded")


async def test_one_post_is_one_submit_for_the_rate(page: PageMaker, settings: Settings) -> None:
    """R-387: however many answers it carries; the next one over the limit is refused before anything is stored."""
    settings.HELIX_SUBMITS_PER_MINUTE = 1
    tab = page([call("pick", "c1"), call("pick", "c2")], [call("pick", "c3")], ["Done."], chat="rated")
    await tab.say("go")
    tab.output("c1", output=1)
    await tab.answer("c2", 2)
    tab.output("c3", output=3)
    refusal = await refused(tab)
    assert (refusal.status, refusal.body["code"]) == (429, "rate_limited")
    assert (await stored("c3")).state == "awaiting"


async def test_what_a_reviewer_decided_elsewhere_reaches_the_page_at_its_next_post(page: PageMaker) -> None:
    """R-065: the page's own verdict comes second and changes nothing."""
    tab = page([call("pay", "p1", cents=5)], ["Refused."])
    await tab.say("pay")
    await aside(tab.world.decide, await aside(call_named, await session_id(tab), "pay"), approved=False)
    tab.decide("p1", approved=True)
    await tab.auto_send()
    assert tab.part("p1")["state"] == "output-denied" and tab.text() == "Refused."
    assert not tab.would_post_again() and REVIEWER.id not in str(tab.messages)
