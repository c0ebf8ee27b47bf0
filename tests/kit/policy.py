"""Approval policies of tests: who may see and who may decide are two questions (R-180)."""

from __future__ import annotations

from django.db.models import Q

from helix.models import PendingCall
from helix.principals import Principal


class DecidersDecide:
    """Every reviewer sees every approval; to decide one takes the group ``deciders``, also for its owner."""

    def reach(self, principal: Principal) -> Q:
        return Q() if principal.is_reviewer else Q(pk__in=[])

    def may_decide(self, principal: Principal, call: PendingCall) -> bool:
        return "deciders" in principal.groups


DECIDERS_DECIDE = f"{__name__}.{DecidersDecide.__name__}"
DECIDER = Principal(id="reviewer", is_reviewer=True, groups=frozenset({"deciders"}))
