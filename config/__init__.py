"""Deployment: settings, URLs, the ASGI application and the Celery application. No rule of the product lives here."""

from __future__ import annotations

from config.celery import app as celery_app

__all__ = ["celery_app"]
