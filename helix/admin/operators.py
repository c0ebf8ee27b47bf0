"""Who works in the console, and what that person may see."""

from __future__ import annotations

from django.http import HttpRequest

from helix.principals import Principal

OPERATE = "helix.operate"
VIEW_PRIVATE = "helix.view_private_values"
DOOR = "admin"


def may_operate(request: HttpRequest) -> bool:
    return request.user.has_perm(OPERATE)


def may_view_private(request: HttpRequest) -> bool:
    """R-396: operators only, and among them those with the permission."""
    return may_operate(request) and request.user.has_perm(VIEW_PRIVATE)


def principal_of(request: HttpRequest) -> Principal:
    """The logged-in person as every service knows them."""
    return Principal(
        id=str(request.user.pk),
        name=request.user.get_username(),
        is_operator=may_operate(request),
        views_private_values=may_view_private(request),
        address=request.META.get("REMOTE_ADDR", ""),
    )
