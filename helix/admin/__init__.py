"""The operator's console in the Django admin: look at everything, change rows only through services (5.V).

Every page is read-only. What an operator may do (force-fail a call, move a deadline, stop a session) is a form of its
own that calls the same service as every other door. Values of private tools are shown only to operators with
``helix.view_private_values`` (R-396).
"""

from helix.admin import calls, ledgers, sessions

__all__ = ["calls", "ledgers", "sessions"]
