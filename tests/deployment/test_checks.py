"""Every setting that can be wrong has a system check, and a deployment that is right passes all of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from django.core.checks import ERROR, WARNING
from django.db import connections
from pytest_django import Settings

from helix import checks, conf

ALL = (
    checks.check_environment,
    checks.check_values,
    checks.check_authentication,
    checks.check_secret_key,
    checks.check_limits,
    checks.check_databases,
    checks.check_processes,
    checks.check_validation,
)


def found() -> dict[str, int]:
    """Every complaint by its id, with its level."""
    return {str(message.id): message.level for check in ALL for message in check()}


@pytest.fixture(autouse=True)
def sound(settings: Settings) -> Settings:
    """A deployment without complaints; each test breaks one thing in it."""
    settings.HELIX_AUTHENTICATE = "helix.checks.check_values"
    settings.HELIX_ENVIRONMENT_PROBLEMS = ()
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache"}}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}}
    settings.CELERY_BROKER_URL = "redis://localhost"
    settings.HELIX_SECRET_KEY_IS_LOCAL = False
    return settings


def test_a_sound_deployment_has_nothing_to_complain_about(sound: Settings) -> None:
    assert found() == {}
    sound.HELIX_WORKER = "celery"
    assert found() == {}


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1.5, "100"])
@pytest.mark.parametrize("name", ["HELIX_CLIENT_TOOL_TIMEOUT_MS", "HELIX_APPROVAL_TIMEOUT_MS"])
def test_a_timeout_that_is_no_positive_whole_number_is_an_error(sound: Settings, name: str, value: Any) -> None:
    """R-239."""
    setattr(sound, name, value)
    assert found() == {"helix.E002": ERROR}
    setattr(sound, name, None)
    assert found() == {}


def test_without_a_hook_and_without_the_opt_out_nothing_starts(sound: Settings) -> None:
    """R-381."""
    sound.HELIX_AUTHENTICATE = None
    assert found() == {"helix.E005": ERROR}


def test_running_unauthenticated_on_purpose_is_a_warning_that_names_the_service(sound: Settings) -> None:
    """R-382."""
    sound.HELIX_AUTHENTICATE = None
    sound.HELIX_ALLOW_UNAUTHENTICATED = True
    sound.HELIX_SERVICE_NAME = "billing"
    assert found() == {"helix.W001": WARNING}
    assert "billing" in checks.check_authentication()[0].msg


def test_an_upload_limit_below_a_cap_is_an_error(sound: Settings) -> None:
    """R-304. Four times the result limit is the cap of a submit (R-293)."""
    sound.HELIX_MAX_RESULT_BYTES = 1_000
    sound.HELIX_MAX_CHAT_BODY_BYTES = 4_000
    sound.DATA_UPLOAD_MAX_MEMORY_SIZE = 3_999
    assert found() == {"helix.E007": ERROR}
    sound.DATA_UPLOAD_MAX_MEMORY_SIZE = 4_000
    assert found() == {}
    sound.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    assert found() == {}


def test_the_upload_limit_follows_the_caps_by_itself(sound: Settings) -> None:
    assert sound.DATA_UPLOAD_MAX_MEMORY_SIZE >= conf.get("HELIX_MAX_CHAT_BODY_BYTES")
    assert sound.DATA_UPLOAD_MAX_MEMORY_SIZE >= 4 * conf.get("HELIX_MAX_RESULT_BYTES")


def test_a_result_limit_above_what_the_store_holds_is_an_error_and_equal_is_allowed(sound: Settings) -> None:
    """R-298."""
    limit = checks.STORE_LIMIT_BYTES[connections["default"].vendor]
    sound.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    sound.HELIX_MAX_RESULT_BYTES = limit
    assert found() == {}
    sound.HELIX_MAX_RESULT_BYTES = limit + 1
    assert found() == {"helix.E008": ERROR}


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [("ATOMIC_REQUESTS", True, "helix.E009"), ("CONN_MAX_AGE", 60, "helix.E010"), ("CONN_MAX_AGE", None, "helix.E010")],
)
def test_a_database_setting_under_which_services_fail_is_an_error(
    monkeypatch: pytest.MonkeyPatch, key: str, value: Any, complaint: str
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, key, value)
    assert found() == {complaint: ERROR}


def test_sqlite_without_immediate_transactions_is_an_error_and_without_the_fair_lock_a_warning() -> None:
    sound_database = {"ENGINE": "helix.db.sqlite", "OPTIONS": {"transaction_mode": "immediate"}}
    assert list(checks.sqlite_problems("default", sound_database)) == []
    deferred = deepcopy(sound_database)
    deferred["OPTIONS"] = {}
    assert [message.id for message in checks.sqlite_problems("default", deferred)] == ["helix.E011"]
    unfair = {**sound_database, "ENGINE": "django.db.backends.sqlite3"}
    assert [message.id for message in checks.sqlite_problems("default", unfair)] == ["helix.W002"]


def test_what_one_process_may_keep_to_itself_is_named_when_several_serve(sound: Settings) -> None:
    """R-387, and the same for wakes and for the broker."""
    sound.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    sound.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    sound.CELERY_BROKER_URL = "memory://localhost"
    sound.HELIX_SECRET_KEY_IS_LOCAL = True
    assert found() == {}
    sound.HELIX_WORKER = "celery"
    assert found() == {
        "helix.W003": WARNING,
        "helix.W004": WARNING,
        "helix.E012": ERROR,
        "helix.E006": ERROR,
    }


def test_results_that_are_not_validated_are_a_warning(sound: Settings) -> None:
    sound.HELIX_VALIDATE_RESULTS = False
    assert found() == {"helix.W005": WARNING}


def test_a_dotted_path_that_leads_nowhere_is_an_error(sound: Settings) -> None:
    sound.HELIX_SCRUB = "no_such_package.scrub"
    assert found() == {"helix.E003": ERROR}


@pytest.mark.parametrize(("renew", "complaints"), [(29, {}), (30, {"helix.E004": ERROR}), (31, {"helix.E004": ERROR})])
def test_a_lease_that_is_renewed_too_late_is_an_error(sound: Settings, renew: int, complaints: dict[str, int]) -> None:
    sound.HELIX_LEASE_RENEW_SECONDS = renew
    assert found() == complaints


def test_what_the_environment_reader_could_not_read_is_an_error_each(sound: Settings) -> None:
    sound.HELIX_ENVIRONMENT_PROBLEMS = (conf.EnvironmentProblem("HELIX_WORKER", "HELIX_WORKER must be a word."),)
    (message,) = checks.check_environment()
    assert (message.id, message.level, message.msg) == ("helix.E001", ERROR, "HELIX_WORKER must be a word.")


def test_a_model_that_needs_a_missing_package_is_an_error(sound: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    sound.HELIX_MODEL = "scripted:echo"
    assert found() == {}
    sound.HELIX_MODEL = "openai:gpt-5"
    assert found() == {"helix.E013": ERROR}
