"""Every ``HELIX_*`` setting: its default, what may stand in it, and one way to read it.

``SETTINGS`` is the only list. ``config/settings.py`` parses the environment through it, ``helix.checks`` judges the
values by it, and a test holds README's table equal to it. ``get`` reads ``django.conf.settings`` each time, so that a
test or an operator who changes a setting is believed at once; a value that cannot be read counts as absent, never as
"no limit" (R-291). The system check names such a value before anything starts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from django.conf import settings


@dataclass(frozen=True)
class Kind:
    """What a setting may hold.

    accepts: judges a Python value.  parse: reads the text of an environment variable, raising ValueError.
    """

    describe: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any]
    optional: bool = False


@dataclass(frozen=True)
class Setting:
    """One row of the table. ``secret`` values are never repeated in a message."""

    name: str
    default: Any
    kind: Kind
    doc: str
    secret: bool = False

    def problem(self, value: Any) -> str | None:
        """Why ``value`` cannot stand in this setting, or None."""
        if value is None and (self.kind.optional or self.default is None):
            return None
        if self.kind.accepts(value):
            return None
        shown = "the given value" if self.secret else repr(value)
        return f"{self.name} must be {self.kind.describe}; {shown} is not."


@dataclass(frozen=True)
class EnvironmentProblem:
    """A variable whose text could not be read; the default stands in its place until it is mended."""

    name: str
    message: str


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive_integer(value: Any) -> bool:
    return _is_integer(value) and value > 0


def _is_positive_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")


def _no_more_than(most: int, accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: accepts(value) and value <= most


def _parse_number(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _parse_flag(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return words[text.lower()]


def _is_dotted(value: Any) -> bool:
    return callable(value) or (isinstance(value, str) and value.count(".") > 0 and all(value.split(".")))


def _is_level_map(value: Any) -> bool:
    names = logging.getLevelNamesMapping()
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(level, str) and level in names for key, level in value.items()
    )


# A hundred years. A longer wait would leave the calendar of the database; "for ever" is spelled None.
LONGEST_MS: Final = 100 * 365 * 24 * 60 * 60 * 1000
LONGEST_SECONDS: Final = LONGEST_MS // 1000
LONGEST_DAYS: Final = 36_500
# What a process waits between two beats: a pause that the operating system can be asked for.
LONGEST_BEAT_SECONDS: Final = 24 * 60 * 60

TIMEOUT_MS: Final = Kind(
    f"a positive whole number of milliseconds, at most {LONGEST_MS}, or None",
    _no_more_than(LONGEST_MS, _is_positive_integer),
    int,
    optional=True,
)
POSITIVE: Final = Kind("a positive whole number", _is_positive_integer, int)
OPTIONAL_POSITIVE: Final = Kind("a positive whole number, or None", _is_positive_integer, int, optional=True)
DAYS: Final = Kind(
    f"a positive whole number of days, at most {LONGEST_DAYS}, or None",
    _no_more_than(LONGEST_DAYS, _is_positive_integer),
    int,
    optional=True,
)
SECONDS: Final = Kind(
    f"a positive number of seconds, at most {LONGEST_SECONDS}",
    _no_more_than(LONGEST_SECONDS, _is_positive_number),
    _parse_number,
)
BEAT_SECONDS: Final = Kind(
    f"a positive number of seconds, at most {LONGEST_BEAT_SECONDS}",
    _no_more_than(LONGEST_BEAT_SECONDS, _is_positive_number),
    _parse_number,
)
WHOLE_SECONDS: Final = Kind(
    f"a positive whole number of seconds, at most {LONGEST_SECONDS}",
    _no_more_than(LONGEST_SECONDS, _is_positive_integer),
    int,
)
FLAG: Final = Kind("True or False", lambda value: isinstance(value, bool), _parse_flag)
TEXT: Final = Kind("a text that is not empty", lambda value: isinstance(value, str) and bool(value), str, optional=True)
DOTTED: Final = Kind("a callable or a dotted path to one", _is_dotted, str, optional=True)
REQUIRED_DOTTED: Final = Kind("a dotted path", lambda value: isinstance(value, str) and _is_dotted(value), str)
AGENTS: Final = Kind(
    "a mapping, a lookup function, or a dotted path to one",
    lambda value: isinstance(value, Mapping) or _is_dotted(value),
    str,
    optional=True,
)
LEVELS: Final = Kind("a mapping of event names to logging levels", _is_level_map, json.loads)


def one_of(*choices: str) -> Kind:
    """A kind that takes exactly the named words."""
    return Kind(" or ".join(repr(choice) for choice in choices), lambda value: value in choices, str)


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("HELIX_AGENTS", None, AGENTS, "Where agents come from; unset: the agents.py modules of installed apps."),
    Setting("HELIX_AUTHENTICATE", None, DOTTED, "The hook that names the principal of every request; required."),
    Setting("HELIX_ALLOW_UNAUTHENTICATED", False, FLAG, "Serve without a hook, behind a proxy that authenticates."),
    Setting("HELIX_APPROVAL_POLICY", "helix.policy.OwnerDecides", REQUIRED_DOTTED, "Who sees and decides approvals."),
    Setting("HELIX_SERVICE_NAME", None, TEXT, "Named in every log event and in the unauthenticated warning."),
    Setting("HELIX_MODEL", None, TEXT, "The model of agents that name none, such as openai:gpt-5; unset: scripted."),
    Setting("HELIX_MODEL_BASE_URL", None, TEXT, "Base URL of a service that speaks the model provider's protocol."),
    Setting("HELIX_MODEL_API_KEY", None, TEXT, "Key for the model; unset: the provider's own variable.", secret=True),
    Setting("HELIX_CLIENT_TOOL_TIMEOUT_MS", 300_000, TIMEOUT_MS, "Wait for a client tool's answer; None: no deadline."),
    Setting("HELIX_APPROVAL_TIMEOUT_MS", 604_800_000, TIMEOUT_MS, "Wait for a reviewer's verdict; None: no deadline."),
    Setting("HELIX_MAX_RESULT_BYTES", 1_048_576, POSITIVE, "UTF-8 bytes of one result as compact JSON."),
    Setting("HELIX_MAX_CHAT_BODY_BYTES", 10_485_760, POSITIVE, "Bytes of one request body on the chat routes."),
    Setting("HELIX_MAX_STATE_BYTES", None, OPTIONAL_POSITIVE, "UTF-8 bytes of a session's custom state; None: no cap."),
    Setting("HELIX_SUBMITS_PER_MINUTE", 60, POSITIVE, "Submits per minute, per session and principal."),
    Setting("HELIX_LEASE_SECONDS", 30, BEAT_SECONDS, "How long a worker may be silent before its run is taken over."),
    Setting("HELIX_LEASE_RENEW_SECONDS", 10, BEAT_SECONDS, "How often a worker renews its lease."),
    Setting("HELIX_SWEEP_SECONDS", 1, BEAT_SECONDS, "How often the sweep looks for due work."),
    Setting("HELIX_SWEEP_GRACE_SECONDS", 60, SECONDS, "A sweep gap beyond this shifts every open deadline."),
    Setting("HELIX_CRASH_BUDGET", 3, POSITIVE, "Failed starts of a run before it is given up."),
    Setting("HELIX_STREAM_SILENCE_SECONDS", 120, SECONDS, "Silence of a model stream before it counts as stalled."),
    Setting("HELIX_TOKEN_SECONDS", 900, WHOLE_SECONDS, "Life of a signed session token."),
    Setting("HELIX_REMOTE_DEBT_WINDOW_SECONDS", 86_400, SECONDS, "How long an answer owed to a peer is retried."),
    Setting("HELIX_SCRUB", None, DOTTED, "Sees every submitted error before it is stored."),
    Setting("HELIX_LOG_LEVELS", {}, LEVELS, "Levels of single log events, as JSON."),
    Setting("HELIX_VERBOSE_VALIDATION_ERRORS", False, FLAG, "Refusals repeat every violation of a schema."),
    Setting("HELIX_VALIDATE_RESULTS", True, FLAG, "Check client results against the tool's output schema."),
    Setting("HELIX_EVENT_RETENTION_DAYS", None, DAYS, "Days that stream events are kept; None: for ever."),
    Setting("HELIX_USAGE_RETENTION_DAYS", None, DAYS, "Days that usage rows are kept; None: for ever."),
    Setting("HELIX_WORKER", "in_process", one_of("in_process", "celery"), "Where runs are driven."),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


def get(name: str) -> Any:
    """The value of ``name`` as it stands now; its default when it is absent or unreadable. Raises: KeyError."""
    setting = _BY_NAME[name]
    value = getattr(settings, name, setting.default)
    return setting.default if setting.problem(value) else value


def default_of(name: str) -> Any:
    """What stands in ``name`` when nobody says otherwise. Raises: KeyError."""
    return _BY_NAME[name].default


def from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], list[EnvironmentProblem]]:
    """The settings that ``environment`` gives, and what in it could not be read.

    An empty variable counts as unset. ``none`` means None where None is legal.
    """
    values: dict[str, Any] = {}
    problems: list[EnvironmentProblem] = []
    for setting in SETTINGS:
        text = environment.get(setting.name, "").strip()
        if not text:
            continue
        try:
            value = None if text.lower() == "none" else setting.kind.parse(text)
        except (ValueError, KeyError, RecursionError):
            value = text
        if problem := setting.problem(value):
            problems.append(EnvironmentProblem(setting.name, problem))
        else:
            values[setting.name] = value
    return values, problems


def problems_of(values: Iterable[tuple[Setting, Any]]) -> list[tuple[Setting, str]]:
    """The settings whose value cannot be read, each with the reason."""
    return [(setting, problem) for setting, value in values if (problem := setting.problem(value))]


def is_importable(dotted: str) -> bool:
    """Whether the module part of a dotted path can be found, without importing the target."""
    try:
        return find_spec(dotted.rpartition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
