"""The project's settings with the crew in the place of the demonstration, and the principal in a header."""

from __future__ import annotations

from config.settings import *  # noqa: F403  the same settings, but for what follows
from config.settings import INSTALLED_APPS

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app != "demo"), "tests.remote.crew"]
HELIX_AUTHENTICATE = "tests.recovery.crew.auth.by_header"
