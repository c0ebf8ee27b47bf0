"""The project's settings with the crew installed, and a part of the broker to itself."""

from __future__ import annotations

import os

from config.settings import *  # noqa: F403  the same settings, but for what follows
from config.settings import CELERY_BROKER_TRANSPORT_OPTIONS, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.recovery.crew"]
HELIX_AUTHENTICATE = "tests.recovery.crew.auth.by_header"
CELERY_BROKER_TRANSPORT_OPTIONS = {
    **CELERY_BROKER_TRANSPORT_OPTIONS,
    "global_keyprefix": os.environ["CREW_PREFIX"],
}
