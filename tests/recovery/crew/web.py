"""The ASGI application of the project in a process that is watched."""

from __future__ import annotations

from config.asgi import application
from tests.recovery.crew.watch import watch

watch()

__all__ = ["application"]
