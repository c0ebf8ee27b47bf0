"""Subprocesses for tool bodies that must be stoppable whatever they do (Q-21, Q-58, Q-61).

A thread cannot be ended from outside; a process can. A subprocess leads a process group of its own, and a stop kills
the group, so that what it started ends with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helix.agents import ToolContext
from helix.loop.cancel import Cancelled
from helix.loop.execution import token_of


@dataclass(frozen=True)
class Finished:
    """How a subprocess ended and what it wrote; bytes that are not UTF-8 are replaced."""

    returncode: int
    stdout: str
    stderr: str


def run_subprocess(
    context: ToolContext,
    argv: Sequence[str],
    *,
    stdin: str = "",
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program for a tool's body and wait for it, however long it takes.

    argv: the program and its arguments; no shell reads them.  env: its whole environment, the worker's when None.
    Raises: Cancelled when the run is stopped; the whole process group is dead by then. OSError when the program cannot
    be started.
    """
    token = token_of(context)
    token.check()
    process = subprocess.Popen(  # noqa: S603  the tool's author names the program
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=None if env is None else dict(env),
        start_new_session=True,
    )
    forget = token.on_cancel(lambda: _kill_group(process.pid))
    try:
        stdout, stderr = process.communicate(stdin.encode())
    except BaseException:
        _kill_group(process.pid)
        process.wait()
        raise
    finally:
        forget()
    if token.cancelled:
        raise Cancelled
    return Finished(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _kill_group(group: int) -> None:
    # The group may be gone already: then there is nothing left to end.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
