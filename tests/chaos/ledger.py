"""What bodies wrote down outside the database: one line each time that one begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Body:
    """One beginning of a body. at: seconds since the epoch."""

    pid: int
    at: float
    bell: str


def read(path: Path) -> Mapping[str, Sequence[Body]]:
    """What began, by call id."""
    begun: dict[str, list[Body]] = defaultdict(list)
    for line in path.read_text().splitlines() if path.exists() else ():
        call_id, pid, at, bell = line.split(" ", 3)
        begun[call_id].append(Body(int(pid), float(at), bell))
    return begun
