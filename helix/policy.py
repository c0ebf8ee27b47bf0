"""Who may see and decide approvals: a port that an integrator, or the `approvals` app, fills (R-180, R-398).

`HELIX_APPROVAL_POLICY` names a class with these two methods. Every door asks the same object, so a list, a count and
a decision can never disagree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from django.db.models import Q
from django.utils.module_loading import import_string

from helix import conf
from helix.models import PendingCall
from helix.principals import Principal


class ApprovalPolicy(Protocol):
    def reach(self, principal: Principal) -> Q:
        """Which calls beyond the principal's own sessions are in reach: a condition on `PendingCall`."""

    def may_decide(self, principal: Principal, call: PendingCall) -> bool:
        """Whether the principal is entitled to decide this call, which is in reach. Asked inside the decision."""


class OwnerDecides:
    """The default: an owner decides in own sessions, an operator everywhere."""

    def reach(self, principal: Principal) -> Q:
        return Q(pk__in=[])

    def may_decide(self, principal: Principal, call: PendingCall) -> bool:
        return principal.is_operator or call.root.owner == principal.id


@lru_cache(maxsize=8)
def _load(dotted_path: str) -> ApprovalPolicy:
    return import_string(dotted_path)()


def approval_policy() -> ApprovalPolicy:
    """The policy in force."""
    return _load(conf.get("HELIX_APPROVAL_POLICY"))
