"""Verbs on rows under the root's lock. Only services call them; each assumes `tree` holds the lock (F-2)."""
