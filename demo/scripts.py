"""The models of the demonstration: scripts that read the conversation and speak at a human pace, offline.

A script looks only at what happened since the visitor's last message, so every message starts its story anew.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helix.loop.cancel import CancelToken
from helix.loop.messages import ModelRequest
from helix.loop.scripted import Call, Hold, Piece, Thinking, script

WORD_SECONDS = 0.03


class Beat:
    """A short wait between two words; a stop ends it at once."""

    def wait(self, token: CancelToken) -> None:
        stopped = threading.Event()
        forget = token.on_cancel(stopped.set)
        try:
            stopped.wait(WORD_SECONDS)
        finally:
            forget()


def spoken(text: str) -> Iterator[Piece]:
    """The text word by word."""
    for word in re.findall(r"\S+\s*", text):
        yield word
        yield Hold(Beat())


@dataclass(frozen=True)
class Turn:
    """What the visitor said last, and the result of each tool since then."""

    said: str
    results: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, request: ModelRequest) -> Turn:
        said, results = "", dict[str, dict[str, Any]]()
        for message in request.messages:
            if message.role == "user":
                said, results = message.text, {}
            for part in message.parts:
                if part["type"] == "tool_result":
                    results[part["toolName"]] = dict(part)
        return cls(said, results)

    def value(self, tool_name: str) -> Any:
        """What the tool returned, or None when it failed or was not called."""
        return self.results.get(tool_name, {}).get("value")

    def error(self, tool_name: str) -> str | None:
        return self.results.get(tool_name, {}).get("error")


def euros(cents: int) -> str:
    return f"€{cents / 100:.2f}"


@script("refund-desk")
def refund_desk(request: ModelRequest) -> Iterator[Piece]:
    """Order, photo, refund; each step reads the result of the one before."""
    turn = Turn.of(request)
    if "pay_refund" in turn.results:
        yield from _after_refund(turn)
    elif "choose_photo" in turn.results:
        yield from _after_photo(turn)
    elif "lookup_order" in turn.results:
        yield from _after_lookup(turn)
    else:
        number = re.search(r"\d{4}", turn.said)
        yield Thinking("The customer wants money back; the order comes first.")
        if number is None:
            yield from spoken("Which order is it about? The number has four digits, such as 1042.")
            return
        yield from spoken("I am sorry to hear that. Let me look up your order.")
        yield Call("lookup_order", {"order_number": number[0]})


def _after_lookup(turn: Turn) -> Iterator[Piece]:
    order = turn.value("lookup_order")
    if order is None:
        yield from spoken(f"I could not find that order. {turn.error('lookup_order')}")
    elif not order["delivered"]:
        yield from spoken(f"Your {order['item']} is still on its way, so there is nothing to pay back yet.")
    else:
        yield from spoken(f"Found it: a {order['item']} for {euros(order['paidCents'])}. Please show me the damage.")
        yield Call("choose_photo", {"question": f"Which photo shows the damaged {order['item']}?"})


def _after_photo(turn: Turn) -> Iterator[Piece]:
    photo, order = turn.value("choose_photo"), turn.value("lookup_order")
    if photo is None or order is None:
        yield from spoken("Without a photo I cannot propose a refund. Write to me again when you have one.")
        return
    yield from spoken(f"Thank you, I can see it in {photo['name']}. A colleague has to approve the refund; I ask now.")
    yield Call(
        "pay_refund",
        {
            "order_number": order["orderNumber"],
            "amount_cents": order["paidCents"],
            "reason": f"The {order['item']} arrived damaged; photo {photo['name']}.",
        },
    )


def _after_refund(turn: Turn) -> Iterator[Piece]:
    refund = turn.value("pay_refund")
    if refund is None:
        yield from spoken(f"The refund was not paid. {turn.error('pay_refund')}")
    else:
        yield from spoken(
            f"Good news: {euros(refund['amountCents'])} are on their way, reference {refund['reference']}."
        )


@script("trip-planner")
def trip_planner(request: ModelRequest) -> Iterator[Piece]:
    """Clock, train, booking."""
    turn = Turn.of(request)
    if "book_seats" in turn.results:
        booking = turn.value("book_seats")
        if booking is None:
            yield from spoken("All right, I have booked nothing. Tell me if you would rather go somewhere else.")
        else:
            yield from spoken(f"Booked. Your code is {booking['bookingCode']}. Have a good journey!")
    elif train := turn.value("find_train"):
        yield from spoken(
            f"The night train {train['train']} to {train['destination']} leaves at {train['departure']} and costs "
            f"{euros(train['priceCents'])}. Shall I book it?"
        )
        yield Call("book_seats", {"train": train["train"], "destination": train["destination"], "seats": 1})
    elif "read_clock" in turn.results:
        clock = turn.value("read_clock")
        where = f"It is {clock['localTime']} in {clock['timeZone']}" if clock else "I do not know your local time"
        yield from spoken(f"{where}. I look for a train.")
        yield Call("find_train", {"destination": _destination(turn.said)})
    else:
        yield Thinking("Trains depend on the time of day where the visitor is.")
        yield from spoken("A weekend away, lovely. Let me see what time it is where you are.")
        yield Call("read_clock", {})


def _destination(said: str) -> str:
    """The city after "to", else a good suggestion."""
    named = re.search(r"\bto ([A-Z]\w+)", said)
    return named[1] if named else "Lisbon"
