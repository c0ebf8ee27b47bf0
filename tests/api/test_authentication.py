"""Who gets in, with what, and how far (5.M)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern
from pytest_django.fixtures import Settings

from helix.api import tokens
from helix.api.urls import urlpatterns
from helix.operations import Refusal
from helix.principals import Principal
from tests.api.conftest import Door, body_of, locate
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import OWNER, World

pytestmark = pytest.mark.django_db

UNAUTHORIZED = {"error": "Authentication is needed.", "code": "transport_unauthorized", "retryable": False}
GOOD = {"toolCallId": "c1", "result": {"city": "Bern"}}


# -- the hook ----------------------------------------------------------------------------------------------------------


def paths() -> list[tuple[str, str, str]]:
    """(method, path, operation) of every route."""
    found = []
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        path = str(pattern.pattern).replace("<str:session_id>", "s1").replace("<path:tool_call_id>", "c1")
        view = pattern.callback.view_class  # type: ignore[attr-defined]
        found += [("get", path, view.reads)] if view.reads else []
        found += [("post", path, view.writes)] if view.writes else []
    return found


@pytest.mark.parametrize(("method", "path", "operation"), paths())
def test_every_route_asks_the_hook_first_and_names_its_operation(
    settings: Settings, method: str, path: str, operation: str
) -> None:
    """R-380, R-383, R-394: no database is needed to be turned away, and no body is read."""
    asked: list[str] = []

    def hook(name: str, request: Any) -> None:
        assert request.META["CONTENT_TYPE"] == "text/plain"
        asked.append(name)

    settings.HELIX_AUTHENTICATE = hook
    ask = getattr(Client(), method)
    refused = (
        ask(
            f"/api/{path}",
            **({"data": "{"} if method == "post" else {}),
            CONTENT_TYPE="text/plain",
            content_type="text/plain",
        )
        if method == "post"
        else ask(f"/api/{path}", CONTENT_TYPE="text/plain")
    )
    assert (refused.status_code, body_of(refused)) == (401, UNAUTHORIZED)
    assert asked == [operation]


def ask_with(settings: Settings, hook: Any) -> HttpResponse:
    settings.HELIX_AUTHENTICATE = hook
    return Door(None).get("sessions")


def broken(operation: str, request: Any) -> Principal:
    raise RuntimeError("canary-hook")


async def eventually(operation: str, request: Any) -> Principal:
    return OWNER


@pytest.mark.parametrize("hook", [lambda o, r: OWNER, eventually], ids=["sync", "async"])
def test_a_hook_may_be_sync_or_async(settings: Settings, hook: Any) -> None:
    """R-383."""
    assert ask_with(settings, hook).status_code == 200


@pytest.mark.parametrize("hook", [lambda o, r: None, lambda o, r: False, broken, lambda o, r: "owner", lambda o: OWNER])
def test_anything_but_a_principal_is_a_generic_refusal(settings: Settings, hook: Any) -> None:
    """R-384, R-347. Nothing of an exception's text leaves."""
    refused = ask_with(settings, hook)
    assert (refused.status_code, body_of(refused)) == (401, UNAUTHORIZED)
    assert refused["WWW-Authenticate"] == "Bearer"


def test_a_broken_hook_is_an_error_in_the_log(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """R-384."""
    with caplog.at_level(logging.ERROR, "helix.auth"):
        ask_with(settings, broken)
    assert [(record.message, bool(record.exc_info)) for record in caplog.records if record.name == "helix.auth"] == [
        ("auth.hook_failed", True)
    ]


def test_a_hook_refuses_in_its_own_words(settings: Settings) -> None:
    """R-348."""
    refusal = Refusal(402, "billing_unpaid", "The account is not paid.", fields={"until": "tomorrow"})
    refused = ask_with(settings, lambda operation, request: refusal)
    assert refused.status_code == 402
    assert body_of(refused) == {
        "error": "The account is not paid.",
        "code": "billing_unpaid",
        "retryable": False,
        "until": "tomorrow",
    }


def test_without_a_hook_nobody_gets_in_unless_that_is_said_in_writing(settings: Settings) -> None:
    """R-381."""
    assert ask_with(settings, None).status_code == 401
    settings.HELIX_ALLOW_UNAUTHENTICATED = True
    assert ask_with(settings, None).status_code == 200


# -- Django's login ----------------------------------------------------------------------------------------------------


@pytest.fixture
def user(settings: Settings) -> User:
    settings.HELIX_AUTHENTICATE = "helix.api.auth.login_or_token"
    return User.objects.create(username="owner")


def logged_in(user: User) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def csrf_of(client: Client) -> dict[str, str]:
    """A token as a page of this host gets one."""
    client.get("/admin/login/")
    return {"X-CSRFToken": client.cookies["csrftoken"].value}


def stop(client: Client, **headers: str) -> HttpResponse:
    return client.post("/api/interrupt", {"sessionId": "s1"}, content_type="application/json", headers=headers)


def test_a_login_reads_and_with_its_csrf_token_writes(user: User) -> None:
    """R-385a: a browser sends the cookie by itself, so that alone writes nothing."""
    client = logged_in(user)
    assert client.get("/api/sessions").status_code == 200
    refused = stop(client)
    assert (refused.status_code, body_of(refused)["code"], body_of(refused)["cause"]) == (
        403,
        "transport_forbidden",
        "csrf",
    )
    assert stop(client, **csrf_of(client)).status_code == 404


def test_a_form_of_another_site_writes_nothing(user: User) -> None:
    client = logged_in(user)
    form = client.post("/api/interrupt", "sessionId=s1", content_type="application/x-www-form-urlencoded")
    assert form.status_code == 403
    foreign = stop(client, Origin="https://elsewhere.example", **csrf_of(client))
    assert foreign.status_code == 403


def test_a_form_too_large_for_django_is_refused_typed(user: User, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    form = logged_in(user).post("/api/interrupt", "a=" + "x" * 99, content_type="application/x-www-form-urlencoded")
    assert (form.status_code, body_of(form)["cause"]) == (403, "csrf")


def test_a_user_who_was_switched_off_is_nobody(user: User) -> None:
    client = logged_in(user)
    assert client.get("/api/sessions").status_code == 200
    User.objects.update(is_active=False)
    assert client.get("/api/sessions").status_code == 401


def test_nobody_is_nobody(user: User) -> None:
    assert Client().get("/api/sessions").status_code == 401


def test_an_operator_reaches_every_session(user: User, world: World, agent: AgentMaker) -> None:
    """R-398. Control: without the permission the same user does not."""
    session_id = world.create(agent(ScriptedModel(["ok"])))
    assert logged_in(user).get(f"/api/sessions/{session_id}").status_code == 404
    user.user_permissions.add(Permission.objects.get(content_type__app_label="helix", codename="operate"))
    assert logged_in(user).get(f"/api/sessions/{session_id}").status_code == 200


# -- signed tokens -----------------------------------------------------------------------------------------------------


def bearing(text: str, client: Client | None = None) -> Callable[..., HttpResponse]:
    """``ask("get", "sessions")`` with the token."""
    client = client or Client(enforce_csrf_checks=True)

    def ask(method: str, path: str, body: Any = None) -> HttpResponse:
        more = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(client, method)(f"/api/{path}", headers={"Authorization": f"Bearer {text}"}, **more)

    return ask


@pytest.fixture
def owned(user: User, world: World, agent: AgentMaker) -> UUID:
    """A conversation of the user that waits for ``c1``."""
    model = ScriptedModel([call("locate", "c1")], ["ok"])
    return world.started(agent(model, tools=[locate]), principal=Principal(id=str(user.pk)))


def test_a_token_needs_no_cookie_and_no_csrf(user: User, owned: UUID) -> None:
    ask = bearing(tokens.issue(str(user.pk)))
    assert ask("get", f"sessions/{owned}").status_code == 200
    assert ask("post", f"chat/{owned}/submit-tool-result", GOOD).status_code == 200


def test_a_token_lives_for_fifteen_minutes(user: User) -> None:
    """R-385a."""
    text = tokens.issue(str(user.pk))
    with mock.patch("django.core.signing.time") as host:
        import time

        host.time.return_value = time.time() + 899
        assert bearing(text)("get", "sessions").status_code == 200
        host.time.return_value += 2
        assert body_of(bearing(text)("get", "sessions")) == UNAUTHORIZED


@pytest.mark.parametrize("damage", [lambda text: text[:-1] + "x", lambda text: "", lambda text: text + " x"])
def test_a_damaged_token_is_nobodys(user: User, damage: Callable[[str], str]) -> None:
    refused = bearing(damage(tokens.issue(str(user.pk))))("get", "sessions")
    assert (refused.status_code, body_of(refused)) == (401, UNAUTHORIZED)


def test_a_bad_token_is_not_rescued_by_a_cookie(user: User) -> None:
    assert bearing("forged", logged_in(user))("get", "sessions").status_code == 401


def test_a_token_in_a_url_is_nothing(user: User) -> None:
    """R-397."""
    assert Client().get("/api/sessions", {"token": tokens.issue(str(user.pk))}).status_code == 401


def test_a_token_of_one_session_is_refused_for_another(user: User, owned: UUID) -> None:
    """R-385, B-22: judged from the names alone, whether or not there is such a session."""
    ask = bearing(tokens.issue(str(user.pk), session_id=str(owned)))
    assert ask("get", f"sessions/{owned}").status_code == 200
    for other in (str(uuid4()), "desk"):
        for refused in (
            ask("get", f"sessions/{other}"),
            ask("get", f"status?sessionId={other}"),
            ask("post", f"chat/{other}/submit-tool-result", GOOD),
            ask("post", "submit-tool-result", {"sessionId": other, **GOOD}),
            ask("post", "interrupt", {"sessionId": other}),
        ):
            assert (refused.status_code, body_of(refused)["code"]) == (403, "transport_forbidden")
            assert body_of(refused)["cause"] == "session_mismatch"


def test_a_token_of_one_session_makes_no_other(user: User, owned: UUID, agent: AgentMaker) -> None:
    ask = bearing(tokens.issue(str(user.pk), session_id=str(owned)))
    name = agent(ScriptedModel(["ok"])).name
    assert ask("post", "sessions", {"agentType": name}).status_code == 403
    assert ask("post", "start", {"agentType": name, "message": "x"}).status_code == 403
    free = bearing(tokens.issue(str(user.pk)))
    assert free("post", "sessions", {"agentType": name}).status_code == 201


def test_a_token_of_one_session_lists_only_that_one(user: User, owned: UUID, world: World, agent: AgentMaker) -> None:
    """R-398."""
    world.create(agent(ScriptedModel(["ok"])), principal=Principal(id=str(user.pk)))
    assert len(body_of(bearing(tokens.issue(str(user.pk)))("get", "sessions"))["sessions"]) == 2
    rows = body_of(bearing(tokens.issue(str(user.pk), session_id=str(owned)))("get", "sessions"))["sessions"]
    assert [row["sessionId"] for row in rows] == [str(owned)]


def test_a_token_asks_for_its_operations_only(user: User, owned: UUID) -> None:
    ask = bearing(tokens.issue(str(user.pk), operations=["session"]))
    assert ask("get", f"sessions/{owned}").status_code == 200
    refused = ask("post", f"chat/{owned}/submit-tool-result", GOOD)
    assert (refused.status_code, body_of(refused)["cause"]) == (403, "not_permitted")


def test_a_token_makes_no_operator(user: User, waiting: UUID) -> None:
    """A token gives what it names: the same user, logged in, reaches every session."""
    User.objects.update(is_superuser=True)
    user.refresh_from_db()
    assert logged_in(user).get(f"/api/sessions/{waiting}").status_code == 200
    assert bearing(tokens.issue(str(user.pk)))("get", f"sessions/{waiting}").status_code == 404
