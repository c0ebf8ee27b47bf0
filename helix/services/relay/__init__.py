"""The work at other servers: begin remote children, read how they stand, hand on answers and stops (5.G).

Whoever works takes what is due from the rows, asks the peer with no transaction open, and records what it heard under
the root's lock. Every request may be repeated and every record is judged by the rows of that moment, so two workers on
one errand do no harm. ``relay_due`` is all that a hint or a sweep needs.
"""

from helix.services.relay.due import due_children, due_debts, is_due, relay_due

__all__ = ["due_children", "due_debts", "is_due", "relay_due"]
