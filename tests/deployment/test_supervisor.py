"""The supervisor: one death ends all, and a signal ends all without calling it a death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helix.serving.processes import Line, Supervisor, read_procfile

# Runs until it is told to end; says so in a file, and says when it was told.
PATIENT = """
import pathlib, signal, sys, threading
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
mark = pathlib.Path(sys.argv[1])
mark.with_suffix(".up").touch()
told.wait()
mark.with_suffix(".told").touch()
"""


@pytest.fixture
def patient(tmp_path: Path) -> str:
    path = tmp_path / "patient.py"
    path.write_text(PATIENT)
    return f"{sys.executable} {path}"


def wait_for(path: Path) -> None:
    """Until ``path`` exists; pytest's own timeout is the bound."""
    pause = threading.Event()
    while not path.exists():
        pause.wait(0.01)


@pytest.mark.processes
def test_the_death_of_one_process_ends_the_others_and_is_named(tmp_path: Path, patient: str) -> None:
    up = tmp_path / "other.up"
    # It dies once the other runs, so that there is something to end.
    mortal = f"{sys.executable} -c \"import os\nwhile not os.path.exists('{up}'): pass\nraise SystemExit(3)\""
    lines = (Line("other", f"{patient} {tmp_path / 'other'}"), Line("mortal", mortal))
    assert Supervisor(lines, {}).run() == ("mortal", 3)
    assert (tmp_path / "other.told").exists()


@pytest.mark.processes
def test_the_death_of_a_watched_server_ends_the_processes_over_it(tmp_path: Path, patient: str) -> None:
    server = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    supervisor = Supervisor((Line("web", f"{patient} {tmp_path / 'web'}"),), {}, {"postgres": server})

    def end_the_server() -> None:
        wait_for(tmp_path / "web.up")
        server.communicate()

    threading.Thread(target=end_the_server).start()
    assert supervisor.run() == ("postgres", 0)
    assert (tmp_path / "web.told").exists()


@pytest.mark.processes
def test_a_signal_ends_everything_and_is_no_death(tmp_path: Path, patient: str) -> None:
    def send_signal() -> None:
        wait_for(tmp_path / "web.up")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=send_signal).start()
    assert Supervisor((Line("web", f"{patient} {tmp_path / 'web'}"),), {}).run() is None
    assert (tmp_path / "web.told").exists()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_procfile_is_read_in_order_without_its_comments(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("# two\nweb: serve --port ${PORT:-8000}\n\nbeat: tick tock\n")
    assert read_procfile(tmp_path / "Procfile") == (
        Line("web", "serve --port ${PORT:-8000}"),
        Line("beat", "tick tock"),
    )
