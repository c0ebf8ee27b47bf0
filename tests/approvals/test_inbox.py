"""What the inbox shows: exactly what one may decide now, in full, oldest wait first (I-32 to I-35, I-49)."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from pytest_django import DjangoAssertNumQueries

from approvals import selectors
from helix.streaming.inbox import read_waiting
from tests.approvals.conftest import AskForApproval, Person
from tests.kit.world import World

pytestmark = pytest.mark.django_db


def listed(person: Person, **options: object) -> list[str]:
    return [str(item.call.root_id) for item in selectors.inbox(person.principal, **options).items]  # type: ignore[arg-type]


def test_a_request_shows_everything_that_a_verdict_needs(ask: AskForApproval, owner: Person, reviewer: Person) -> None:
    """R-053, R-179, I-49: nothing is cut, and an argument that looks like a template is only text."""
    long = "x" * 5000
    call = ask(name="desk", cents=5, who=f"{{cents}} {long}")
    (item,) = selectors.inbox(reviewer.assigned().principal).items
    assert (item.path, item.started_by) == ("desk", "owner")
    assert item.summary == f"Pay 5 to {{cents}} {long}: {{unknown}}"
    assert [(one.name, one.value) for one in item.arguments] == [("cents", "5"), ("who", f"{{cents}} {long}")]
    assert item.shown["argumentsJson"] == call.arguments_json
    assert item.shown["argumentsDigest"] == call.arguments_digest
    assert item.shown["approvalId"] == call.approval_id
    assert item.shown["deadlineAt"] is not None


def test_a_request_is_in_with_its_exposure_and_out_with_its_closing(
    world: World, ask: AskForApproval, owner: Person, reviewer: Person
) -> None:
    """I-34: each way of closing, with no cache in between."""
    reviewer.assigned()
    decided, stopped, lapsed = ask(), ask(), ask()
    assert len(listed(reviewer)) == 3
    world.decide(decided, principal=reviewer.principal)
    assert len(listed(reviewer)) == 2
    world.stop(stopped.root_id, principal=owner.principal)
    assert listed(reviewer) == [str(lapsed.root_id)]
    world.wait(days=8)
    assert listed(reviewer) == []


def test_two_reviewers_see_what_each_is_assigned(ask: AskForApproval, reviewer: Person, stranger: Person) -> None:
    """I-35: disjoint, each its own."""
    mine, theirs = ask(name="mine"), ask(name="theirs")
    reviewer.assigned(agent_type="mine")
    stranger.assigned(agent_type="theirs")
    assert listed(reviewer) == [str(mine.root_id)]
    assert listed(stranger) == [str(theirs.root_id)]


def test_what_one_must_not_decide_is_not_offered(ask: AskForApproval, owner: Person, reviewer: Person) -> None:
    """R-023: the owner is shown the own request that the owner may decide, and not the barred one."""
    allowed = ask()
    ask("wire_money")
    assert listed(owner) == [str(allowed.root_id)]
    assert len(listed(reviewer.assigned())) == 2


def test_the_badge_counts_what_the_lists_show(
    ask: AskForApproval, owner: Person, reviewer: Person, stranger: Person
) -> None:
    """I-34, I-49, R-023: no barred request and nobody else's conversation, neither listed nor counted."""
    ask()
    ask("wire_money")
    reviewer.user.user_permissions.add(Permission.objects.get(codename="operate"))
    assert reviewer.principal.is_operator
    counted = {}
    for person in (owner, reviewer, stranger):
        waiting = read_waiting(person.principal)
        conversations = selectors.waiting_conversations(person.principal)
        assert [call_id for call_id, *_ in waiting.approvals] == [
            item.call.pk for item in selectors.inbox(person.principal).items
        ]
        assert [session_id for session_id, _ in waiting.conversations] == [one.pk for one in conversations]
        counted[person.user.username] = (len(waiting.approvals), len(waiting.conversations))
    assert counted == {"owner": (1, 2), "reviewer": (2, 0), "stranger": (0, 0)}


def test_pages_neither_repeat_nor_hide_when_a_row_is_answered_between_them(
    world: World, ask: AskForApproval, reviewer: Person
) -> None:
    """I-35."""
    reviewer.assigned()
    calls = []
    for _ in range(5):
        calls.append(ask())
        world.tick(seconds=1)
    first = selectors.inbox(reviewer.principal, limit=2)
    assert first.total == 5
    world.decide(calls[1], principal=reviewer.principal)
    second = selectors.inbox(reviewer.principal, limit=2, cursor=first.next_cursor)
    third = selectors.inbox(reviewer.principal, limit=2, cursor=second.next_cursor)
    seen = [item.call.pk for page in (first, second, third) for item in page.items]
    assert seen == [call.pk for call in calls]
    assert third.next_cursor == ""


@pytest.mark.parametrize("cursor", ["x", "~", "2026-01-01T00:00:00~", "2026-01-01~not-an-id"])
def test_a_cursor_that_nobody_was_given_begins_at_the_start(ask: AskForApproval, reviewer: Person, cursor: str) -> None:
    call = ask()
    assert listed(reviewer.assigned(), cursor=cursor) == [str(call.root_id)]


def test_a_page_costs_the_same_queries_for_one_request_and_for_many(
    ask: AskForApproval, reviewer: Person, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    principal = reviewer.assigned().principal
    ask()
    with django_assert_num_queries(3):
        selectors.inbox(principal)
    for _ in range(4):
        ask()
    with django_assert_num_queries(3):
        assert len(selectors.inbox(principal).items) == 5


def test_own_conversations_that_wait_are_listed_until_they_go_on(
    world: World, ask: AskForApproval, owner: Person, stranger: Person
) -> None:
    """I-32: also those that wait for somebody else's verdict; nobody sees another's."""
    call = ask("wire_money")
    assert [one.pk for one in selectors.waiting_conversations(owner.principal)] == [call.root_id]
    assert selectors.waiting_conversations(stranger.principal) == []
    world.stop(call.root_id, principal=owner.principal)
    assert selectors.waiting_conversations(owner.principal) == []
