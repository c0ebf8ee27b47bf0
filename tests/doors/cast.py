"""Who stands at the doors, and what their agents may ask for."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from helix.agents import client_tool, tool
from helix.models import PendingCall
from helix.operations import Refusal
from helix.principals import Principal
from tests.kit.world import OPERATOR, OWNER, STRANGER

# The same person with a token of another session, and with one that only reads.
ELSEWHERE = Principal(id="owner", session_id="another-session")
READER = Principal(id="owner", operations=frozenset({"session", "chat-stream", "ws-session", "ws-inbox"}))
PEOPLE = {"owner": OWNER, "stranger": STRANGER, "operator": OPERATOR, "elsewhere": ELSEWHERE, "reader": READER}
HOUSE_RULE = Refusal(403, "house_closed", "The house is closed on Sundays.", fields={"cause": "sunday"})


def says_who(operation: str, request: Any) -> Principal | Refusal | None:
    """The hook of these tests: ``Authorization: Bearer owner`` is the owner; ``barred`` is refused in its own words."""
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return HOUSE_RULE if name == "barred" else PEOPLE.get(name)


class NobodyDecides:
    """An approval policy under which owners reach their calls and are not entitled to decide them."""

    def reach(self, principal: Principal) -> Q:
        return Q(pk__in=[])

    def may_decide(self, principal: Principal, call: PendingCall) -> bool:
        return False


locate = client_tool(
    "locate",
    description="Where the user is.",
    input_schema={"type": "object"},
    output_schema={"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
)


@tool(require_approval=True)
def pay(cents: int) -> str:
    """Pay somebody."""
    return f"paid {cents}"


@tool(require_approval=True, forbid_self_approval=True)
def wire_money(cents: int) -> str:
    """Wire somebody a sum that a second person has to agree to."""
    return f"wired {cents}"
