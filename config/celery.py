"""The Celery application: one queue of nudges for runs and one for the sweep. Tasks live in ``helix.tasks``."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from kombu.transport import redis, virtual

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


class AcksAreCounted(redis.QoS):  # type: ignore[misc]
    """A message is over here even when Redis cannot be told so.

    kombu keeps counting it against the prefetch limit. A worker whose limit is reached then never asks for another
    message, nor looks at the connection that it lost: one restart of Redis could leave it deaf for as long as it lives.
    """

    def ack(self, delivery_tag: Any) -> None:
        try:
            super().ack(delivery_tag)
        except Exception:
            virtual.QoS.ack(self, delivery_tag)
            raise


redis.Channel.QoS = AcksAreCounted

app = Celery("helix")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
