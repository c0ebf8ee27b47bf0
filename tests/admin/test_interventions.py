"""What an operator does in the console, through the services (R-241, R-665, R-666, R-677)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from helix.models import CallAudit, PendingCall
from tests.kit.world import World, current_run, events, results, session_of

pytestmark = pytest.mark.django_db


def on_call(call: PendingCall, slug: str) -> str:
    return reverse(f"admin:helix_pendingcall_{slug}", args=[call.pk])


def on_session(call: PendingCall, slug: str) -> str:
    return reverse(f"admin:helix_session_{slug}", args=[call.root_id])


def test_force_failing_a_waiting_call_answers_it_and_is_audited(
    world: World, operator: Client, waiting: PendingCall
) -> None:
    shown = operator.get(on_call(waiting, "force-fail"))
    assert "override" not in shown.context["form"].fields
    done = operator.post(on_call(waiting, "force-fail"), {"error": "nobody is there"})
    assert done.status_code == 302
    world.drain()
    assert results(waiting.root_id)["c1"]["error"] == "nobody is there"
    audit = CallAudit.objects.get()
    assert (audit.action, audit.door, audit.address) == ("submit_error", "admin", "127.0.0.1")
    assert audit.actor == str(LogEntry.objects.get().user_id)


def test_force_failing_needs_a_reason(world: World, operator: Client, waiting: PendingCall) -> None:
    refused = operator.post(on_call(waiting, "force-fail"), {"error": "  "})
    assert refused.status_code == 200 and refused.context["form"].errors["error"]
    waiting.refresh_from_db()
    assert waiting.state == "awaiting"


@pytest.mark.parametrize("method", ["get", "head"])
def test_looking_at_a_form_does_nothing(world: World, operator: Client, waiting: PendingCall, method: str) -> None:
    """R-182."""
    for path in (on_call(waiting, "force-fail"), on_call(waiting, "deadline"), on_session(waiting, "abort")):
        assert getattr(operator, method)(path, {"error": "x", "remove": "on"}).status_code == 200
    waiting.refresh_from_db()
    assert waiting.state == "awaiting" and waiting.deadline_at is not None and not CallAudit.objects.exists()


def test_an_executing_body_is_failed_only_with_the_override(
    world: World, operator: Client, executing: PendingCall
) -> None:
    """R-677: the refusal stands on the form and names the holder."""
    refused = operator.post(on_call(executing, "force-fail"), {"error": "stuck"})
    assert refused.status_code == 200 and "state_already_running" in refused.content.decode()
    executing.refresh_from_db()
    assert executing.state == "executing"
    assert operator.post(on_call(executing, "force-fail"), {"error": "stuck", "override": "on"}).status_code == 302
    world.drain()
    assert results(executing.root_id)["b1"]["error"] == "stuck"
    assert CallAudit.objects.get().after == {"override": True}


def test_a_deadline_is_moved_and_readers_are_told(world: World, operator: Client, waiting: PendingCall) -> None:
    """R-241."""
    later = world.now + timedelta(hours=2)
    assert operator.post(on_call(waiting, "deadline"), {"deadline_at": f"{later:%Y-%m-%dT%H:%M:%S}"}).status_code == 302
    waiting.refresh_from_db()
    assert waiting.deadline_at == later
    assert events(waiting.root_id, "deadline_changed")[0]["deadlineAt"] == "2026-03-01T14:00:00Z"
    audit = CallAudit.objects.get()
    assert (audit.action, audit.door) == ("move_deadline", "admin")
    assert audit.after == {"deadlineAt": "2026-03-01T14:00:00Z"}


def test_a_deadline_is_removed(world: World, operator: Client, waiting: PendingCall) -> None:
    assert operator.post(on_call(waiting, "deadline"), {"remove": "on"}).status_code == 302
    waiting.refresh_from_db()
    assert waiting.deadline_at is None
    world.tick(days=30)
    world.sweep()
    assert session_of(waiting.root_id).status == "awaiting_client_tool"


@pytest.mark.parametrize("given", [{}, {"deadline_at": "2026-03-01T12:00:00"}, {"deadline_at": "soon"}])
def test_a_deadline_that_is_past_or_missing_is_refused(
    world: World, operator: Client, waiting: PendingCall, given: dict[str, str]
) -> None:
    before = waiting.deadline_at
    refused = operator.post(on_call(waiting, "deadline"), given)
    assert refused.status_code == 200 and refused.context["form"].errors["deadline_at"]
    waiting.refresh_from_db()
    assert waiting.deadline_at == before


@pytest.mark.parametrize(("slug", "status"), [("interrupt", "interrupted"), ("abort", "failed")])
def test_a_conversation_is_stopped_with_its_reason(
    world: World, operator: Client, waiting: PendingCall, slug: str, status: str
) -> None:
    assert operator.post(on_session(waiting, slug), {"reason": "maintenance"}).status_code == 302
    run = current_run(waiting.root_id)
    assert (run.status, run.stop_reason) == (status, "maintenance")
    assert session_of(waiting.root_id).status == status


def test_an_intervention_that_comes_too_late_says_so(world: World, operator: Client, waiting: PendingCall) -> None:
    world.submit(waiting.root_id, "c1", result={"city": "Bern"})
    refused = operator.post(on_call(waiting, "deadline"), {"remove": "on"})
    assert refused.status_code == 200 and "unknown_tool_call" in refused.content.decode()
    assert not LogEntry.objects.exists()


def test_only_what_would_change_something_is_offered(world: World, operator: Client, waiting: PendingCall) -> None:
    page = reverse("admin:helix_pendingcall_change", args=[waiting.pk])
    assert [label for label, _ in operator.get(page).context["buttons"]] == ["Force-fail", "Move deadline"]
    world.submit(waiting.root_id, "c1", result={"city": "Bern"})
    assert operator.get(page).context["buttons"] == []


@pytest.mark.parametrize("slug", ["force-fail", "deadline"])
def test_nobody_but_an_operator_intervenes(
    spectator: Client, operator: Client, waiting: PendingCall, slug: str
) -> None:
    said = {"error": "x", "remove": "on"}
    assert spectator.post(on_call(waiting, slug), said).status_code == 403
    assert spectator.get(on_call(waiting, slug)).status_code == 403
    page = spectator.get(reverse("admin:helix_pendingcall_change", args=[waiting.pk]))
    assert page.status_code == 200 and page.context["buttons"] == []
    assert operator.post(on_call(waiting, slug), said).status_code == 302


def test_a_request_from_another_site_does_nothing(operator: Client, waiting: PendingCall) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(on_call(waiting, "force-fail"), {"error": "x"}).status_code == 403
    waiting.refresh_from_db()
    assert waiting.state == "awaiting"
