"""The processes of the Procfile under one supervisor: the death of one ends all, loudly.

A half-dead stack answers requests and drives no run. Ending everything lets whoever started the stack start it again;
rows say where to go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

STOP_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Line:
    """One line of a Procfile."""

    name: str
    command: str


def read_procfile(path: Path) -> tuple[Line, ...]:
    """The processes in declared order; empty lines and comments are left out."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return tuple(Line(name.strip(), command.strip()) for name, _, command in pairs)


class Supervisor:
    """Starts every line in a process group of its own and ends them all together.

    environment: added to this process's own.  watched: processes that run already; their death counts too, but
    whoever started them stops them.
    """

    def __init__(
        self,
        lines: tuple[Line, ...],
        environment: Mapping[str, str],
        watched: Mapping[str, subprocess.Popen[bytes]] | None = None,
    ) -> None:
        self._lines = lines
        # `python` in a Procfile is the interpreter that runs this, whether or not its environment is activated.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self._environment = {**os.environ, "PATH": path, **environment}
        self._watched = watched or {}
        self._over = threading.Event()
        self._first_to_end: tuple[str, int] | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> tuple[str, int] | None:
        """Run until a signal or the first death. None: a signal; else who ended, and with which status."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for name, process in self._watched.items():
                self._watch(name, process)
            for line in self._lines:
                self._running[line.name] = self._start(line)
                self._watch(line.name, self._running[line.name])
            self._over.wait()
        finally:
            self._stop_all()
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self._first_to_end

    def _start(self, line: Line) -> subprocess.Popen[bytes]:
        # The shell expands variables of the line and is replaced by the program, so that the group has one leader.
        return subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", f"exec {line.command}"], env=self._environment, start_new_session=True
        )

    def _watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        def wait_for_its_end() -> None:
            status = process.wait()
            if not self._over.is_set():
                self._first_to_end = (name, status)
                self._over.set()

        threading.Thread(target=wait_for_its_end, name=f"helix-watch-{name}", daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._over.set()

    def _stop_all(self) -> None:
        self._over.set()
        for process in self._running.values():
            _signal_group(process, signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
