"""Bodies and workers in the hands of the test: each announces that it is there and waits (D-1, D-2, Q-57).

`BodyGate` makes a server tool that is held for as long as the test likes; `working` runs a worker in a thread of its
own and on a connection of its own; `another_process` lets the block look at this process's runs as a stranger would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connections

from helix.agents import Tool, ToolContext, tool
from helix.loop import CancelToken
from helix.loop.execution import token_of
from helix.loop.registry import REGISTRY
from helix.rows.holdings import HOLDINGS
from helix.services.advance import advance_run
from tests.kit.models import ModelGate
from tests.kit.world import World
from tests.provider_server import Gate


class BodyGate(ModelGate):
    """Makes server tools whose bodies wait here; ``arrivals`` counts them.

    ignores_stops: the body waits for the test and for nobody else, as one whose transport takes no cancellation.
    """

    def __init__(self, *, ignores_stops: bool = False) -> None:
        super().__init__()
        self._ignores_stops = ignores_stops

    def tool(self, name: str = "hold", **options: Any) -> Tool:
        def body(context: ToolContext, value: str = "held") -> str:
            """Wait for the test, then return what was given."""
            if self._ignores_stops:
                self.wait(CancelToken())
            else:
                self.wait(token_of(context))
                context.token.check()
            return value

        return tool(name=name, **options)(body)


class Worker:
    """Something done in a thread and on a connection of its own."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._outcome: Any = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._act()
        except BaseException as failure:
            self._failure = failure
        finally:
            connections.close_all()

    def end(self) -> Any:
        """Wait for its end; returns what it returned, raises what it raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def join(self) -> None:
        self._thread.join()


@contextmanager
def working(world: World, run_id: UUID, *gates: ModelGate | Gate) -> Iterator[Worker]:
    """A worker on the run, which has reached the first of the gates, if any, when the block begins.

    Whatever the test left closed opens at the end, and nothing of the worker outlives the block.
    """
    worker = Worker(lambda: advance_run(run_id, clock=world.clock))
    try:
        for gate in gates[:1]:
            gate.entered.wait()
        yield worker
    finally:
        for gate in gates:
            gate.release()
        worker.join()
        REGISTRY.wait_until_quiet()


@contextmanager
def another_process() -> Iterator[None]:
    """For the block this process holds nothing and has another holder's id, as if it had just been started.

    A turn that began before the block has to end after it, where its mark is.
    """
    kept = (HOLDINGS._pid, HOLDINGS._holder, HOLDINGS._held)
    HOLDINGS._pid = 0
    try:
        yield
    finally:
        HOLDINGS._pid, HOLDINGS._holder, HOLDINGS._held = kept
