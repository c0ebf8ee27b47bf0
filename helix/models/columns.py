"""Column shapes that several tables share."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.db.models import Q


def identity() -> models.UUIDField[Any, Any]:
    """A minted key: 122 random bits, derived from nothing (R-199, R-386)."""
    return models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)


def choice(choices: type[models.TextChoices], **options: Any) -> models.CharField[Any, Any]:
    """A word out of a table of `statuses`; pair it with `one_of` in the constraints."""
    return models.CharField(max_length=32, choices=choices.choices, **options)


def one_of(name: str, field: str, choices: type[models.TextChoices], *, null: bool = False) -> models.CheckConstraint:
    """The database knows the table of states too (F-6). Values keep their declared order."""
    allowed = Q(**{f"{field}__in": [choice.value for choice in choices]})
    if null:
        allowed |= Q(**{f"{field}__isnull": True})
    return models.CheckConstraint(name=name, condition=allowed)


def exactly_when(name: str, left: Q, right: Q) -> models.CheckConstraint:
    """`left` holds exactly when `right` does. Neither may evaluate to NULL."""
    return models.CheckConstraint(name=name, condition=(left & right) | (~left & ~right))
