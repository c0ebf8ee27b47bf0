"""Two agents that a visitor understands at once: a refund desk and a trip planner.

Each has a tool that only the page can run and an approval: the desk's is decided by a reviewer, never by whoever asked,
the planner's by the visitor. Scripts of ``demo.scripts`` play the model, unless ``HELIX_MODEL`` names a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import demo.scripts  # noqa: F401  registers the scripts that the models below name
from helix import conf
from helix.agents import Agent, StepContext, client_tool, register, tool

REFUND_DESK = "refund-desk"
TRIP_PLANNER = "trip-planner"


@dataclass(frozen=True)
class Introduction:
    """What the page says about an agent before anybody has written to it."""

    title: str
    about: str
    example: str


INTRODUCTIONS = {
    REFUND_DESK: Introduction(
        "Refund desk",
        "Looks up an order, asks you for a photo, and asks a reviewer before any money goes back.",
        "My blue mug from order 1042 arrived broken.",
    ),
    TRIP_PLANNER: Introduction(
        "Trip planner",
        "Asks your browser what time it is where you are, finds a train, and books once you agree.",
        "I would like to go to Lisbon this weekend.",
    ),
}


def played_by(script: str) -> Callable[[StepContext], str]:
    """A model function: the real model of the installation where it has one, else the script."""

    def model(step: StepContext) -> str:
        return conf.get("HELIX_MODEL") or f"scripted:{script}"

    return model


# -- the refund desk ---------------------------------------------------------------------------------------------------

ORDERS: dict[str, dict[str, Any]] = {
    "1042": {"item": "blue mug", "paidCents": 2400, "delivered": True},
    "2077": {"item": "reading lamp", "paidCents": 5900, "delivered": True},
    "3155": {"item": "garden chair", "paidCents": 8200, "delivered": False},
}


@tool
def lookup_order(order_number: str) -> dict[str, Any]:
    """Look an order up: what was bought, what was paid in euro cents, and whether it was delivered.

    Args:
        order_number: four digits.
    """
    order = ORDERS.get(order_number.strip())
    if order is None:
        raise LookupError(f"There is no order {order_number}; this demonstration has {', '.join(ORDERS)}.")
    return {"orderNumber": order_number.strip(), **order}


choose_photo = client_tool(
    "choose_photo",
    description="Asks the customer for a photo of the damage; it is looked at in the browser and not uploaded.",
    input_schema={
        "type": "object",
        "properties": {"question": {"type": "string", "description": "What the photo has to show."}},
        "required": ["question"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "width": {"type": "integer"},
            "height": {"type": "integer"},
            "averageColor": {"type": "string"},
        },
        "required": ["name", "width", "height", "averageColor"],
    },
    client_tool_timeout_ms=30 * 60 * 1000,
)


@tool(
    require_approval=True,
    forbid_self_approval=True,
    summary="Pay {amount_cents} euro cents back on order {order_number}: {reason}",
)
def pay_refund(order_number: str, amount_cents: int, reason: str) -> dict[str, Any]:
    """Pay money back to the customer. A reviewer approves each payment first.

    Args:
        order_number: four digits.
        amount_cents: euro cents, at most what was paid.
        reason: one sentence for the reviewer.
    """
    paid = ORDERS[order_number]["paidCents"]
    if not 0 < amount_cents <= paid:
        raise ValueError(f"A refund on order {order_number} is between 1 and {paid} cents.")
    return {"reference": f"REF-{order_number}", "amountCents": amount_cents}


register(
    Agent(
        REFUND_DESK,
        model=played_by(REFUND_DESK),
        instructions=(
            "You work at the refund desk of a small shop. Look up the order first. If it was delivered, ask for a "
            "photo with choose_photo, then propose a refund with pay_refund; a reviewer decides. Tell the customer "
            "what was decided. Be brief and kind. Amounts are euro cents; say them in euros."
        ),
        tools=[lookup_order, choose_photo, pay_refund],
    )
)

# -- the trip planner --------------------------------------------------------------------------------------------------

read_clock = client_tool(
    "read_clock",
    description="Reads the visitor's local time, time zone and language from the browser.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "object",
        "properties": {
            "localTime": {"type": "string"},
            "timeZone": {"type": "string"},
            "language": {"type": "string"},
        },
        "required": ["localTime", "timeZone", "language"],
    },
)


@tool
def find_train(destination: str) -> dict[str, Any]:
    """Find the next night train to a city.

    Args:
        destination: the city's name.
    """
    return {"train": "NT 412", "destination": destination, "departure": "21:40", "priceCents": 8900}


@tool(require_approval=True, summary="Book {seats} seat(s) on {train} to {destination}")
def book_seats(train: str, destination: str, seats: int) -> dict[str, Any]:
    """Book seats on a train that find_train returned. The traveller agrees to each booking first.

    Args:
        train: the train's name.
        destination: the city's name.
        seats: how many.
    """
    return {"bookingCode": f"{train.replace(' ', '')}-{destination[:3].upper()}-{seats}"}


register(
    Agent(
        TRIP_PLANNER,
        model=played_by(TRIP_PLANNER),
        instructions=(
            "You plan weekend trips by train. Read the visitor's clock first, then find a train, say what it costs in "
            "euros (prices are cents) and when it leaves, and propose a booking with book_seats for one seat unless "
            "the visitor says otherwise. Be brief and warm."
        ),
        tools=[read_clock, find_train, book_seats],
    )
)
