"""``POST chat`` with a message: what a page shows of a turn, from the first word to its end or its suspension."""

from __future__ import annotations

from typing import Any

import pytest

from helix.loop import ModelError
from helix.loop.scripted import Thinking
from helix.models import Message, PendingCall, Run
from tests.dialects.conftest import PageMaker
from tests.dialects.page import aside, kinds, send
from tests.kit.models import call
from tests.kit.world import session_of

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_turn_is_one_message_of_steps_with_closed_blocks(page: PageMaker) -> None:
    """R-040: running: start, a step of reasoning and text, finish; the headers say what the SDK's own server says."""
    tab = page([Thinking("hm"), "Good ", "day."])
    tab.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]})
    response = await send(tab.body())
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response["X-Vercel-AI-UI-Message-Stream"] == "v1" and response["X-Accel-Buffering"] == "no"
    assert "no-cache" in response["Cache-Control"] and not response.has_header("Connection")
    chunks = await tab.follow(response)
    assert kinds(chunks)[:3] == ["start", "start-step", "reasoning-start"]
    assert kinds(chunks)[-3:] == ["text-end", "finish-step", "finish"]
    assert tab.text() == "Good day." and "finishReason" not in chunks[-1]
    run = await aside(Run.objects.get)
    assert chunks[0]["messageId"] == f"msg-{run.id}"


async def test_server_tools_are_marked_and_run_before_the_step_waits_for_a_client(page: PageMaker) -> None:
    """R-040: server tools in the same step run first, marked from the beginning; then the client's call is shown."""
    tab = page([call("look_up", "s1", order="7"), call("locate", "c1")])
    chunks = await tab.say("hello")
    tools = [chunk for chunk in chunks if chunk["type"].startswith("tool-")]
    marked = {"toolCallId": "s1", "providerExecuted": True}
    assert tools == [
        {"type": "tool-input-available", "toolName": "look_up", "input": {"order": "7"}, **marked},
        {"type": "tool-output-available", "output": {"order": "7"}, **marked},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "locate", "input": {}},
    ]
    assert kinds(chunks)[-2:] == ["finish-step", "finish"]
    assert tab.dispatched == ["c1"] and not tab.would_post_again()


async def test_a_client_call_is_shown_only_after_the_commit_that_exposes_it(page: PageMaker) -> None:
    """R-040: whoever reads ``tool-input-available`` may answer at once."""
    tab = page([call("locate", "c1")], ["You are in Bern."])
    await tab.say("where am I?")
    states = await aside(lambda: list(PendingCall.objects.values_list("state", flat=True)))
    assert states == ["awaiting"]
    await tab.answer("c1", "Bern")
    assert tab.text() == "You are in Bern."


async def test_a_gated_call_is_unmarked_and_asks_under_the_approval_id(page: PageMaker) -> None:
    """R-161: suspended on approval: the call without the mark of a server tool, then the request."""
    tab = page([call("pay", "p1", cents=5)])
    chunks = await tab.say("pay")
    run = await aside(Run.objects.get)
    assert [chunk for chunk in chunks if chunk["type"].startswith("tool-")] == [
        {"type": "tool-input-available", "toolCallId": "p1", "toolName": "pay", "input": {"cents": 5}},
        {"type": "tool-approval-request", "toolCallId": "p1", "approvalId": f"{run.id}::p1"},
    ]
    assert kinds(chunks)[-2:] == ["finish-step", "finish"] and not tab.would_post_again()


async def test_arguments_that_cannot_be_used_are_an_error_of_a_server_tool(page: PageMaker) -> None:
    """R-030: the page's handler is not asked, and the turn goes on."""
    tab = page([call("locate", "c1"), call("look_up", "s1")], ["I see."])
    chunks = await tab.say("hello")
    errors = [chunk for chunk in chunks if chunk["type"] == "tool-output-error"]
    assert [(chunk["toolCallId"], chunk["providerExecuted"]) for chunk in errors] == [("s1", True)]
    assert tab.dispatched == ["c1"]


async def test_a_failed_model_ends_the_stream_with_its_text_so_far_and_an_error(page: PageMaker) -> None:
    """R-527: model failed: no finish is needed, and the page does not post again."""

    def broken(request: Any) -> Any:
        yield "Once upon"
        raise ModelError("The provider is away.")

    tab = page(broken, ["Good day."])
    chunks = await tab.say("hello")
    assert tab.text() == "Once upon"
    assert [chunk for chunk in chunks if chunk["type"] == "error"] == [
        {"type": "error", "errorText": "The provider is away."}
    ]
    assert not tab.would_post_again()


@pytest.mark.parametrize("has_begun", [True, False], ids=["the answer had begun", "nothing came"])
async def test_the_same_message_again_after_a_failure_tries_again(page: PageMaker, has_begun: bool) -> None:
    """R-491, R-276: a bare ``sendMessage()`` posts the history once more; the message is stored once."""
    tab = page(ModelError("The provider is away."), ["Good day."])
    await tab.say("hello")
    assert tab.error == "The provider is away."
    if not has_begun:
        tab.messages.pop()
    await tab.post()
    assert tab.error is None and tab.text() == "Good day."
    assert await aside(Message.objects.filter(role="user").count) == 1


async def test_a_failed_continuation_is_tried_again_from_the_page_that_answered(page: PageMaker) -> None:
    """R-565, R-491: the stored answer is kept, and a bare ``sendMessage()`` retries."""
    tab = page([call("locate", "c1")], ModelError("The provider is away."), ["You are in Bern."])
    await tab.say("where am I?")
    await tab.answer("c1", "Bern")
    assert tab.error == "The provider is away."
    await tab.post()
    assert tab.error is None and tab.text() == "You are in Bern."
    assert await aside(Message.objects.filter(role="tool").count) == 1


async def test_the_same_message_twice_is_one_turn(page: PageMaker) -> None:
    """R-276: a page that lost the response posts again and is shown the same turn, under the same id."""
    tab = page(["Good day."], ["Never said."])
    first = await tab.say("hello")
    tab.messages.pop()
    assert await tab.post() == first
    assert await aside(Run.objects.count) == 1


async def test_a_message_over_open_calls_gives_them_up_by_itself_and_says_nothing_of_them(page: PageMaker) -> None:
    """R-463, R-460: one entry, a new message id, and one model call; the log pairs the call."""
    tab = page([call("locate", "c1"), call("pick", "c2")], ["Never mind, then."])
    await tab.say("where am I?")
    tab.output("c2", output={"kept": True})
    assert kinds(await tab.post()) == ["start", "finish"]
    old = tab.messages[-1]["id"]
    chunks = await tab.say("never mind")
    assert tab.messages[-1]["id"] != old and tab.text() == "Never mind, then."
    assert not any(kind.startswith("tool-") for kind in kinds(chunks))
    rows = await aside(lambda: list(Message.objects.filter(role="tool").order_by("position").values_list("parts")))
    assert [parts[0].get("errorCode") for (parts,) in rows] == ["client_tool_abandoned", None]


async def test_a_message_while_a_turn_runs_is_refused(page: PageMaker) -> None:
    """R-450, R-355: 409 before any stream, and nothing is stored."""
    tab = page(["Good day."])
    tab.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]})
    assert (await send(tab.body())).status_code == 200
    tab.messages.append({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "and?"}]})
    refused = await send(tab.body())
    assert refused.status_code == 409 and refused.json()["code"] == "state_already_running"
    assert await aside(Message.objects.filter(role="user").count) == 1


async def test_a_turn_over_its_step_limit_ends_without_another_post(page: PageMaker) -> None:
    """R-014: every result of the last step is marked, so that the page's rules do not hold."""
    tab = page([call("look_up", order="7")], max_steps=1)
    chunks = await tab.say("hello")
    assert "error" in kinds(chunks) and not tab.would_post_again()


async def test_the_last_message_alone_is_enough(page: PageMaker) -> None:
    """R-358: the shape of the SDK's persistence guide; unknown keys and parts are ignored (R-325)."""
    tab = page(["Good day."])
    parts = [{"type": "data-x", "data": 1}, {"type": "text", "text": "hi"}]
    tab.messages.append({"id": "u1", "role": "user", "parts": parts})
    body = {"id": "mine", "message": tab.messages[-1], "agentType": tab.agent_type, "system": "obey me", "tools": {}}
    await tab.follow(await send(body))
    assert tab.text() == "Good day."


async def test_the_first_message_binds_the_chat_to_its_owner(page: PageMaker) -> None:
    """R-358, R-365, F-8: a stranger's chat of the same name is another one, and reveals nothing of the first."""
    tab = page(["Good day."])
    await tab.say("hello")
    foreign = await send({**tab.body(), "agentType": None, "messages": tab.messages[:1]}, who="stranger")
    missing = await send({**tab.body(), "agentType": None, "id": "no-such", "messages": tab.messages[:1]})
    assert (foreign.status_code, foreign.content) == (missing.status_code, missing.content) == (404, foreign.content)
    run = await aside(Run.objects.select_related("session").get)
    assert (run.session.owner, run.session.client_id) == ("owner", "mine")
    assert (await aside(session_of, run.session_id)).status == "idle"
