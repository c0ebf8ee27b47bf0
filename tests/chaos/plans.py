"""What a conversation will ask for and how its client behaves: pure, and the same for the same seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Steps = list[list[tuple[str, str]]]

# Each client does at most one of these beside answering.
FATES = {"stays": 72, "interrupts": 8, "aborts": 6, "abandons": 7, "leaves": 7}
TO_A_CLIENT_TOOL = {"answer": 50, "twice": 18, "rivals": 20, "error": 12}
TO_AN_APPROVAL = {
    "approve": 32,
    "approve_twice": 20,
    "edit": 14,
    "edit_or_approve": 8,
    "quarrel": 12,
    "deny": 9,
    "error": 5,
}
BELLS = ("amber", "basin", "cedar", "delta", "ember", "fjord")


@dataclass(frozen=True)
class Plan:
    """turns: the messages, in order.  fate: see `FATES`.  moment: at which call that is shown the fate comes."""

    name: str
    agent: str
    turns: tuple[str, ...]
    fate: str
    moment: int
    seed: str

    def draw(self, *about: object) -> Random:
        """Chance of its own for one decision, whatever was decided before it."""
        return Random(" ".join(map(str, (self.seed, self.name, *about))))


def plan(seed: int, number: int) -> Plan:
    """The plan of one conversation."""
    chance = Random(f"{seed} {number}")
    turns = tuple(json.dumps(_steps(chance)) for _ in range(chance.choice((1, 1, 2))))
    return Plan(
        name=f"conversation-{number}",
        agent=chance.choice(("ringer", "ringer", "one_by_one")),
        turns=turns,
        fate=weighed(chance, FATES),
        moment=chance.randint(1, 4),
        seed=str(seed),
    )


def weighed(chance: Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _steps(chance: Random) -> Steps:
    return [_batch(chance, range(chance.randint(1, 4))) for _ in range(chance.choice((1, 1, 2)))]


def _batch(chance: Random, calls: Sequence[int]) -> list[tuple[str, str]]:
    names = ("locate", "locate", "whisper", "ring_once", "ring_safely", "ring_loudly", "ring_loudly", "clerk")
    return [_call(chance, chance.choice(names)) for _ in calls]


def _call(chance: Random, name: str) -> tuple[str, str]:
    if name != "clerk":
        return name, chance.choice(BELLS)
    below = ("locate", "ring_loudly", "ring_once")
    return name, json.dumps([[_call(chance, chance.choice(below)) for _ in range(chance.randint(1, 2))]])


@dataclass(frozen=True)
class Given:
    """One answer as a client gives it: the fields of a submit, and what the row of its call must then say."""

    fields: dict[str, Any]
    kind: str
    value: Any


def answers(chance: Random, shown: dict[str, Any], *, may_be_silent: bool) -> list[Given]:
    """What is sent for a call that is shown, all at the same time; empty: nothing ever is.

    shown: ``toolCallId``, ``kind``, and for an approval its ``approvalId``.
    """
    if shown["kind"] == "client":
        if may_be_silent and chance.random() < 0.5:
            return []
        return _of_a_client(weighed(chance, TO_A_CLIENT_TOOL), shown["toolCallId"])
    return _of_a_reviewer(weighed(chance, TO_AN_APPROVAL), shown["approvalId"])


def _of_a_client(manner: str, call_id: str) -> list[Given]:
    def found(number: int) -> Given:
        value = {"found": f"{call_id} {number}"}
        return Given({"result": value}, "result", value)

    if manner == "error":
        return [Given({"error": f"nothing at {call_id}"}, "error", f"nothing at {call_id}")]
    return {"answer": [found(0)], "twice": [found(0)] * 2, "rivals": [found(n) for n in range(3)]}[manner]


def _of_a_reviewer(manner: str, approval_id: str) -> list[Given]:
    verdict = {"kind": "approval-response", "approvalId": approval_id}
    approve = Given({**verdict, "approved": True}, "approved", None)
    edit = Given({**verdict, "approved": True, "editedArguments": {"bell": "edited"}}, "approved_edited", "edited")
    deny = Given({**verdict, "approved": False, "reason": "too loud"}, "denied", None)
    give_up = Given({"error": "nobody is there"}, "error", "nobody is there")
    manners = {
        "approve": [approve],
        "approve_twice": [approve, approve],
        "edit": [edit],
        "edit_or_approve": [edit, approve],
        "quarrel": [approve, deny],
        "deny": [deny],
        "error": [give_up],
    }
    return manners[manner]
