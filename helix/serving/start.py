"""What has to be true before anything is served, and what is said once it is. Repeating it changes nothing (F-7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.utils.module_loading import import_string

# Username and password, for people who try the demonstration.
Login = tuple[str, str]


def prepare() -> Sequence[Login]:
    """Migrate, put the sweep on the schedule, and seed the demonstration where it is installed; its logins."""
    call_command("migrate", verbosity=0, interactive=False)
    call_command("helix_schedule", verbosity=0)
    if not apps.is_installed("demo"):
        return ()
    logins: Sequence[Login] = import_string("demo.seed.seed")()
    return logins


def banner(profile: str, address: str, logins: Sequence[Login]) -> Iterator[str]:
    """The lines that an operator reads at start: what runs, where it is, and who may log in."""
    yield f"Helix, {profile}."
    yield f"Database: {_database_name()}. Broker: {settings.CELERY_BROKER_URL.partition('://')[0]}."
    yield f"Open {address}"
    for username, password in logins:
        yield f"  log in as {username} with the password {password}"


def _database_name() -> str:
    database: dict[str, Any] = connections["default"].settings_dict
    return f"{connections['default'].vendor} {database['NAME']}"
