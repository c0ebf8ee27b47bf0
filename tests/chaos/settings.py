"""The project's settings with the ringing agents installed; who asks is named by a header."""

from __future__ import annotations

from config.settings import *  # noqa: F403  the same settings, but for what follows
from config.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.bells"]
HELIX_AUTHENTICATE = "tests.recovery.crew.auth.by_header"
