"""The Django app of the demonstration."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Declares agents in ``demo.agents`` and seeds logins in ``demo.seed``."""

    name = "demo"
    verbose_name = "Demonstration"
