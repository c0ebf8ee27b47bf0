"""``GET chat/{id}/stream`` and ``POST chat/{id}/stop``: joining what is being written, and ending it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.test import AsyncClient, Client

from helix.dialects.aisdk import following
from helix.models import Run
from tests.dialects.conftest import PageMaker
from tests.dialects.page import ChatPage, aside, chunks_of, join, kinds, send
from tests.kit.models import call

pytestmark = pytest.mark.django_db(transaction=True)


async def begin(tab: ChatPage) -> Any:
    """Post the first message; its turn is queued, and no worker has looked at it."""
    tab.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]})
    return await send(tab.body())


async def stop(session_id: str = "mine") -> Any:
    """``POST chat/{id}/stop``, which the REST side's threads serve."""
    return await aside(Client().post, f"/api/chat/{session_id}/stop", headers={"Authorization": "Bearer owner"})


@pytest.mark.parametrize("chat", ["mine", "never-begun"])
async def test_nothing_is_joined_while_nothing_is_written(page: PageMaker, chat: str) -> None:
    """R-040, R-365: suspended, at rest and unknown are all the quiet no, for the owner and for a stranger."""
    tab = page([call("locate", "c1")], ["Done."])
    await tab.say("hello")
    for who in ("owner", "stranger"):
        assert (await join(chat, who=who)).status_code == 204
    await tab.answer("c1", "Bern")
    assert (await join(chat)).status_code == 204


async def test_joining_replays_the_whole_message_and_follows_it(page: PageMaker) -> None:
    """R-518, R-520: every step of the turn, answered calls without running their handler again, then what comes."""
    tab = page([call("pick", "c1")], ["First. ", call("look_up", "s1", order="7")], ["Second."])
    await tab.say("go")
    tab.output("c1", output=1)
    assert (await send(tab.body())).status_code == 200
    joined = ChatPage(tab.world, "mine")
    joined.messages = tab.messages[:1]
    chunks = await joined.follow(await join("mine"))
    assert kinds(chunks)[:5] == ["start", "start-step", "tool-input-start", "tool-input-delta", "tool-output-available"]
    assert joined.text() == "First. Second." and joined.dispatched == [] and not joined.would_post_again()
    assert joined.messages[-1]["id"] == tab.messages[-1]["id"]
    assert {part["toolCallId"]: part["state"] for part in joined.shown if "toolCallId" in part} == {
        "c1": "output-available",
        "s1": "output-available",
    }


async def test_two_readers_of_one_turn_read_the_same(page: PageMaker) -> None:
    """R-518: one log, so the one who sent and the one who joined end with equal chunks."""
    tab = page(["Good ", "day."])
    sent = await begin(tab)
    joined = await join("mine")
    await aside(tab.world.drain)
    assert [one async for one in chunks_of(sent)] == [one async for one in chunks_of(joined)]


async def test_a_reader_that_leaves_stops_nothing(page: PageMaker) -> None:
    """R-524, rule 10: the run lives outside of the response."""
    tab = page(["Good day."])
    response = await begin(tab)
    content = response.streaming_content
    assert b'"start"' in await anext(content)
    await content.aclose()
    await aside(tab.world.drain)
    assert (await aside(Run.objects.get)).status == "completed"


async def test_silence_is_filled_with_comments(page: PageMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-040: a proxy keeps an idle stream open; the page does not see a comment."""
    monkeypatch.setattr(following, "KEEP_ALIVE_SECONDS", 0.01)
    tab = page(["Good day."])
    response = await begin(tab)
    content = response.streaming_content
    await anext(content)
    async with asyncio.timeout(10):
        assert await anext(content) == b": keep-alive\n\n"
    await content.aclose()


async def test_a_stop_ends_the_stream_without_an_error(page: PageMaker) -> None:
    """R-364, R-418: the stop answers at once; whoever follows sees the turn end."""
    tab = page(["Never said."])
    response = await begin(tab)
    stopped = await stop()
    assert (stopped.status_code, stopped.json()["stop"]) == (200, "interrupt")
    assert kinds(await tab.follow(response)) == ["start", "finish"]
    again = await stop()
    assert again.json()["outcome"] == "nothing_to_stop"


async def test_a_stop_over_open_calls_leaves_no_page_that_posts_again(page: PageMaker) -> None:
    """R-418, R-357: the closed calls are shown, then the boundary."""
    tab = page([call("look_up", "s1", order="7")], [call("pick", "c1"), call("pick", "c2")])
    await tab.say("go")
    await stop()
    tab.error = None
    chunks = await tab.post()
    assert kinds(chunks)[1:3] == ["tool-output-error", "tool-output-error"] and not tab.would_post_again()


async def test_refusals_of_the_routes_are_typed(page: PageMaker) -> None:
    """R-354, R-347, R-394: authentication first, then the body; wrong methods name the right one."""
    tab = page(["Good day."])
    client = AsyncClient()
    assert (await send(b"{", who=None)).status_code == 401
    bad: list[tuple[Any, str, int]] = [
        (b"{", "application/json", 400),
        ({"id": "mine"}, "application/json", 400),
        ({"id": "mine", "messages": []}, "application/json", 400),
        ({"messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]}, "application/json", 400),
        ({"id": "mine", "messages": [{"role": "system", "parts": []}]}, "application/json", 400),
        ({"id": "a/b", "agentType": tab.agent_type, "message": said("hi")}, "application/json", 400),
        ({"id": "mine", "agentType": "no-such", "message": said("hi")}, "application/json", 404),
        (b"hello", "text/plain", 415),
    ]
    for body, content_type, status in bad:
        response = await send(body, content_type=content_type)
        assert (response.status_code, set(response.json()) >= {"error", "code", "retryable"}) == (status, True), body
    assert not await aside(Run.objects.exists)
    for path, method, allowed in (
        ("chat", "get", "POST"),
        ("chat/x/stream", "post", "GET"),
        ("chat/x/stop", "get", "POST"),
    ):
        response = await getattr(client, method)(f"/api/{path}")
        assert (response.status_code, response["Allow"], response.json()["cause"]) == (405, allowed, "method")


async def test_a_regenerated_or_edited_message_is_refused(page: PageMaker) -> None:
    """R-355: what cannot be done is said, instead of a turn that the page did not ask for."""
    tab = page(["Good day."])
    await tab.say("hello")
    first = tab.messages[:1]
    again = await send({"id": "mine", "messages": first, "trigger": "regenerate-message"})
    edited = [{**first[0], "parts": [{"type": "text", "text": "goodbye"}]}]
    changed = await send({"id": "mine", "messages": edited, "messageId": edited[0]["id"]})
    assert [(one.status_code, one.json()["cause"]) for one in (again, changed)] == [(400, "regenerate"), (400, "edit")]
    assert await aside(Run.objects.count) == 1


async def test_a_body_over_the_cap_is_refused_typed(page: PageMaker, settings: Any) -> None:
    """R-295: a cap of its own, 413."""
    tab = page(["Good day."])
    settings.HELIX_MAX_CHAT_BODY_BYTES = 200
    response = await send({"id": "mine", "agentType": tab.agent_type, "message": said("x" * 400)})
    assert (response.status_code, response.json()["code"]) == (413, "validation_payload_too_large")


async def test_the_credential_is_held_to_the_chat_that_the_body_names(page: PageMaker) -> None:
    """R-358, R-385: ``sessionId`` wins over ``id``, and is resolved before authentication."""
    tab = page(["Good day."])
    body = {"agentType": tab.agent_type, "message": said("hi")}
    other = await send({**body, "id": "mine", "sessionId": "other"}, who="bound")
    assert (other.status_code, other.json()["cause"]) == (403, "session_mismatch")
    own = await send({**body, "id": "other", "sessionId": "mine"}, who="bound")
    assert own.status_code == 200
    tab.messages.append(said("hi"))
    await tab.follow(own)
    assert tab.text() == "Good day."


async def test_the_text_of_an_unexpected_failure_stays_inside(page: PageMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-354: in the middle of a stream too."""

    def broken(root_id: object) -> int:
        raise RuntimeError("canary-51c2")

    monkeypatch.setattr(following, "resting_at", broken)
    tab = page(["Good day."])
    chunks = [one async for one in chunks_of(await begin(tab))]
    assert chunks[-1] == {"type": "error", "errorText": "Something went wrong."} and "canary" not in json.dumps(chunks)


def said(text: str) -> dict[str, Any]:
    return {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
