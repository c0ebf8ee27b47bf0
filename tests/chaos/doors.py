"""How a client reaches whichever web process lives: it asks again until it is answered, and remembers what was lost."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlencode

REQUEST_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 1.0
CUT_OFF = (OSError, http.client.HTTPException)


class GivenUp(Exception):
    """The time for the whole is over: somebody is stuck, and the rows will say who."""


@dataclass(frozen=True)
class Answer:
    """was_lost: an earlier try of the same request was cut off, and may have been heard."""

    status: int
    body: dict[str, Any]
    was_lost: bool


class Doors:
    """The web processes. answered: called at each answer.  over: nobody asks any more."""

    def __init__(self, addresses: list[str], answered: Callable[[], None], over: threading.Event) -> None:
        self.addresses = addresses
        self.over = over
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._answered = answered

    def post(self, path: str, body: dict[str, Any], chance: Random) -> Answer:
        return self._ask(path, json.dumps(body).encode(), chance)

    def get(self, path: str, chance: Random, **query: object) -> Answer:
        return self._ask(f"{path}?{urlencode(query)}", None, chance)

    def _ask(self, path: str, body: bytes | None, chance: Random) -> Answer:
        was_lost = False
        for pause in self._pauses(chance):
            try:
                status, answer = self._once(path, body, chance)
            except CUT_OFF:
                self.counts["cut off"] += 1
                was_lost = True
            else:
                self.counts[str(status)] += 1
                self._answered()
                if status == 500:
                    self.surprises.append(f"500 for {path}: {answer}")
                if status < 500:
                    return Answer(status, answer, was_lost)
                # "Nothing was stored" is not relied on: a commit may have been lost on its way back.
                was_lost = True
            self.over.wait(pause)
        raise GivenUp(path)

    def _once(self, path: str, body: bytes | None, chance: Random) -> tuple[int, dict[str, Any]]:
        try:
            with self._open(path, body, chance) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def _open(self, path: str, body: bytes | None, chance: Random) -> Any:
        headers = {"X-Crew": "owner", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{chance.choice(self.addresses)}{path}", body, headers)  # noqa: S310
        return urllib.request.urlopen(request, timeout=REQUEST_SECONDS)  # noqa: S310

    def _pauses(self, chance: Random) -> Iterator[float]:
        """How long to wait after each failure, for as long as anybody may ask."""
        longest = 0.05
        while not self.over.is_set():
            yield chance.uniform(0, longest)
            longest = min(LONGEST_PAUSE_SECONDS, longest * 2)

    def stream(self, session: str, after: Callable[[], int], chance: Random) -> Iterator[dict[str, Any]]:
        """The events of a turn, across every web process that dies on the way, until the server says that it is over.

        after: the last number that the reader has.
        """
        for pause in self._pauses(chance):
            try:
                with self._open(f"sse?{urlencode({'sessionId': session, 'after': after()})}", None, chance) as response:
                    kind = ""
                    for line in response:
                        # A stream that has nothing to say still says so from time to time.
                        if self.over.is_set():
                            raise GivenUp(session)
                        field, _, value = line.decode().strip().partition(": ")
                        if field == "event":
                            kind = value
                        elif field == "data" and not kind:
                            yield json.loads(value)
                        elif field == "data" and kind == "end":
                            return
                        elif not field:
                            kind = ""
            except CUT_OFF:
                self.counts["stream cut off"] += 1
            self.over.wait(pause)
        raise GivenUp(session)
