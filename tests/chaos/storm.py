"""When which process is killed: a shuffled deck of blows, dealt while the clients get on.

A blow falls after so many answers to clients and not after so many seconds: a slow machine is hit as often in its
work as a quick one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.chaos.company import Company

DECK = ("worker", "worker", "worker", "web", "web", "beat", "sweeper", "redis", "postgres")


class Storm:
    """seed: the order of blows.  every: answers between two of them."""

    def __init__(self, company: Company, seed: int, every: int) -> None:
        self.blows: Counter[str] = Counter()
        self._company = company
        self._chance = Random(seed)
        self._every = every
        self.answers = 0
        self._moved = threading.Condition()
        self._is_over = False

    def answered(self) -> None:
        """A client got an answer, whatever it was."""
        with self._moved:
            self.answers += 1
            self._moved.notify_all()

    @contextmanager
    def blowing(self) -> Iterator[None]:
        """Until the block ends; the last blow is over then."""
        thread = threading.Thread(target=self._blow, name="storm")
        thread.start()
        try:
            yield
        finally:
            with self._moved:
                self._is_over = True
                self._moved.notify_all()
            thread.join()

    def _blow(self) -> None:
        for number, blow in enumerate(self._deal(), 1):
            if not self._wait_for(number * self._every):
                return
            if blow == "redis":
                self._company.shoot_redis()
            elif blow == "postgres":
                self._company.cut_database()
            else:
                self._company.kill(blow)
            self.blows[blow] += 1

    def _wait_for(self, answers: int) -> bool:
        """False: the storm is over first."""
        with self._moved:
            self._moved.wait_for(lambda: self._is_over or self.answers >= answers)
            return not self._is_over

    def _deal(self) -> Iterator[str]:
        while True:
            deck = list(DECK)
            self._chance.shuffle(deck)
            yield from deck
