"""A worker that dies at a named function: nothing of its open transaction is kept and nobody tidies up after it.

Processes that are really killed are in ``tests/recovery``; here the same is shown without a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest


class WorkerDied(BaseException):
    """Not an Exception: no code of Helix may catch it and go on."""


@contextmanager
def worker_dies_in(owner: Any, name: str) -> Iterator[None]:
    """The block ends by the death of its worker at the start of the function ``owner.name``; else the test fails."""

    def die(*args: Any, **kwargs: Any) -> NoReturn:
        raise WorkerDied(name)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(WorkerDied):
        patch.setattr(owner, name, die)
        yield
