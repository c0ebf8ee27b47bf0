"""Who may open a socket: cookies from our own pages, tokens from anywhere, never in a URL (R-385a, R-397)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.test import Client as BrowserClient
from pytest_django import Settings

from helix.principals import Principal
from tests.kit.world import World
from tests.streaming.conftest import aside, opened, says_who

pytestmark = pytest.mark.django_db(transaction=True)

OWN, FOREIGN = b"http://testserver", b"http://elsewhere.example"


def by_cookie_or_token(operation: str, request: HttpRequest) -> Any:
    """As the shipped hook does: the token when there is one that is known, else the login."""
    found = says_who(operation, request)
    if found is None and request.user.is_authenticated:
        return Principal(id=str(request.user.pk))
    return found


def login() -> bytes:
    user = get_user_model().objects.create_user("somebody", password="demo-only")
    browser = BrowserClient()
    browser.force_login(user)
    return (
        f"{django_settings.SESSION_COOKIE_NAME}={browser.cookies[django_settings.SESSION_COOKIE_NAME].value}".encode()
    )


def bearer(name: str) -> list[str]:
    return ["helix", "helix.bearer." + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")]


@pytest.fixture(autouse=True)
def hook(streaming_world: World, settings: Settings) -> None:
    settings.HELIX_AUTHENTICATE = by_cookie_or_token
    settings.CSRF_TRUSTED_ORIGINS = ["https://*.trusted.example"]


def headers(*, cookie: bytes | None = None, origin: bytes | None = None) -> list[tuple[bytes, bytes]]:
    found = [(b"host", b"testserver")]
    found += [(b"cookie", cookie)] if cookie else []
    return found + ([(b"origin", origin)] if origin else [])


@pytest.mark.parametrize(
    ("origin", "is_open"),
    [
        (OWN, True),
        (None, True),
        (b"https://app.trusted.example", True),
        (FOREIGN, False),
        (b"http://app.trusted.example", False),
        (b"https://trusted.example.evil.example", False),
        (b"http://testserver:81", False),
        (b"null", False),
        (b"http://[", False),
    ],
)
async def test_a_cookie_counts_from_our_own_pages_only(origin: bytes | None, is_open: bool) -> None:
    """R-385a: browsers send it along from anywhere."""
    cookie = await aside(login)
    async with opened("/ws/inbox/", who=None, headers=headers(cookie=cookie, origin=origin)) as client:
        if is_open:
            assert (await client.frame())["type"] == "inbox"
        else:
            assert await client.closing() == (4403, "transport_forbidden")


async def test_without_a_cookie_our_own_page_is_nobody() -> None:
    async with opened("/ws/inbox/", who=None, headers=headers(origin=OWN)) as client:
        assert await client.closing() == (4401, "transport_unauthorized")


@pytest.mark.parametrize("origin", [OWN, FOREIGN, None])
async def test_a_token_travels_as_a_subprotocol_and_is_never_sent_back(origin: bytes | None) -> None:
    """R-397."""
    async with opened("/ws/inbox/", who=None, headers=headers(origin=origin), subprotocols=bearer("owner")) as client:
        assert client.subprotocol == "helix"
        assert (await client.frame())["type"] == "inbox"


async def test_a_token_in_the_address_is_not_looked_at() -> None:
    """R-397."""
    async with opened("/ws/inbox/?token=owner&access_token=owner", who=None) as client:
        assert await client.closing() == (4401, "transport_unauthorized")


@pytest.mark.parametrize(("origin", "is_open"), [(FOREIGN, False), (OWN, True)])
async def test_a_bad_token_does_not_lend_a_foreign_page_the_cookie(origin: bytes, is_open: bool) -> None:
    """The hook would fall back to the login; from elsewhere there is none to fall back to."""
    cookie = await aside(login)
    async with opened(
        "/ws/inbox/", who=None, headers=headers(cookie=cookie, origin=origin), subprotocols=bearer("made-up")
    ) as client:
        if is_open:
            assert (await client.frame())["type"] == "inbox"
        else:
            assert await client.closing() == (4401, "transport_unauthorized")


@pytest.mark.parametrize("offered", ["helix.bearer.!!!", "helix.bearer.w6k", "helix.bearer."])
async def test_a_token_that_cannot_be_read_is_nobodys(offered: str) -> None:
    async with opened("/ws/inbox/", who=None, subprotocols=["helix", offered]) as client:
        assert await client.closing() == (4401, "transport_unauthorized")


async def test_a_host_that_is_not_ours_is_no_origin_of_ours() -> None:
    """A name that an attacker points at this address is in both headers (DNS rebinding)."""
    cookie = await aside(login)
    rebound = [(b"host", b"rebound.example"), (b"cookie", cookie), (b"origin", b"http://rebound.example")]
    async with opened("/ws/inbox/", who=None, headers=rebound) as client:
        assert await client.closing() == (4403, "transport_forbidden")


async def test_a_hook_may_be_asynchronous(settings: Settings) -> None:
    """R-383."""

    async def asynchronous(operation: str, request: HttpRequest) -> Any:
        return says_who(operation, request)

    settings.HELIX_AUTHENTICATE = asynchronous
    async with opened("/ws/inbox/") as client:
        assert (await client.frame())["type"] == "inbox"
