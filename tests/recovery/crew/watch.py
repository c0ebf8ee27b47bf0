"""Tell the test which points this process passes, and stay at the one where the test wants to kill it.

The test gives a pipe (`CREW_PIPE`) and a file (`CREW_HOLD`) in which it may name a point. A process that gets there
from then on never goes on.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

from helix.waypoints import Waypoint, listening

BODY = "body"
PIPE = "CREW_PIPE"
HOLD = "CREW_HOLD"
LEDGER = "CREW_LEDGER"

_for_ever = threading.Event()
# A listener whose block nobody keeps would leave as soon as it is collected.
_whole_life = ExitStack()


def passes(point: str) -> None:
    is_last = Path(os.environ[HOLD]).read_text() == point
    os.write(int(os.environ[PIPE]), f"{point}\n".encode())
    if is_last:
        _for_ever.wait()


def write_down(line: str) -> None:
    """One line of the ledger, that outlives a kill: what bodies did."""
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{line}\n".encode())
    finally:
        os.close(ledger)


def watch() -> None:
    """From now on until the end of the process."""

    def tell(point: Waypoint) -> None:
        passes(point.value)

    _whole_life.enter_context(listening(tell))
