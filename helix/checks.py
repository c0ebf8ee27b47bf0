"""System checks: everything about a deployment that would otherwise show as a wrong answer, late.

``helix.E001`` repeats what the environment reader could not read; the rest judge the settings as they stand. An error
keeps ``manage.py`` and the embedded process from starting; a warning names a risk that may be meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from helix import conf

# What one stored JSON value can hold: SQLite's default SQLITE_MAX_LENGTH; PostgreSQL's limit of a jsonb string.
STORE_LIMIT_BYTES: Final = {"sqlite": 1_000_000_000, "postgresql": 268_435_455}
DOTTED_KINDS: Final = (conf.DOTTED, conf.REQUIRED_DOTTED, conf.AGENTS)
_PER_PROCESS_CACHES: Final = ("locmem.LocMemCache", "dummy.DummyCache")

Apps = Sequence[AppConfig] | None


@register(Tags.compatibility)
def check_environment(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E001: a variable of the environment that could not be read; its default stands in."""
    problems: tuple[conf.EnvironmentProblem, ...] = getattr(settings, "HELIX_ENVIRONMENT_PROBLEMS", ())
    return [
        Error(problem.message, hint=f"Mend {problem.name} in the environment.", id="helix.E001") for problem in problems
    ]


@register(Tags.compatibility)
def check_values(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E002: a HELIX_ setting of the wrong kind (R-239). E003: a dotted path that leads nowhere. E004: lease clocks."""
    found: list[CheckMessage] = []
    for setting in conf.SETTINGS:
        value = getattr(settings, setting.name, setting.default)
        if problem := setting.problem(value):
            found.append(Error(problem, id="helix.E002"))
        elif setting.kind in DOTTED_KINDS and isinstance(value, str) and not conf.is_importable(value):
            found.append(Error(f"{setting.name} names {value!r}, which cannot be found.", id="helix.E003"))
    if conf.get("HELIX_LEASE_RENEW_SECONDS") >= conf.get("HELIX_LEASE_SECONDS"):
        found.append(
            Error(
                "HELIX_LEASE_RENEW_SECONDS must be less than HELIX_LEASE_SECONDS: healthy workers would lose runs.",
                hint="A third of the lease leaves room for two missed renewals.",
                id="helix.E004",
            )
        )
    return found


@register(Tags.security)
def check_authentication(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E005: nobody decides who is asking (R-381). W001: that is meant (R-382)."""
    if conf.get("HELIX_AUTHENTICATE") is not None:
        return []
    if not conf.get("HELIX_ALLOW_UNAUTHENTICATED"):
        return [
            Error(
                "HELIX_AUTHENTICATE is not set: whoever reaches the API could put words into a model's context.",
                hint="Name a hook, or set HELIX_ALLOW_UNAUTHENTICATED where a proxy authenticates.",
                id="helix.E005",
            )
        ]
    return [checks.Warning(f"{conf.get('HELIX_SERVICE_NAME') or 'Helix'} runs unauthenticated.", id="helix.W001")]


@register(Tags.security, deploy=False)
def check_secret_key(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E006: a made-up secret key where several hosts may serve; they would refuse one another's logins and tokens."""
    is_local = getattr(settings, "HELIX_SECRET_KEY_IS_LOCAL", False)
    if not is_local or settings.DEBUG or conf.get("HELIX_WORKER") == "in_process":
        return []
    return [
        Error(
            "DJANGO_SECRET_KEY is not set and HELIX_WORKER is 'celery': every host would make up its own key.",
            hint="Give all processes the same long random DJANGO_SECRET_KEY.",
            id="helix.E006",
        )
    ]


@register(Tags.compatibility)
def check_limits(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E007: Django would refuse a legal body first (R-304). E008: results that the store cannot hold (R-298)."""
    found: list[CheckMessage] = []
    caps = {
        "HELIX_MAX_CHAT_BODY_BYTES": conf.get("HELIX_MAX_CHAT_BODY_BYTES"),
        "four times HELIX_MAX_RESULT_BYTES": 4 * conf.get("HELIX_MAX_RESULT_BYTES"),
    }
    upload = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    for name, cap in caps.items():
        if upload is not None and upload < cap:
            found.append(
                Error(
                    f"DATA_UPLOAD_MAX_MEMORY_SIZE ({upload}) is below {name} ({cap}): legal bodies would be refused.",
                    id="helix.E007",
                )
            )
    vendor = connections["default"].vendor
    limit = STORE_LIMIT_BYTES.get(vendor)
    if limit is not None and conf.get("HELIX_MAX_RESULT_BYTES") > limit:
        found.append(
            Error(
                f"HELIX_MAX_RESULT_BYTES is above the {limit} bytes that one value of {vendor} holds.", id="helix.E008"
            )
        )
    return found


@register(Tags.database)
def check_databases(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """E009 to E011: settings of a database under which durable services, daphne or SQLite's writers fail."""
    found: list[CheckMessage] = []
    for alias in connections:
        database = connections[alias].settings_dict
        if database["ATOMIC_REQUESTS"]:
            found.append(
                Error(f"DATABASES[{alias!r}]: ATOMIC_REQUESTS must be off; services are durable.", id="helix.E009")
            )
        if database["CONN_MAX_AGE"] != 0:
            found.append(
                Error(
                    f"DATABASES[{alias!r}]: CONN_MAX_AGE must be 0; connections leak under an ASGI server.",
                    hint="Let the driver's pool keep connections (OPTIONS['pool']).",
                    id="helix.E010",
                )
            )
        if connections[alias].vendor == "sqlite":
            found.extend(sqlite_problems(alias, database))
    return found


def sqlite_problems(alias: str, database: dict[str, Any]) -> Iterator[CheckMessage]:
    """What about the settings of a SQLite database makes writers fail or starve."""
    if str(database["OPTIONS"].get("transaction_mode")).upper() != "IMMEDIATE":
        yield Error(
            f"DATABASES[{alias!r}]: SQLite must open transactions with transaction_mode IMMEDIATE.",
            hint="A transaction that reads before it writes is otherwise refused under rivals.",
            id="helix.E011",
        )
    if database["ENGINE"] != "helix.db.sqlite":
        yield checks.Warning(
            f"DATABASES[{alias!r}]: without ENGINE helix.db.sqlite old writers starve under load.", id="helix.W002"
        )


@register(Tags.caches)
def check_processes(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """W003, W004 and E012: what one process can do alone and several cannot (R-387)."""
    if conf.get("HELIX_WORKER") == "in_process":
        return []
    found: list[CheckMessage] = []
    if settings.CACHES["default"]["BACKEND"].endswith(_PER_PROCESS_CACHES):
        found.append(
            checks.Warning(
                "The cache is kept per process: each web process counts HELIX_SUBMITS_PER_MINUTE by itself.",
                hint="Point HELIX_CACHE_URL at a Redis that all of them share.",
                id="helix.W003",
            )
        )
    if settings.CHANNEL_LAYERS["default"]["BACKEND"].endswith("InMemoryChannelLayer"):
        found.append(
            checks.Warning(
                "The channel layer ends at each process: streams hear of a worker's events only at their slow re-read.",
                hint="Point HELIX_CHANNEL_URL at a Redis that all processes share.",
                id="helix.W004",
            )
        )
    if str(settings.CELERY_BROKER_URL).startswith("memory:"):
        found.append(
            Error(
                "HELIX_WORKER is 'celery' but HELIX_BROKER_URL is memory://, which no other process can read.",
                id="helix.E012",
            )
        )
    return found


@register(Tags.compatibility)
def check_validation(app_configs: Apps = None, **options: Any) -> list[CheckMessage]:
    """W005: client results reach the model unchecked. E013: a model that needs a package which is not installed."""
    found: list[CheckMessage] = []
    if not conf.get("HELIX_VALIDATE_RESULTS"):
        found.append(
            checks.Warning(
                "HELIX_VALIDATE_RESULTS is off: results are not held to the tools' schemas.", id="helix.W005"
            )
        )
    model = conf.get("HELIX_MODEL")
    if model and not model.startswith("scripted:") and find_spec("pydantic_ai") is None:
        found.append(Error(f"HELIX_MODEL is {model!r}, but pydantic-ai is not installed.", id="helix.E013"))
    return found
