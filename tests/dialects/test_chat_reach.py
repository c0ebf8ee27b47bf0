"""What a chat shows of a whole tree, of values that nobody may see, and of a log that was cut; and who gets in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, override_settings
from pytest_django import Settings

from helix.agents import tool
from helix.edge.bodycap import cap_of
from helix.loop import ModelError
from helix.models import PendingCall, Run, Session, StreamEvent
from helix.operations import body_cap
from tests.dialects.conftest import PageMaker, locate
from tests.dialects.page import ChatPage, aside, chunks_of, join, kinds, send
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import child_agent

pytestmark = pytest.mark.django_db(transaction=True)


@tool(private=True)
def secret(key: str) -> str:
    """Look something up that no client may see."""
    return f"canary-{key}"


def with_child(page: PageMaker, *steps: Any) -> ChatPage:
    """A chat whose agent asks another one, which asks the page."""
    child = child_agent("scout", ScriptedModel(*steps), tools=[locate])
    return page([call("subagent__scout", "d1", task="look")], ["All done."], sub_agents=[child])


async def test_a_call_of_a_sub_agent_is_answered_in_the_chat_of_its_root(page: PageMaker) -> None:
    """R-190, R-192: the page sees who is asked for an answer, and neither the words nor the server tools of a child."""
    tab = with_child(page, ["I look. ", call("locate", "c1")], [call("__finish__", place="Bern")])
    chunks = await tab.say("go")
    assert tab.dispatched == ["c1"] and "I look" not in str(chunks)
    assert [(chunk["toolCallId"], chunk.get("providerExecuted")) for chunk in chunks if "input" in chunk] == [
        ("d1", True),
        ("c1", None),
    ]
    assert (await join("mine")).status_code == 204
    await tab.answer("c1", "Bern")
    assert tab.text() == "All done." and tab.part("d1")["output"] == {"place": "Bern"}
    assert not tab.would_post_again() and "__finish__" not in str(tab.messages)


async def test_the_next_call_of_a_bounded_agent_comes_with_the_answer_to_the_one_before(page: PageMaker) -> None:
    """R-051, R-113: exposed by the answer, in the same step, and the page knows that it waits."""
    tab = page([call("pick", "c1"), call("pick", "c2")], ["Done."], max_open_calls=1)
    await tab.say("go")
    assert tab.dispatched == ["c1"]
    # The page takes its one call for the whole batch.
    chunks = await tab.answer("c1", 1)
    assert kinds(chunks) == ["start", "tool-input-available", "finish"] and tab.dispatched == ["c1", "c2"]
    await tab.answer("c2", 2)
    assert tab.text() == "Done." and (tab.posts, tab.would_post_again()) == (3, False)


async def test_a_private_tool_shows_neither_what_it_was_given_nor_what_it_gave(page: PageMaker) -> None:
    """R-395: on this wire too."""
    tab = page([call("secret", "s1", key="51c2")], ["Done."], tools=[secret])
    chunks = await tab.say("go")
    assert tab.part("s1")["input"] == {} and tab.part("s1")["output"] == "[private]"
    assert "51c2" not in str(chunks)


async def test_integers_of_any_size_arrive_as_they_were_written(page: PageMaker) -> None:
    """R-290: between the model's text and the page's JSON nothing is rounded."""
    tab = page([call("pick", "c1", number=2**70)], ["Done."])
    await tab.say("go")
    assert tab.part("c1")["input"] == {"number": 2**70}


async def test_a_reply_that_is_written_anew_stays_in_its_step(page: PageMaker) -> None:
    """R-494, R-517: what was said of the first try cannot be unsaid; the page is told that it does not count."""

    def broken(request: Any) -> Any:
        yield "Once upon "
        raise ModelError("Busy.", retryable=True)

    tab = page(broken, ["Good day."])
    tab.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]})
    response = await send(tab.body())
    await aside(tab.world.drain)
    await aside(tab.world.wait, seconds=2)
    chunks = await tab.follow(response)
    assert kinds(chunks).count("start-step") == 1 and tab.error is None
    discarded = [number for number, part in enumerate(tab.shown) if part["type"] == "data-step-discarded"]
    assert [part["text"] for part in tab.shown[discarded[0] :] if part["type"] == "text"] == ["Good day."]
    assert tab.text() == "Once upon Good day."


async def test_a_turn_whose_events_are_gone_goes_on_from_what_the_page_has(page: PageMaker) -> None:
    """R-356, R-368: the answer is stored, and its continuation is streamed."""
    tab = page([call("pick", "c1")], ["Done."])
    await tab.say("go")

    def sweep() -> None:
        head = Session.objects.get().stream_sequence
        StreamEvent.objects.filter(sequence__lte=head).delete()
        Session.objects.update(stream_floor=head + 1)

    await aside(sweep)
    await tab.answer("c1", 1)
    assert tab.text() == "Done." and not tab.would_post_again()


async def test_rival_posts_of_one_answer_are_one_answer(page: PageMaker) -> None:
    """R-065, Q-26: two tabs with the same page; both are shown the one continuation."""
    tab = page([call("pick", "c1")], ["Done."])
    await tab.say("go")
    tab.output("c1", output=1)
    responses = await asyncio.gather(send(tab.body()), send(tab.body()))
    assert [response.status_code for response in responses] == [200, 200]
    await aside(tab.world.drain)
    first, second = [[one async for one in chunks_of(response)] for response in responses]
    assert [chunk["delta"] for chunk in first if "delta" in chunk] == ["Done."]
    assert first == second
    assert await aside(Run.objects.count) == 2
    assert (await aside(PendingCall.objects.get)).answer_json == "1"


async def test_a_login_needs_the_csrf_token_and_then_suffices(page: PageMaker, settings: Settings) -> None:
    """R-385a: the native route judges cookies as the REST routes do."""
    settings.HELIX_AUTHENTICATE = "helix.api.auth.login_or_token"
    tab = page(["Good day."])
    user = await aside(User.objects.create_user, "somebody")
    client = AsyncClient(enforce_csrf_checks=True)
    await aside(client.force_login, user)
    body = {"id": "mine", "agentType": tab.agent_type, "message": {"id": "u1", "role": "user", "parts": SAID}}
    refused = await client.post("/api/chat", body, content_type="application/json")
    assert (refused.status_code, refused.json()["cause"]) == (403, "csrf")
    client.cookies["csrftoken"] = "a" * 32
    response = await client.post("/api/chat", body, content_type="application/json", headers={"X-CSRFToken": "a" * 32})
    assert response.status_code == 200
    tab.messages.append(body["message"])
    await tab.follow(response)
    assert tab.text() == "Good day."
    assert (await aside(Session.objects.get)).owner == str(user.pk)


def test_the_body_cap_stands_in_front_of_the_chat() -> None:
    """R-295, R-303: the ASGI middleware knows the route and its cap."""
    with override_settings(HELIX_MAX_CHAT_BODY_BYTES=1234):
        assert cap_of({"path": "/api/chat", "headers": []}) == body_cap("chat") == 1234


SAID = [{"type": "text", "text": "hello"}]
