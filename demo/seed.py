"""Logins for the demonstration, and who may do what with them. Again is once (F-7)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from approvals.models import Assignment
from demo.agents import REFUND_DESK

log = logging.getLogger("helix.demo")

PASSWORD = "demo-only"  # noqa: S105  public by design; see `is_local`
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def is_local() -> bool:
    """Whether the server answers to this machine's names alone. Only there is a known password harmless."""
    return set(settings.ALLOWED_HOSTS) <= LOCAL_HOSTS


def seed() -> Sequence[tuple[str, str]]:
    """Make the logins owner, reviewer and operator; returns those whose password is still the printed one.

    Does nothing, and says so, on a server that others can reach. A login that exists keeps its password.
    """
    if not is_local():
        log.warning("demo.not_seeded", extra={"reason": "ALLOWED_HOSTS names other hosts than this machine"})
        return ()
    with transaction.atomic():
        users = [_user("owner"), _reviewer(), _operator()]
    return [(user.username, PASSWORD) for user in users if user.check_password(PASSWORD)]


def _user(username: str, *, is_staff: bool = False) -> User:
    user, is_new = User.objects.get_or_create(username=username, defaults={"is_staff": is_staff})
    if is_new:
        user.set_password(PASSWORD)
        user.save(update_fields=["password"])
    return user


def _reviewer() -> User:
    """Decides the refunds of the desk, as a member of the group that is assigned to them."""
    user = _user("reviewer")
    reviewers, _ = Group.objects.get_or_create(name="reviewers")
    user.groups.add(reviewers)
    Assignment.objects.get_or_create(group=reviewers, agent_type=REFUND_DESK, tool_name="pay_refund")
    return user


def _operator() -> User:
    """Sees every conversation, repairs what is stuck, and says who reviews what; sees no private values (R-396)."""
    user = _user("operator", is_staff=True)
    reading = Permission.objects.filter(content_type__app_label="helix", codename__startswith="view_").exclude(
        codename="view_private_values"
    )
    operating = Permission.objects.filter(content_type__app_label="helix", codename="operate")
    assigning = Permission.objects.filter(content_type__app_label="approvals")
    user.user_permissions.add(*reading, *operating, *assigning)
    return user
