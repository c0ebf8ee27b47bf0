"""The demonstration's logins and agents: made once, harmless where others can reach, ready for a real model."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from approvals.models import Assignment
from demo.agents import INTRODUCTIONS, REFUND_DESK, TRIP_PLANNER
from demo.seed import PASSWORD, seed
from helix.agents import StepContext, lookup
from helix.principals import principal_of
from tests.kit.world import World, call_named, events, pending, results

pytestmark = pytest.mark.django_db
LOGINS = [(name, PASSWORD) for name in ("owner", "reviewer", "operator")]


@pytest.fixture
def local(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1"]


def test_seeding_again_changes_nothing(local: None) -> None:
    assert seed() == LOGINS
    assert seed() == LOGINS
    assert (User.objects.count(), Assignment.objects.count()) == (3, 1)


def test_a_login_with_another_password_keeps_it_and_is_not_printed(local: None) -> None:
    seed()
    user = User.objects.get(username="owner")
    user.set_password("changed")
    user.save()
    assert seed() == LOGINS[1:]
    user.refresh_from_db()
    assert user.check_password("changed")


def test_a_server_that_others_reach_gets_no_known_password(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "helix.example.org"]
    assert seed() == ()
    assert not User.objects.exists()


def test_the_operator_operates_and_sees_no_private_values(local: None) -> None:
    """R-396."""
    seed()
    operator = principal_of(User.objects.get(username="operator"))
    assert (operator.is_operator, operator.views_private_values) == (True, False)
    assert not principal_of(User.objects.get(username="reviewer")).is_operator


@pytest.mark.parametrize("agent_type", [REFUND_DESK, TRIP_PLANNER])
def test_the_same_agents_run_on_a_real_model(settings: Settings, agent_type: str) -> None:
    step = StepContext(session_id="s", root_id="s", run_id="r", agent_type=agent_type, owner="o", step=1)
    assert lookup(agent_type).model_for(step) == f"scripted:{agent_type}"
    settings.HELIX_MODEL = "openai:some-model"
    assert lookup(agent_type).model_for(step) == "openai:some-model"
    assert agent_type in INTRODUCTIONS


def test_the_desk_asks_the_page_then_the_reviewer_and_pays(
    world: World, local: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demo.scripts.WORD_SECONDS", 0)
    seed()
    owner = principal_of(User.objects.get(username="owner"))
    reviewer = principal_of(User.objects.get(username="reviewer"))
    session_id = world.started(lookup(REFUND_DESK), "The lamp of order 2077 is broken", principal=owner)
    (photo,) = pending(session_id)
    chosen = {"name": "p.png", "width": 1, "height": 1, "averageColor": "rgb(0, 0, 0)"}
    world.submit(session_id, photo.tool_call_id, principal=owner, result=chosen)
    world.drain()
    world.decide(call_named(session_id, "pay_refund"), principal=reviewer)
    world.drain()
    called = {part["toolName"] for part in results(session_id).values()}
    assert called == {"lookup_order", "choose_photo", "pay_refund"}
    assert not any("error" in part for part in results(session_id).values())
    assert "REF-2077" in events(session_id, "step_committed")[-1]["text"]
