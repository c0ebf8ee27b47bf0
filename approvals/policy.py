"""The rule of who sees and decides approvals: owners their own, reviewers what they are assigned (R-180, R-398).

`HELIX_APPROVAL_POLICY` names this class. The list, its counts and the deciding transaction ask the same rows.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from approvals.models import Assignment
from helix.models import PendingCall
from helix.principals import Principal


class AssignmentPolicy:
    """Assignments widen a reviewer's reach. The ban on deciding what one asked for oneself is Helix's own (R-023)."""

    def reach(self, principal: Principal) -> Q:
        """Calls that an assignment of the principal covers, as one condition that is read when the query runs."""
        covering = Assignment.objects.of(principal).covering(
            agent_type=OuterRef("session__agent_type"), tool_name=OuterRef("tool_name"), session=OuterRef("root_id")
        )
        return Q(Exists(covering))

    def may_decide(self, principal: Principal, call: PendingCall) -> bool:
        """Owners in their own conversations, operators everywhere, reviewers where an assignment covers the call."""
        if principal.is_operator or call.root.owner == principal.id:
            return True
        covering = Assignment.objects.of(principal).covering(
            agent_type=call.session.agent_type, tool_name=call.tool_name, session=call.root_id
        )
        return covering.exists()
