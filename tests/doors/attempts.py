"""What somebody wants to say about a call, before any door has put it into its own words, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from helix.errors import HelixError, refusal_classes

Flavour = Literal["result", "error", "verdict"]
FLAVOURS: tuple[Flavour, ...] = ("result", "error", "verdict")


class CannotSay(Exception):
    """This door has no words for such an attempt."""


@dataclass(frozen=True)
class Attempt:
    """One submit, as meant.

    who: a name of the cast, or None for nobody.  body: the fields of a submit beside the two ids.
    raw: the text in the place of a body that is none.  content_type: what a request says that its body is.
    """

    session: str
    call: str
    body: Mapping[str, Any] = field(default_factory=dict)
    who: str | None = "owner"
    raw: str | None = None
    content_type: str = "application/json"

    def but(self, **changes: Any) -> Attempt:
        return replace(self, **changes)

    def saying(self, **fields: Any) -> Attempt:
        """The same with other fields in its body."""
        return replace(self, body={**self.body, **fields})

    def said_in(self, *fields: str) -> dict[str, Any]:
        """The body, if it has no field but these and is one at all. Raises: `CannotSay`."""
        if self.raw is not None or self.content_type != "application/json":
            raise CannotSay("there is no body here")
        if others := self.body.keys() - set(fields):
            raise CannotSay(f"there is no place for {sorted(others)}")
        return dict(self.body)


@dataclass(frozen=True)
class Outcome:
    """What the contract says of an attempt. ``code``: of a refusal its code, of a 2xx its status word."""

    status: int
    code: str
    cause: str | None = None
    reason: str | None = None

    @property
    def is_refusal(self) -> bool:
        return self.status >= 400

    def as_refusal(self) -> HelixError:
        """A refusal of this kind, as whoever words it for people is given it."""
        fields = {name: getattr(self, name) for name in ("cause", "reason") if getattr(self, name) is not None}
        for found in refusal_classes():
            if (found.code, found.status) == (self.code, self.status):
                return found("what the server says", **fields)
        raise LookupError(f"no refusal is {self.status} {self.code}")
