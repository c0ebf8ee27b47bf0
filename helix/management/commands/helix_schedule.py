"""``manage.py helix_schedule``: put the sweep on the beat schedule. Repeating it changes nothing (F-7)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from helix import conf

SWEEP = "helix.sweep"


class Command(BaseCommand):
    """Writes one row; an operator may turn it off in the admin, and stays heard: ``enabled`` is never touched."""

    help = "Schedules the sweep every HELIX_SWEEP_SECONDS."

    def handle(self, *args: Any, **options: Any) -> None:
        every, period = self._interval(conf.get("HELIX_SWEEP_SECONDS"))
        interval = IntervalSchedule.objects.filter(every=every, period=period).first()
        if interval is None:
            interval = IntervalSchedule.objects.create(every=every, period=period)
        # No `expires`: due work is a column, and a late sweep is as good as a punctual one.
        wanted = {"task": SWEEP, "interval": interval}
        task, created = PeriodicTask.objects.get_or_create(name=SWEEP, defaults=wanted)
        if not created and (task.task, task.interval_id) != (SWEEP, interval.pk):
            task.task, task.interval = SWEEP, interval
            task.save()
        if options["verbosity"]:
            self.stdout.write(f"{SWEEP} runs every {conf.get('HELIX_SWEEP_SECONDS')} s.")

    def _interval(self, seconds: float) -> tuple[int, str]:
        """Beat's intervals are whole numbers: whole seconds, or else microseconds."""
        if float(seconds).is_integer():
            return int(seconds), IntervalSchedule.SECONDS
        return round(seconds * 1_000_000), IntervalSchedule.MICROSECONDS
