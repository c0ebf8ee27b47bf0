"""Every outcome of a submit through every door: the same answer, the same rows (R-168, R-180, R-323, F-9).

The table is `scenarios.SCENARIOS`; what a door cannot say, or says in another way, stands with its reason in
`exceptions`. A pair that is in neither is a promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps

from helix.models import CallAudit, PendingCall, Run
from helix.statuses import CallState
from tests.doors.attempts import FLAVOURS, Attempt, CannotSay, Flavour, Outcome
from tests.doors.exceptions import DIFFERS, EXEMPT
from tests.doors.house import AdminForm, Deciding, ForceFailCommand, Inbox, Submitting
from tests.doors.scenarios import NAMES, SCENARIOS, Scenario
from tests.doors.scenes import CANARY, Scene
from tests.doors.wire import CanonicalRoute, Chat, Door, SessionInBody, SocketCommand

DOORS: tuple[type[Door], ...] = (
    CanonicalRoute,
    SessionInBody,
    SocketCommand,
    Chat,
    Inbox,
    Deciding,
    AdminForm,
    ForceFailCommand,
    Submitting,
)
SetScene = Callable[[Flavour], Scene]


def is_exempt(door: type[Door], scenario: Scenario) -> bool:
    return any(scenario.name in names for names in EXEMPT.get(door.name, {}).values())


def pairs(*, exempt: bool) -> list[Any]:
    """Every door with every scenario of its flavours, as parameters; asynchronous doors see committed rows only."""
    return [
        pytest.param(
            door,
            scenario,
            flavour,
            id=f"{door.name}-{scenario.name}-{flavour}",
            marks=pytest.mark.django_db(transaction=door.is_asynchronous),
        )
        for door in DOORS
        for scenario in SCENARIOS
        if is_exempt(door, scenario) is exempt
        for flavour in scenario.sent_through(door)
    ]


def rows() -> dict[str, list[dict[str, Any]]]:
    """Everything that is stored."""
    return {
        model.__name__: list(model._default_manager.order_by("pk").values())
        for model in apps.get_app_config("helix").get_models()
    }


def expected(door: type[Door], scenario: Scenario) -> Outcome:
    other = DIFFERS.get((door.name, scenario.name))
    return scenario.outcome if other is None else other[0]


@pytest.mark.parametrize(("door", "scenario", "flavour"), pairs(exempt=False))
def test_it_is_answered_alike_and_nothing_is_stored_of_a_refusal(
    door: type[Door], scenario: Scenario, flavour: Flavour, set_scene: SetScene, caplog: pytest.LogCaptureFixture
) -> None:
    """R-168, R-180, R-323, R-335, R-336, R-337, R-338, R-339, R-340, R-341, R-342, R-343, R-345, R-347, R-348,
    R-349, R-350, R-351, R-352, R-369, R-414, F-9."""
    scene = set_scene(flavour)
    attempt = scenario.prepare(scene)
    outcome = expected(door, scenario)
    scene.world.commit()
    before = rows()
    knocked = door(scene.world)
    answer = knocked.send(attempt)
    assert answer == knocked.says(outcome)
    assert CANARY not in str(answer)
    _check_rows(door, scenario, outcome, attempt, before)
    if scenario.corrected is not None and outcome.is_refusal:
        corrected = scenario.corrected(scene, attempt)
        accepted = Outcome(200, "accepted")
        try:
            assert knocked.send(corrected) == knocked.says(accepted)
        except CannotSay:
            assert CanonicalRoute(scene.world).send(corrected) == CanonicalRoute(scene.world).says(accepted)
        _is_answered(corrected)


def _check_rows(
    door: type[Door], scenario: Scenario, outcome: Outcome, attempt: Attempt, before: dict[str, list[dict[str, Any]]]
) -> None:
    if outcome.code == "accepted":
        _is_answered(attempt)
        assert CallAudit.objects.get().door == door.audited_as
    elif outcome.code == "late_answer_after_timeout":
        # Kept beside the timeout, which stays what the model is told.
        call = PendingCall.objects.get()
        assert call.late_answered_at is not None and call.answer_kind == "timeout"
        assert not CallAudit.objects.exists()
    elif scenario.settles_stop:
        # The one thing that a refusal leaves behind.
        call, run = PendingCall.objects.get(), Run.objects.get()
        assert (call.state, call.discard_reason, call.answer_kind) == (CallState.DISCARDED, "run_stopped", None)
        assert run.is_over and not run.stop_is_open and not CallAudit.objects.exists()
    else:
        assert rows() == before


def _is_answered(attempt: Attempt) -> None:
    call = PendingCall.objects.get(root_id=attempt.session, tool_call_id=attempt.call)
    assert call.state == CallState.ANSWERED and call.answer_kind not in (None, "timeout")


# -- the tables tell the truth -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("door", "scenario", "flavour"), pairs(exempt=True))
def test_what_a_door_is_exempted_from_cannot_be_said_there(
    door: type[Door], scenario: Scenario, flavour: Flavour, set_scene: SetScene
) -> None:
    """An exemption whose scenario can be put into the door's words is stale."""
    scene = set_scene(flavour)
    attempt = scenario.prepare(scene)
    scene.world.commit()
    before = rows()
    with pytest.raises(CannotSay):
        door(scene.world).send(attempt)
    assert rows() == before


def test_every_exemption_names_a_door_and_a_scenario_of_its_flavours() -> None:
    by_name = {door.name: door for door in DOORS}
    named = [
        (by_name[door], scenario)
        for door, reasons in EXEMPT.items()
        for names in reasons.values()
        for scenario in names
    ] + [(by_name[door], scenario) for door, scenario in DIFFERS]
    flavours = {scenario.name: set(scenario.flavours) for scenario in SCENARIOS}
    assert [(door.name, name) for door, name in named if not flavours[name] & set(door.flavours)] == []
    assert [pair for pair, count in Counter((door.name, name) for door, name in named).items() if count > 1] == []


def test_every_difference_differs_and_has_a_reason() -> None:
    outcomes = {scenario.name: scenario.outcome for scenario in SCENARIOS}
    assert [pair for pair, (other, reason) in DIFFERS.items() if other == outcomes[pair[1]] or not reason] == []
    assert all(reason for reasons in EXEMPT.values() for reason in reasons)
    assert [door.name for door in DOORS if (len(door.flavours) < 3) is not bool(door.only)] == []


def test_every_scenario_is_reached_through_two_doors_at_least() -> None:
    assert len(set(NAMES)) == len(NAMES)
    reached: Counter[str] = Counter()
    for door in DOORS:
        for scenario in SCENARIOS:
            if scenario.sent_through(door) and not is_exempt(door, scenario):
                reached[scenario.name] += 1
    assert [name for name in NAMES if reached[name] < 2] == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_shared_outcome_is_proven_for_every_kind_of_answer_at_two_doors(flavour: Flavour) -> None:
    for scenario in SCENARIOS:
        if scenario.flavours == FLAVOURS:
            doors = [door for door in DOORS if flavour in scenario.sent_through(door)]
            assert len([door for door in doors if not is_exempt(door, scenario)]) >= 2, scenario.name
