"""The console as people see it: who may look, what is hidden, what it costs to open (R-396, R-667)."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from helix.admin.inspection import BoundedPaginator, Inspection
from helix.models import CallAudit, PendingCall, RemoteDebt, Session, StreamEvent, SweepMark
from helix.rows.calls import PLACEHOLDER
from helix.statuses import DebtKind
from tests.admin.conftest import CANARY, locate, pay
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import World, call_named

pytestmark = pytest.mark.django_db

INSPECTED = sorted(
    model._meta.model_name
    for model in admin.site._registry
    if model._meta.app_label == "helix" and model._meta.model_name
)


def list_of(model: str) -> str:
    return reverse(f"admin:helix_{model}_changelist")


def page_of(row: Model, model: str) -> str:
    return reverse(f"admin:helix_{model}_change", args=[row.pk])


def every_page(client: Client) -> str:
    """What every list and every row's page of the core say to this person."""
    said = []
    for model, page in admin.site._registry.items():
        if model._meta.app_label != "helix":
            continue
        name = str(model._meta.model_name)
        answers = [client.get(list_of(name)), *[client.get(page_of(row, name)) for row in model._default_manager.all()]]
        assert {answer.status_code for answer in answers} == {200}, name
        assert isinstance(page, Inspection)
        said += [answer.content.decode() for answer in answers]
    return "\n".join(said)


def fill(world: World, agent: AgentMaker) -> None:
    """At least one row of every table that has a page."""
    model = ScriptedModel([call("locate", "c7"), call("pay", "a7", cents=5)], ["done"])
    session_id = world.started(agent(model, tools=[locate, pay]))
    world.decide(call_named(session_id, "pay"))
    RemoteDebt.objects.create(
        kind=DebtKind.STOP,
        delegation_id="d1",
        url="https://peer.example/",
        next_attempt_at=world.now,
        window_ends_at=world.now,
    )


def test_every_table_that_operators_need_has_a_page() -> None:
    wanted = {"session", "run", "pendingcall", "calltombstone", "callownership", "callaudit", "checkpoint"}
    assert wanted | {"streamevent", "usagerecord", "remotechild", "remotedebt", "sweepmark"} == set(INSPECTED)


def test_every_page_opens_for_an_operator(
    world: World, agent: AgentMaker, operator: Client, private: PendingCall
) -> None:
    fill(world, agent)
    said = every_page(operator)
    assert "look_up" in said and SweepMark.objects.exists() and CallAudit.objects.exists()


def test_a_private_value_is_on_no_page_without_the_permission(
    world: World, agent: AgentMaker, operator: Client, trusted_operator: Client, private: PendingCall
) -> None:
    """R-396, with its control: the same pages name it to an operator who may look."""
    fill(world, agent)
    CallAudit.objects.create(call=private, action="test", actor="x", at=world.now, after={"argumentsJson": CANARY})
    said = every_page(operator)
    assert CANARY not in said and PLACEHOLDER in said
    assert every_page(trusted_operator).count(CANARY) >= 2


def test_the_permission_alone_reveals_nothing_to_somebody_who_is_no_operator(
    spectator: Client, private: PendingCall
) -> None:
    """R-396: redaction ends for operators only."""
    page = spectator.get(page_of(private, "pendingcall"))
    assert page.status_code == 200 and CANARY not in page.content.decode()


def test_the_next_request_does_not_see_by_the_sight_of_the_last(
    operator: Client, trusted_operator: Client, private: PendingCall
) -> None:
    assert CANARY in trusted_operator.get(page_of(private, "pendingcall")).content.decode()
    assert CANARY not in operator.get(page_of(private, "pendingcall")).content.decode()


@pytest.mark.parametrize("column", ["arguments_json", "answer_json", "arguments"])
def test_a_filter_in_the_address_does_not_tell_hidden_values(
    operator: Client, private: PendingCall, column: str
) -> None:
    refused = operator.get(list_of("pendingcall"), {f"{column}__startswith": "{"})
    assert refused.status_code == 400
    assert operator.get(list_of("pendingcall"), {"state__exact": "consumed"}).status_code == 200


@pytest.mark.parametrize("model", INSPECTED)
def test_staff_of_another_application_see_nothing(stranger: Client, operator: Client, model: str) -> None:
    assert stranger.get(list_of(model)).status_code == 403
    assert operator.get(list_of(model)).status_code == 200


@pytest.mark.parametrize("model", INSPECTED)
def test_nothing_is_added_by_hand(operator: Client, model: str) -> None:
    assert operator.get(reverse(f"admin:helix_{model}_add")).status_code == 403


def test_nothing_is_changed_or_deleted_by_hand(operator: Client, waiting: PendingCall) -> None:
    event = StreamEvent.objects.first()
    assert event is not None
    for model, row in (("session", waiting.root), ("pendingcall", waiting), ("streamevent", event)):
        assert operator.get(page_of(row, model)).status_code == 200
        assert operator.post(page_of(row, model), {"owner": "somebody"}).status_code == 403
        assert operator.post(reverse(f"admin:helix_{model}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    assert Session.objects.get().owner == "owner" and PendingCall.objects.exists()


@pytest.mark.parametrize("model", INSPECTED)
def test_no_list_counts_a_whole_table(operator: Client, waiting: PendingCall, model: str) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        operator.get(list_of(model))
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()]
    assert counts
    assert all(f"LIMIT {BoundedPaginator.MOST}" in sql for sql in counts)


def test_a_count_stops_at_its_bound(world: World, waiting: PendingCall, monkeypatch: pytest.MonkeyPatch) -> None:
    events = StreamEvent.objects.order_by("-id")
    assert BoundedPaginator(events, 2).count == events.count() > 3
    monkeypatch.setattr(BoundedPaginator, "MOST", 3)
    assert BoundedPaginator(events, 2).count == 3


def test_a_list_of_calls_takes_as_many_queries_for_ten_as_for_one(
    world: World, agent: AgentMaker, operator: Client, waiting: PendingCall
) -> None:
    operator.get(list_of("pendingcall"))
    with CaptureQueriesContext(connection) as few:
        operator.get(list_of("pendingcall"))
    for number in range(9):
        world.started(agent(ScriptedModel([call("locate", f"m{number}")], ["done"]), tools=[locate]))
    with CaptureQueriesContext(connection) as many:
        operator.get(list_of("pendingcall"))
    assert len(many) == len(few)


@pytest.mark.parametrize("term", ["c1", "locate", "owner", "{root}", "{root} c1"])
def test_a_call_is_found_by_its_keys(operator: Client, waiting: PendingCall, term: str) -> None:
    page = operator.get(list_of("pendingcall"), {"q": term.format(root=waiting.root_id)})
    assert "1 pending call" in page.content.decode()
    none = operator.get(list_of("pendingcall"), {"q": term.format(root=waiting.root_id) + " nobody"})
    assert "0 pending calls" in none.content.decode()


def test_the_session_page_says_what_it_waits_for_and_for_whom(operator: Client, waiting: PendingCall) -> None:
    """R-667."""
    said = operator.get(page_of(waiting.root, "session")).content.decode()
    assert "1 answer from outside" in said
    assert "a client of owner, until 2026-03-01 12:05:00 UTC" in said
