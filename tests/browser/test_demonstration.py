"""The minute of a visitor: two windows, two agents, tools in the page, a reviewer, and nothing that needs a reload."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenAs, Site

MUG = "Say “My blue mug"
TRIP = "Say “I would like to go to Lisbon"


def ask_for_a_refund(page: Page) -> None:
    """Up to the point at which the desk waits for its reviewer."""
    page.get_by_role("button", name=MUG).click()
    page.get_by_role("dialog").get_by_role("button", name="Crack").click()
    expect(page.get_by_text("waits for a reviewer")).to_be_visible()


def test_the_server_prints_its_address_and_the_logins(site: Site) -> None:
    printed = " ".join(site.printed)
    assert re.search(r"Open http://127\.0\.0\.1:\d+/", printed)
    assert all(f"log in as {name}" in printed for name in ("owner", "reviewer", "operator"))


def test_a_reviewer_approves_in_another_window_and_the_chat_goes_on_without_a_reload(open_as: OpenAs) -> None:
    """I-01, I-02, R-169, R-174, I-49, I-50: a tool in the page, an approval elsewhere, one conversation."""
    owner = open_as("owner")
    reviewer = open_as("reviewer", "/inbox/")
    expect(reviewer.get_by_text("Nothing waits for your decision.")).to_be_visible()
    ask_for_a_refund(owner)
    expect(owner.get_by_role("button", name="Approve")).to_have_count(0)
    request = reviewer.locator("[data-key]", has_text="Pay 2400 euro cents back on order 1042")
    expect(request).to_contain_text("refund-desk wants to run pay_refund for owner")
    expect(request.get_by_text("The blue mug arrived damaged; photo crack.png.", exact=True)).to_be_visible()
    request.get_by_role("button", name="Approve").click()
    expect(request).to_contain_text("Approved. The conversation goes on.")
    expect(owner.get_by_text("€24.00 are on their way, reference REF-1042.")).to_be_visible()
    expect(owner.locator("#asks").get_by_role("region")).to_have_count(0)
    expect(owner.get_by_role("button", name="Send")).to_be_enabled()


def test_a_denial_reaches_the_agent_with_its_reason(open_as: OpenAs) -> None:
    """R-170."""
    owner = open_as("owner")
    reviewer = open_as("reviewer", "/inbox/")
    ask_for_a_refund(owner)
    request = reviewer.locator("[data-key]", has_text="Pay 2400 euro cents back")
    request.get_by_label("Reason").fill("The photo shows another mug.")
    request.get_by_role("button", name="Deny").click()
    expect(request).to_contain_text("Denied. The agent is told so.")
    answer = owner.get_by_label("Agent").last
    expect(answer).to_contain_text("The refund was not paid.")
    expect(answer).to_contain_text("The photo shows another mug.")


def test_a_tool_of_the_page_runs_there_by_itself_and_its_owner_approves(open_as: OpenAs) -> None:
    """I-02: the time zone that the agent hears of is the browser's. An owner decides what is the owner's own."""
    page = open_as("owner")
    page.get_by_role("button", name=TRIP).click()
    expect(page.get_by_text("in Europe/Lisbon. I look for a train.")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Booked. Your code is NT412-LIS-1.")).to_be_visible()


def test_a_reopened_conversation_runs_no_tool_until_somebody_says_so(open_as: OpenAs) -> None:
    """I-17, I-18, I-47; the control is that the same call opened the picker while the page was live."""
    page = open_as("owner")
    page.get_by_role("button", name=MUG).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.wait_for_url("**/c/*/")
    page.reload()
    expect(page.get_by_role("button", name="Run it here")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Run it here").click()
    page.get_by_role("dialog").get_by_role("button", name="Broken handle").click()
    expect(page.get_by_text("I can see it in handle-broken.png.")).to_be_visible()


def test_a_pending_call_outlives_the_server(open_as: OpenAs, site: Site) -> None:
    """I-12, R-037: the wait is a row. The page reconnects by itself and shows the same call."""
    page = open_as("owner")
    page.get_by_role("button", name=MUG).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    site.restart()
    page.get_by_role("dialog").get_by_role("button", name="Crack").click()
    expect(page.get_by_text("I can see it in crack.png.")).to_be_visible()
    expect(page.get_by_text("waits for a reviewer")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped")


def test_a_message_gives_an_open_request_up_and_the_page_says_so_before(open_as: OpenAs) -> None:
    """I-39, I-52."""
    page = open_as("owner")
    page.get_by_role("button", name=MUG).click()
    page.get_by_role("dialog").get_by_role("button", name="Crack").click()
    expect(page.get_by_text("waits for a reviewer")).to_be_visible()
    expect(page.locator("#hint")).to_contain_text("gives the open request up")
    page.get_by_label("Message", exact=True).fill("Never mind. What about order 3155?")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your garden chair is still on its way")).to_be_visible()
    expect(page.get_by_text("waits for a reviewer")).to_have_count(0)


def test_stopping_a_paused_turn_closes_its_request_everywhere(open_as: OpenAs) -> None:
    """I-40, I-50, R-422: the reviewer's list loses what the owner stopped."""
    owner = open_as("owner")
    reviewer = open_as("reviewer", "/inbox/")
    owner.get_by_label("Message", exact=True).fill("The lamp of order 2077 is broken")
    owner.keyboard.press("Enter")
    owner.get_by_role("dialog").get_by_role("button", name="Crack").click()
    requests = reviewer.locator("[data-key]", has_text="Pay 5900 euro cents back")
    expect(requests).to_have_count(1)
    owner.get_by_role("button", name="Stop").click()
    expect(owner.locator("#status")).to_have_text("Stopped")
    expect(requests).to_have_count(0)


def test_everything_is_reached_with_the_keyboard(open_as: OpenAs) -> None:
    page = open_as("owner")
    page.get_by_role("radio", name="Trip planner").focus()
    page.keyboard.press("Space")
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.type("Please take me to Porto")
    page.keyboard.press("Enter")
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    approve.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Booked. Your code is NT412-POR-1.")).to_be_visible()


def test_the_inbox_works_without_scripts(open_as: OpenAs) -> None:
    owner = open_as("owner")
    ask_for_a_refund(owner)
    plain = open_as("reviewer", "/inbox/", java_script_enabled=False)
    plain.locator("[data-key]", has_text="Pay 2400").last.get_by_role("button", name="Approve").click()
    expect(plain.get_by_text("Approved. The conversation goes on.")).to_be_visible()
    expect(owner.get_by_text("reference REF-1042.")).to_be_visible()


def test_an_inbox_that_cannot_be_refreshed_keeps_its_list_and_says_that_it_is_stale(open_as: OpenAs) -> None:
    """I-49."""
    owner = open_as("owner")
    ask_for_a_refund(owner)
    inbox = open_as("reviewer", "/inbox/")
    request = inbox.locator("[data-key]", has_text="Pay 2400").last
    inbox.route("**/inbox/list/", lambda route: route.abort())
    inbox.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(inbox.get_by_text("it may be stale")).to_be_visible()
    expect(request).to_be_visible()
    inbox.unroute("**/inbox/list/")
    owner.get_by_role("button", name="Stop").click()
    expect(inbox.get_by_text("it may be stale")).to_be_hidden()


def test_two_tabs_run_a_tool_of_the_page_once(open_as: OpenAs) -> None:
    """B-18, I-20: both tabs see the call live; one of them wins its claim and opens the picker."""
    first = open_as("owner")
    first.get_by_label("Message", exact=True).fill("Hello")
    first.keyboard.press("Enter")
    expect(first.get_by_text("Which order is it about?")).to_be_visible()
    second = first.context.new_page()
    second.goto(first.url)
    expect(second.get_by_text("Which order is it about?")).to_be_visible()
    expect(second.locator("#status")).to_have_text("")
    with first.expect_response("**/claim") as mine, second.expect_response("**/claim") as theirs:
        first.get_by_label("Message", exact=True).fill("Order 1042 is broken")
        first.keyboard.press("Enter")
    claims = {first: mine.value.json(), second: theirs.value.json()}
    assert sorted(claim["claimed"] for claim in claims.values()) == [False, True]
    winner, loser = sorted(claims, key=lambda tab: not claims[tab]["claimed"])
    expect(winner.get_by_role("dialog")).to_be_visible()
    expect(loser.get_by_role("button", name="Run it here")).to_be_visible()
    expect(loser.get_by_role("dialog")).to_have_count(0)
    winner.get_by_role("button", name="Crack").click()
    for tab in (first, second):
        expect(tab.get_by_text("I can see it in crack.png.")).to_be_visible()
    expect(first.get_by_text("waits for a reviewer")).to_be_visible()
    first.get_by_role("button", name="Stop").click()
    expect(second.locator("#status")).to_have_text("Stopped")


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_a_phone_and_follow_the_scheme(open_as: OpenAs, scheme: str, is_dark: bool, width: int) -> None:
    page = open_as("owner", color_scheme=scheme, viewport={"width": width, "height": 740})
    for path in ("/", "/inbox/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (brightness < 128) == is_dark


@pytest.mark.parametrize("path", ["/", "/inbox/", "/c/00000000-0000-4000-8000-000000000000/"])
def test_a_stranger_is_sent_to_the_login(browser: object, site: Site, path: str) -> None:
    """R-380."""
    page = browser.new_page(base_url=site.address)  # type: ignore[attr-defined]
    page.goto(path)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.close()
