"""How log events reach the operator: levels of single events, the service's name, and ids that are not dropped.

An event's message is its dotted name; ids, codes and counts stand in ``extra`` (R-389). The package loggers let every
event through, since ``HELIX_LOG_LEVELS`` may raise a quiet one; the threshold is judged here, after the override.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from helix import conf

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventFilter(logging.Filter):
    """Gives an event the level that ``HELIX_LOG_LEVELS`` says (R-617) and the service's name (R-393).

    threshold: events below it, after the override, are left out.
    """

    def __init__(self, threshold: str = "INFO") -> None:
        super().__init__()
        self._threshold = logging.getLevelNamesMapping()[threshold]

    def filter(self, record: logging.LogRecord) -> bool:
        level = conf.get("HELIX_LOG_LEVELS").get(record.msg) if isinstance(record.msg, str) else None
        if level is not None:
            record.levelname, record.levelno = level, logging.getLevelNamesMapping()[level]
        if service := conf.get("HELIX_SERVICE_NAME"):
            record.service = service
        return record.levelno >= self._threshold


class EventFormatter(logging.Formatter):
    """One line per event: time, level, logger, name, then every field of ``extra`` as ``name=value`` (R-615)."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return " ".join((super().formatMessage(record), *(f"{name}={value}" for name, value in fields_of(record))))


def fields_of(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """What the caller gave as ``extra``, in its order."""
    for name, value in vars(record).items():
        if name not in _STANDARD:
            yield name, value


def warn_when_unauthenticated() -> None:
    """R-382, R-618: said once per process that starts, so that it stands in the log and on the console."""
    if conf.get("HELIX_AUTHENTICATE") is None and conf.get("HELIX_ALLOW_UNAUTHENTICATED"):
        service = conf.get("HELIX_SERVICE_NAME") or "Helix"
        logging.getLogger("helix.auth").warning("auth.unauthenticated_mode", extra={"service": service})
