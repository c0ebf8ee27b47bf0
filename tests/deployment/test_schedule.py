"""The beat schedule: one row that can be made again without harm."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from pytest_django import Settings

pytestmark = pytest.mark.django_db


def schedule() -> PeriodicTask:
    call_command("helix_schedule", verbosity=0)
    return PeriodicTask.objects.get()


def test_the_sweep_is_scheduled_as_often_as_the_setting_says(settings: Settings) -> None:
    settings.HELIX_SWEEP_SECONDS = 7
    task = schedule()
    assert (task.task, task.interval.every, task.interval.period) == ("helix.sweep", 7, "seconds")
    assert (task.expires, task.expire_seconds) == (None, None)


def test_a_fraction_of_a_second_is_kept(settings: Settings) -> None:
    settings.HELIX_SWEEP_SECONDS = 0.25
    task = schedule()
    assert (task.interval.every, task.interval.period) == (250_000, "microseconds")


def test_scheduling_twice_is_scheduling_once() -> None:
    """F-7."""
    first = schedule()
    again = schedule()
    assert first.date_changed == again.date_changed
    assert IntervalSchedule.objects.count() == 1


def test_a_changed_setting_moves_the_schedule(settings: Settings) -> None:
    settings.HELIX_SWEEP_SECONDS = 1
    schedule()
    settings.HELIX_SWEEP_SECONDS = 5
    assert schedule().interval.every == 5


def test_an_operator_who_turned_the_sweep_off_stays_heard() -> None:
    task = schedule()
    task.enabled = False
    task.save()
    assert schedule().enabled is False
