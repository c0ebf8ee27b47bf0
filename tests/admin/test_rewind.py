"""An operator takes a conversation back to a checkpoint (R-566, RT-21)."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from helix.models import Checkpoint, PendingCall
from tests.kit.world import World, current_run, pending, session_of

pytestmark = pytest.mark.django_db


def page(point: Checkpoint) -> str:
    return reverse("admin:helix_checkpoint_rewind", args=[point.pk])


def test_an_operator_rewinds_a_conversation_after_reading_what_will_happen(
    world: World, operator: Client, waiting: PendingCall
) -> None:
    """R-182: looking does nothing, and a post without the tick neither."""
    point = Checkpoint.objects.get()
    world.submit(waiting.root_id, "c1", result={"city": "Bern"})
    world.drain()
    ended = current_run(waiting.root_id)
    assert "goes on from here" in operator.get(page(point)).content.decode()
    assert operator.post(page(point), {}).context["form"].errors["confirmed"]
    assert current_run(waiting.root_id) == ended

    assert operator.post(page(point), {"confirmed": "on"}).status_code == 302
    run = current_run(waiting.root_id)
    assert (run.cause, run.status) == ("resume_from_checkpoint", "suspended_client_tool")
    assert [one.tool_call_id for one in pending(waiting.root_id)] == ["c1"]
    assert point.checkpoint_id in LogEntry.objects.get().change_message


def test_a_rewind_that_the_core_refuses_says_why(world: World, operator: Client, waiting: PendingCall) -> None:
    """R-450: a turn has been queued meanwhile; nothing is rewound."""
    world.submit(waiting.root_id, "c1", result={"city": "Bern"})
    refused = operator.post(page(Checkpoint.objects.get()), {"confirmed": "on"})
    assert refused.status_code == 200 and "state_already_running" in refused.content.decode()
    assert current_run(waiting.root_id).cause == "continuation"


def test_it_is_offered_on_the_page_of_a_checkpoint_to_operators_only(
    world: World, operator: Client, spectator: Client, waiting: PendingCall
) -> None:
    point = Checkpoint.objects.get()
    shown = operator.get(reverse("admin:helix_checkpoint_change", args=[point.pk]))
    assert [label for label, _ in shown.context["buttons"]] == ["Rewind to here"]
    assert spectator.post(page(point), {"confirmed": "on"}).status_code == 403
    assert session_of(waiting.root_id).current_run_id == waiting.run_id
