"""The Django app of the core."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class HelixConfig(AppConfig):
    """Registers the system checks, warns when nobody is asked who they are, and finds the agents of installed apps."""

    name = "helix"
    verbose_name = "Helix"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("helix.checks")
        from helix.agents import discover
        from helix.logs import warn_when_unauthenticated

        warn_when_unauthenticated()
        discover()
