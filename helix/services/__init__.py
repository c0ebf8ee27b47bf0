"""The verbs of Helix: one public verb is one durable transaction over one tree (F-3). They never call each other.

Every verb is keyword-only and takes ``principal`` and ``now``; it raises a refusal of `helix.errors` and then has
written nothing, except where its docstring says that a recorded stop was resolved on the way.
"""
