"""Reading a setting: its default when nothing is said, never "no limit" when what is said cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from helix import conf

NUMBERS = [
    each for each in conf.SETTINGS if each.kind in (conf.POSITIVE, conf.SECONDS, conf.BEAT_SECONDS, conf.WHOLE_SECONDS)
]
TIMEOUTS = [each for each in conf.SETTINGS if each.kind is conf.TIMEOUT_MS]


def by_name(setting: conf.Setting) -> str:
    return setting.name


@pytest.mark.parametrize("setting", conf.SETTINGS, ids=by_name)
def test_a_default_is_a_legal_value_of_its_setting(setting: conf.Setting) -> None:
    assert setting.problem(setting.default) is None


@pytest.mark.parametrize("unreadable", [None, 0, -1, "1000", 1.5, float("nan"), float("inf"), True])
def test_an_unreadable_result_limit_is_the_default_and_never_unbounded(settings: Settings, unreadable: object) -> None:
    """R-291."""
    settings.HELIX_MAX_RESULT_BYTES = unreadable
    assert conf.get("HELIX_MAX_RESULT_BYTES") == 1_048_576
    # Control: a readable one is believed at once.
    settings.HELIX_MAX_RESULT_BYTES = 10
    assert conf.get("HELIX_MAX_RESULT_BYTES") == 10


@pytest.mark.parametrize("setting", TIMEOUTS, ids=by_name)
@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), float("inf"), "100", True])
def test_a_timeout_is_a_positive_whole_number_or_none(setting: conf.Setting, value: object) -> None:
    """R-239."""
    assert setting.problem(value) is not None
    assert setting.problem(1) is None
    assert setting.problem(None) is None


@pytest.mark.parametrize("setting", NUMBERS, ids=by_name)
@pytest.mark.parametrize("value", [None, 0, -1, float("nan"), float("inf"), "1", True])
def test_a_number_that_must_be_there_is_positive_and_finite(setting: conf.Setting, value: object) -> None:
    assert setting.problem(value) is not None
    assert setting.problem(1) is None


MOST = {
    conf.TIMEOUT_MS: 3_153_600_000_000,
    conf.SECONDS: 3_153_600_000,
    conf.WHOLE_SECONDS: 3_153_600_000,
    conf.BEAT_SECONDS: 86_400,
    conf.DAYS: 36_500,
}


@pytest.mark.parametrize("setting", [each for each in conf.SETTINGS if each.kind in MOST], ids=by_name)
def test_a_span_of_time_ends_within_the_calendar(setting: conf.Setting) -> None:
    """A longer one passes for a number, and then breaks every run that adds it to an instant."""
    most = MOST[setting.kind]
    assert setting.problem(most) is None
    assert str(most) in (setting.problem(most + 1) or "")


def test_every_setting_that_names_a_span_of_time_has_such_an_end() -> None:
    spans = {each.name for each in conf.SETTINGS if each.name.endswith(("_MS", "_SECONDS", "_DAYS"))}
    assert spans == {each.name for each in conf.SETTINGS if each.kind in MOST}


def test_a_name_outside_the_table_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        conf.get("HELIX_NO_SUCH_SETTING")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HELIX_CLIENT_TOOL_TIMEOUT_MS", "250", 250),
        ("HELIX_CLIENT_TOOL_TIMEOUT_MS", "None", None),
        ("HELIX_SWEEP_SECONDS", "0.25", 0.25),
        ("HELIX_SWEEP_SECONDS", " 2 ", 2),
        ("HELIX_VALIDATE_RESULTS", "off", False),
        ("HELIX_ALLOW_UNAUTHENTICATED", "True", True),
        ("HELIX_LOG_LEVELS", '{"run.takeover": "ERROR"}', {"run.takeover": "ERROR"}),
        ("HELIX_WORKER", "celery", "celery"),
        ("HELIX_SCRUB", "shop.privacy.scrub", "shop.privacy.scrub"),
    ],
)
def test_the_text_of_a_variable_becomes_a_typed_value(name: str, text: str, value: Any) -> None:
    values, problems = conf.from_environment({name: text})
    assert problems == []
    assert values == {name: value}
    assert type(values[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HELIX_CLIENT_TOOL_TIMEOUT_MS", "soon"),
        ("HELIX_CLIENT_TOOL_TIMEOUT_MS", "0"),
        ("HELIX_CLIENT_TOOL_TIMEOUT_MS", "1.5"),
        ("HELIX_MAX_RESULT_BYTES", "none"),
        ("HELIX_SWEEP_SECONDS", "nan"),
        ("HELIX_SWEEP_SECONDS", "1e999"),
        ("HELIX_VALIDATE_RESULTS", "perhaps"),
        ("HELIX_LOG_LEVELS", '{"run.takeover": "SHOUT"}'),
        ("HELIX_LOG_LEVELS", '{"run.takeover": {}}'),
        ("HELIX_LOG_LEVELS", '{"run.takeover": ["ERROR"]}'),
        ("HELIX_LOG_LEVELS", "[" * 100_000),
        ("HELIX_LOG_LEVELS", "{"),
        ("HELIX_WORKER", "threads"),
        ("HELIX_SCRUB", "scrub"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_and_left_out(name: str, text: str) -> None:
    values, problems = conf.from_environment({name: text})
    assert values == {}
    assert [problem.name for problem in problems] == [name]
    assert name in problems[0].message


def test_an_empty_variable_counts_as_unset() -> None:
    assert conf.from_environment({each.name: " " for each in conf.SETTINGS}) == ({}, [])


def test_the_text_of_a_secret_is_never_repeated() -> None:
    secret = next(each for each in conf.SETTINGS if each.name == "HELIX_MODEL_API_KEY")
    assert "hunter2" not in str(secret.problem(["hunter2"]))
    shown = next(each for each in conf.SETTINGS if each.name == "HELIX_MODEL")
    assert "openai" in str(shown.problem(["openai"]))
