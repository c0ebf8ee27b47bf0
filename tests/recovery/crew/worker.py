"""The Celery application of the project in a process that is watched: ``celery --app tests.recovery.crew.worker``."""

from __future__ import annotations

from config.celery import app
from tests.recovery.crew.watch import watch

watch()

__all__ = ["app"]
