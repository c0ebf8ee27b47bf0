"""The real AI SDK, in every version that the chat routes promise to serve, against a real server (docs/ai-sdk.md).

The scenarios are in ``aisdk/chat.test.mjs``; each version plays all of them. Needs Node 20 or newer and npm; the
packages are installed once, from the lock file, when they are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "aisdk"
VERSIONS = {
    "ai-5": "5.0.277",
    "ai-5-strict": "5.0.90",
    "ai-6": "6.0.325",
    "ai-6-strict": "6.0.57",
    "ai-7": "7.0.173",
    "ai-7-strict": "7.0.0",
}
# A scenario that waits for what never comes fails by this, in milliseconds; none waits for a time to pass.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def packages() -> None:
    assert shutil.which("npm"), "no npm on this machine: install Node 20 or newer"
    lock, installed = CLIENTS / "package-lock.json", CLIENTS / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=CLIENTS, check=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, as ``make run`` starts one, with the agents of these tests."""
    state = tmp_path_factory.mktemp("aisdk")
    hidden = ("HELIX_", "DJANGO_", "DATABASE_")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        "HELIX_STATE_DIR": str(state),
        "HELIX_AGENTS": "tests.clients.aisdk.agents.AGENTS",
        "HELIX_AUTHENTICATE": "tests.clients.aisdk.agents.believe",
        "HELIX_APPROVAL_POLICY": "helix.policy.OwnerDecides",
    }
    command = [sys.executable, "manage.py", "helix_serve", "--port", "0"]
    log = state / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        try:
            assert server.stdout is not None
            opened = next((line for line in server.stdout if line.startswith("Open ")), None)
            assert opened is not None, log.read_text()
            yield opened.removeprefix("Open ").strip()
        finally:
            server.kill()


@pytest.mark.parametrize("package", VERSIONS)
def test_every_scenario_of_the_stock_chat_in(package: str, packages: None, address: str) -> None:
    """R-113, R-135, R-174, R-294, R-355, R-356, R-357, R-358, R-463: on the real client."""
    command = ["node", "--test", f"--test-timeout={PATIENCE_MS}", "--test-reporter=spec", "chat.test.mjs"]
    environment = {**os.environ, "AI_PACKAGE": package, "HELIX_ADDRESS": address}
    done = subprocess.run(command, cwd=CLIENTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{package}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("package", VERSIONS)
def test_the_package_is_the_pinned_one(package: str, packages: None) -> None:
    """The names of the aliases say nothing of what the lock file installs."""
    text = (CLIENTS / "node_modules" / package / "package.json").read_text()
    assert f'"version": "{VERSIONS[package]}"' in text
