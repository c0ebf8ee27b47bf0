"""Two writers of one tree, in an order that the test names (D-11).

`meet` is the whole of most races: both have read what they read without the lock; the first takes the lock; the second
is shown to wait for it; the first decides and commits; the second goes on. On PostgreSQL the waiting itself is proven
by the server's own list of who blocks whom. Finer orders are steps of `Actor`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from helix.errors import HelixError
from helix.waypoints import Waypoint, listening
from tests.kit.crash import WorkerDied
from tests.kit.models import ModelGate

BOTH_ORDERS = pytest.mark.parametrize("swapped", [False, True], ids=["first_then_second", "second_then_first"])


class Actor:
    """One verb in a thread and on a connection of its own, which goes on only as far as the test says.

    ``outcome`` is what the verb returned, or the refusal or death that it ended with; anything else is raised by
    `finish`.
    """

    def __init__(self, act: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self.backend_pid: int | None = None
        self.at_end: Callable[[], None] = lambda: None
        self._act = act
        self._failure: BaseException | None = None
        self._moved = threading.Condition()
        self._target: tuple[Waypoint | None, int] | None = None
        self._at: Waypoint | None = None
        self._held = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="actor", daemon=True)

    # -- in the thread of the verb ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_backend_pid()")
                    self.backend_pid = cursor.fetchone()[0]
            self._hold(None)
            self.outcome = self._act()
        except (HelixError, WorkerDied) as end:
            self.outcome = end
        except BaseException as failure:
            self._failure = failure
        finally:
            connection.close()
            with self._moved:
                self._ended = True
                self._moved.notify_all()
            self.at_end()

    def passes(self, point: Waypoint) -> None:
        with self._moved:
            if self._target is None or self._target[0] not in (None, point):
                return
            self._target = (point, self._target[1] - 1)
            if self._target[1] > 0:
                return
        self._hold(point)

    def _hold(self, point: Waypoint | None) -> None:
        with self._moved:
            self._at, self._held = point, True
            self._moved.notify_all()
            self._moved.wait_for(lambda: not self._held)

    # -- in the thread of the test ---------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether this thread is the actor's own."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()
        with self._moved:
            self._moved.wait_for(lambda: self._ended or self._held)

    def aim(self, point: Waypoint | None, nth: int = 1) -> None:
        """Let it go on towards the point, or to its end, without waiting for it."""
        with self._moved:
            self._target = None if point is None else (point, nth)
            self._held = False
            self._moved.notify_all()

    def until(self, point: Waypoint, nth: int = 1) -> None:
        """Let it go on until it is at the point, for the ``nth`` time from here."""
        self.aim(point, nth)
        self.arrives(point)

    def arrives(self, point: Waypoint) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._ended or self._held)
        if self._ended:
            self._raise()
            raise AssertionError(f"ended before {point}: {self.outcome!r}")

    def steps(self) -> Iterator[Waypoint]:
        """Every point that it passes from here on, held there while the test looks around."""
        while True:
            with self._moved:
                self._target, self._held = (None, 1), False
                self._moved.notify_all()
                self._moved.wait_for(lambda: self._ended or self._held)
                if self._ended or self._at is None:
                    break
                at = self._at
            yield at
        self._raise()

    def commits_or_ends(self) -> None:
        """Let it go on until its transaction is over: committed, or given up by a refusal."""
        self.aim(Waypoint.AFTER_COMMIT)
        with self._moved:
            self._moved.wait_for(lambda: self._ended or self._held)

    def waits_for_lock(self) -> None:
        """Prove that it is blocked by another transaction. Raises: AssertionError when it went on instead."""
        if connection.vendor != "postgresql":
            return  # there the one write lock of the database does it, and has tests of its own
        while True:
            with connection.cursor() as cursor:
                cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [self.backend_pid])
                if cursor.fetchone()[0]:
                    return
            with self._moved:
                if self._ended or self._held:
                    self._raise()
                    raise AssertionError(f"did not wait for the lock: at {self._at}, outcome {self.outcome!r}")

    def finish(self) -> Any:
        """Let it go on to its end; returns the outcome."""
        if self._thread.ident is None:
            return None
        self.aim(None)
        self._thread.join()
        self._raise()
        return self.outcome

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure


@contextmanager
def actors(*acts: Callable[[], Any]) -> Iterator[list[Actor]]:
    """Started actors, each held before its first instruction; whatever the test left them at, they end here."""
    made = [Actor(act) for act in acts]

    def tell(point: Waypoint) -> None:
        for actor in made:
            if actor.is_here:
                actor.passes(point)

    with listening(tell):
        try:
            for actor in made:
                actor.start()
            yield made
        finally:
            for actor in made:
                actor.finish()


@dataclass(frozen=True)
class Side:
    """One side of a race.

    transaction: which of the verb's tree transactions meets the other side, counting from 1; after a ``gate``, from
    the moment that the model is held there.
    """

    act: Callable[[], Any]
    transaction: int = 1
    gate: ModelGate | None = None

    def approach(self, actor: Actor) -> None:
        """Bring the verb to the lock that both want."""
        if self.gate is not None:
            # One that ends without meeting the gate must not be waited for.
            actor.at_end = self.gate.entered.set
            actor.aim(None)
            self.gate.entered.wait()
            actor.aim(Waypoint.BEFORE_LOCK, self.transaction)
            self.gate.release()
            actor.arrives(Waypoint.BEFORE_LOCK)
        else:
            actor.until(Waypoint.BEFORE_LOCK, self.transaction)


def meet(first: Side | Callable[[], Any], second: Side | Callable[[], Any], *, swapped: bool = False) -> list[Any]:
    """Let two verbs meet at the root's lock; returns both outcomes in the order in which they are given.

    swapped: the second is the one that gets the lock first.
    """
    sides = [side if isinstance(side, Side) else Side(side) for side in (first, second)]
    with actors(*(side.act for side in sides)) as made:
        for side, actor in zip(sides, made, strict=True):
            side.approach(actor)
        winner, loser = reversed(made) if swapped else made
        winner.until(Waypoint.LOCKED)
        loser.aim(Waypoint.LOCKED)
        loser.waits_for_lock()
        winner.commits_or_ends()
        loser.arrives(Waypoint.LOCKED)
        loser.finish()
        winner.finish()
        return [actor.outcome for actor in made]
