"""The judge of the storm, judged: what it must not let pass, each beside the same rows as they should be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helix.models import PendingCall, Session
from tests.chaos.client import Submit
from tests.chaos.company import Company
from tests.chaos.doors import Answer
from tests.chaos.ledger import Body
from tests.chaos.plans import Given, plan
from tests.chaos.verdict import Verdict

FOUND = Given({"result": {"found": 1}}, "result", {"found": 1})
OTHER = Given({"result": {"found": 2}}, "result", {"found": 2})
BEGUN = Body(pid=7, at=0.0, bell="amber")


def submit(given: Given, status: str, *, was_lost: bool = False) -> Submit:
    return Submit("c1", given, Answer(200, {"status": status}, was_lost))


def verdict(**company: Any) -> Verdict:
    company = {"ledger": Path("/nowhere"), "killed": set(), "cuts": [], **company}
    return Verdict(cast(Company, SimpleNamespace(**company)), [])


def client_call(**columns: Any) -> PendingCall:
    stored = {"kind": "client", "state": "consumed", "answer_kind": "result", "answer_json": '{"found":1}'}
    return PendingCall(**{**stored, **columns})


def approved_call(**columns: Any) -> PendingCall:
    stored = {"kind": "approval", "state": "consumed", "answer_kind": "approved", "arguments_json": '{"bell":"amber"}'}
    return PendingCall(tool_name="ring_loudly", **{**stored, **columns})


def said(value: Any) -> dict[str, Any]:
    return {"errorCode": None, "value": value}


ACCEPTED = submit(FOUND, "accepted")
ANSWERS: dict[str, tuple[PendingCall, list[Submit], dict[str, Any], bool]] = {
    "accepted and said": (client_call(), [ACCEPTED, submit(OTHER, "already_completed")], said({"found": 1}), True),
    "accepted twice": (client_call(), [ACCEPTED, ACCEPTED], said({"found": 1}), False),
    "another was stored": (client_call(answer_json='{"found":2}'), [ACCEPTED], said({"found": 2}), False),
    "another was said": (client_call(), [ACCEPTED], said({"found": 2}), False),
    "accepted and lapsed": (client_call(answer_kind="timeout"), [ACCEPTED], said(None), False),
    "heard, though its sender was cut off": (
        client_call(),
        [submit(FOUND, "already_completed", was_lost=True)],
        said({"found": 1}),
        True,
    ),
    "nobody sent it": (client_call(), [submit(FOUND, "already_completed")], said({"found": 1}), False),
}


@pytest.mark.parametrize(("call", "submits", "result", "is_sound"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_lost_doubled_or_replaced_is_found(
    call: PendingCall, submits: list[Submit], result: dict[str, Any], is_sound: bool
) -> None:
    """B-08, R-065, R-137."""
    assert ([*verdict().of_answer(call, submits, result)] == []) is is_sound


RANG: dict[str, Any] = {"errorCode": None, "text": "rang amber"}
DENIED: dict[str, Any] = {"errorCode": "approval_denied"}
GIVEN_UP: dict[str, Any] = {"errorCode": "client_tool_abandoned"}
BELOW = Session(parent=Session())
BODIES: dict[str, tuple[PendingCall, dict[str, Any], list[Body], bool]] = {
    "once": (approved_call(), RANG, [BEGUN], True),
    "twice": (approved_call(), RANG, [BEGUN, BEGUN], False),
    "never": (approved_call(), RANG, [], False),
    "with other arguments": (approved_call(edited_arguments_json='{"bell":"edited"}'), RANG, [BEGUN], False),
    "given up with its sub-agent": (approved_call(session=BELOW), GIVEN_UP, [], True),
    "given up with its sub-agent, and it ran": (approved_call(session=BELOW), GIVEN_UP, [BEGUN], False),
    "given up": (approved_call(session=Session()), GIVEN_UP, [], False),
    "denied": (approved_call(answer_kind="denied"), DENIED, [], True),
    "denied, and it ran": (approved_call(answer_kind="denied"), DENIED, [BEGUN], False),
    "safe, twice": (approved_call(replay_safe=True), RANG, [BEGUN, BEGUN], True),
}


@pytest.mark.parametrize(("call", "result", "begun", "is_sound"), BODIES.values(), ids=BODIES)
def test_a_body_that_ran_too_often_or_without_leave_is_found(
    call: PendingCall, result: dict[str, Any], begun: list[Body], is_sound: bool
) -> None:
    """R-016, R-169, R-181."""
    assert ([*verdict().of_body(call, result, begun)] == []) is is_sound


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("company", "findings"),
    [({"killed": {7}}, 1), ({"cuts": [10.0]}, 1), ({"cuts": [-10.0]}, 2), ({}, 2)],
    ids=["killed", "cut off", "cut off before", "alive"],
)
def test_a_body_may_be_lost_only_with_its_worker_or_its_connection(company: dict[str, Any], findings: int) -> None:
    """L-8. The one finding that is left says that nobody took the run over, which no row here tells."""
    lost = {"errorCode": "interrupted", "error": "lost"}
    assert len([*verdict(**company).of_body(approved_call(), lost, [BEGUN])]) == findings


def test_a_plan_is_the_same_for_the_same_seed() -> None:
    """A storm that found something can be asked for again."""
    plans = [plan(7, number) for number in range(50)]
    assert plans == [plan(7, number) for number in range(50)]
    assert plans != [plan(8, number) for number in range(50)] and len({one.fate for one in plans}) > 2
