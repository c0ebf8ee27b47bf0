"""Who reaches and who decides: one condition for the list, its count and the deciding transaction (R-180, R-398)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import IntegrityError, transaction
from django.db.models import Q

from approvals.models import Assignment
from approvals.policy import AssignmentPolicy
from helix.errors import Forbidden, UnknownToolCall
from helix.models import PendingCall
from helix.policy import approval_policy
from helix.principals import Principal
from tests.approvals.conftest import AskForApproval, Person
from tests.kit.world import World

pytestmark = pytest.mark.django_db


def reaches(person: Person, call: PendingCall) -> bool:
    found = PendingCall.objects.filter(approval_policy().reach(person.principal), pk=call.pk).exists()
    assert found == approval_policy().may_decide(person.principal, call)
    return found


def test_the_project_asks_the_assignments() -> None:
    assert isinstance(approval_policy(), AssignmentPolicy)


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ({}, True),
        ({"agent_type": "desk"}, True),
        ({"agent_type": "other"}, False),
        ({"tool_name": "pay"}, True),
        ({"tool_name": "wire_money"}, False),
        ({"agent_type": "desk", "tool_name": "pay"}, True),
        ({"agent_type": "desk", "tool_name": "wire_money"}, False),
    ],
)
def test_an_assignment_covers_its_scope(
    ask: AskForApproval, reviewer: Person, scope: dict[str, Any], reached: bool
) -> None:
    call = ask(name="desk")
    assert not reaches(reviewer, call)
    reviewer.assigned(**scope)
    assert reaches(reviewer, call) == reached


def test_an_assignment_may_cover_one_conversation(ask: AskForApproval, reviewer: Person) -> None:
    covered, other = ask(), ask()
    reviewer.assigned(session_id=covered.root_id)
    assert (reaches(reviewer, covered), reaches(reviewer, other)) == (True, False)


def test_a_group_reviews_for_as_long_as_one_belongs_to_it(ask: AskForApproval, reviewer: Person) -> None:
    call = ask()
    group = reviewer.member_of("reviewers")
    Assignment.objects.create(group=group)
    assert reaches(reviewer, call)
    reviewer.user.groups.remove(group)
    assert not reaches(reviewer, call)


def test_an_id_that_is_no_users_reaches_nothing(ask: AskForApproval, reviewer: Person) -> None:
    """Another hook may name principals as it likes."""
    call = ask()
    reviewer.assigned()
    assert reaches(reviewer, call)
    for name in ("idp|17", str(uuid4())):
        assert not PendingCall.objects.filter(approval_policy().reach(Principal(id=name))).exists()


def test_out_of_reach_looks_like_a_missing_call(world: World, ask: AskForApproval, stranger: Person) -> None:
    """F-8, R-075: byte for byte."""
    call = ask()
    with pytest.raises(UnknownToolCall) as foreign:
        world.decide(call, principal=stranger.principal)
    call.root_id = uuid4()
    with pytest.raises(UnknownToolCall) as missing:
        world.decide(call, principal=stranger.principal)
    assert foreign.value.as_body() == missing.value.as_body()


def test_a_reviewer_decides_what_the_owner_must_not(
    world: World, ask: AskForApproval, owner: Person, reviewer: Person
) -> None:
    """R-023."""
    call = ask("wire_money")
    reviewer.assigned()
    with pytest.raises(Forbidden) as refused:
        world.decide(call, principal=owner.principal)
    assert refused.value.fields["cause"] == "self_approval"
    assert world.decide(call, principal=reviewer.principal)["status"] == "accepted"


def test_a_reviewer_does_not_decide_what_the_reviewer_asked_for(
    world: World, ask: AskForApproval, reviewer: Person
) -> None:
    call = ask("wire_money", by=reviewer.assigned())
    with pytest.raises(Forbidden):
        world.decide(call, principal=reviewer.principal)


def test_an_owner_decides_and_an_operator_decides_everywhere(
    world: World, ask: AskForApproval, owner: Person, stranger: Person
) -> None:
    stranger.user.user_permissions.add(Permission.objects.get(codename="operate", content_type__app_label="helix"))
    assert world.decide(ask(), principal=owner.principal)["status"] == "accepted"
    assert world.decide(ask(), principal=stranger.principal)["status"] == "accepted"


def test_the_right_is_asked_again_inside_the_decision(
    world: World, ask: AskForApproval, reviewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-180: an assignment that goes between the reading and the lock decides nothing."""
    call = ask()
    reviewer.assigned()
    reach = AssignmentPolicy.reach

    def and_then_it_is_gone(policy: AssignmentPolicy, principal: Principal) -> Any:
        keys = list(PendingCall.objects.filter(reach(policy, principal)).values_list("pk", flat=True))
        Assignment.objects.all().delete()
        return Q(pk__in=keys)

    monkeypatch.setattr(AssignmentPolicy, "reach", and_then_it_is_gone)
    with pytest.raises(Forbidden) as refused:
        world.decide(call, principal=reviewer.principal)
    assert refused.value.fields["cause"] == "not_permitted"
    call.refresh_from_db()
    assert call.answered_at is None


@pytest.mark.parametrize("holders", [(False, False), (True, True)])
def test_an_assignment_has_one_holder(reviewer: Person, holders: tuple[bool, bool]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Assignment.objects.create(
            reviewer=reviewer.user if holders[0] else None, group=reviewer.member_of("r") if holders[1] else None
        )
