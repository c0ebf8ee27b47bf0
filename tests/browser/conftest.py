"""A real server, a real Chromium, and people who log in. Runs in a pytest process of its own (platform: no event loop).

The server is `helix_serve` as a visitor starts it, on a database that is thrown away: SQLite, or one of its own on the
PostgreSQL that ``DATABASE_URL`` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from psycopg import sql

from demo.seed import PASSWORD

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Debian's Chromium, headless and as root, without a word to the network.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@contextmanager
def throw_away_database(directory: Path) -> Iterator[str]:
    """The DATABASE_URL of a new, empty database."""
    given = os.environ.get("DATABASE_URL", "")
    if not given.startswith("postgres"):
        yield f"sqlite:///{directory / 'browser.sqlite3'}"
        return
    name = f"helix_browser_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(given)._replace(path=f"/{name}"))
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Site:
    """The running server. It may be killed and started again over the same rows."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self.address = ""
        self.start()

    def start(self, port: str = "0") -> None:
        """Returns once it has printed where it is."""
        command = [sys.executable, "manage.py", "helix_serve", "--port", port]
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        self.printed = []
        for line in self._process.stdout:
            self.printed.append(line.strip())
            if line.startswith("Open "):
                self.address = line.removeprefix("Open ").strip().rstrip("/")
            if line.strip().startswith("log in as operator"):
                return
        raise AssertionError(f"the server ended before it was ready: {self.printed} {self._log.read_text()}")

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def restart(self) -> None:
        self.kill()
        self.start(str(urlsplit(self.address).port))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with throw_away_database(directory) as database_url:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "DJANGO_"))},
            "DATABASE_URL": database_url,
            "HELIX_STATE_DIR": str(directory),
            # A killed server's work is taken over after this; a test that kills one waits for it.
            "HELIX_LEASE_SECONDS": "3",
            "HELIX_LEASE_RENEW_SECONDS": "1",
        }
        running = Site(environment, directory / "server.log")
        try:
            yield running
        finally:
            running.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert executable is not None, "no Chromium on this machine; `make test` installs one where it may"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield chromium
        chromium.close()


OpenAs = Callable[..., Page]


@pytest.fixture
def open_as(site: Site, browser: Browser) -> Iterator[OpenAs]:
    """``open_as("owner", "/inbox/")``: a window of somebody's own, logged in. Any error in a page fails the test."""
    contexts, errors = [], list[str]()

    def open_window(username: str, path: str = "/", **options: object) -> Page:
        context = browser.new_context(base_url=site.address, locale="en-GB", timezone_id="Europe/Lisbon", **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path)
        page.get_by_label("Name").fill(username)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        return page

    yield open_window
    for context in contexts:
        context.close()
    assert errors == []
