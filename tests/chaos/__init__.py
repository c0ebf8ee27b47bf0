"""A thousand conversations while everything that serves them is killed at random: ``python -m tests.chaos``.

Real processes out of the Procfile, a PostgreSQL whose connections are cut and a Redis that is shot. What is asserted
at the end is read from rows, from a ledger that bodies keep outside the database, and from what clients saw. Orders
are not chosen here, as they are elsewhere; this is where orders that nobody thought of are met.
"""
