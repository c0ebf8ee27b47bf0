"""Advance one run: claim it, think, record, and so on, until it ends or suspends.

`driver` is the walk; each of `claim`, `reply`, `bodies`, `drain` and `finish` holds transactions of it. No transaction
is open while a model thinks or a tool computes (F-4), and every write is fenced on the epoch of the claim (Q-18).
"""

from helix.services.advance.driver import advance_run

__all__ = ["advance_run"]
