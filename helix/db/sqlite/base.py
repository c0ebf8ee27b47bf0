"""The backend that ``ENGINE = "helix.db.sqlite"`` names.

Every transaction waits for the process-wide lock before ``BEGIN IMMEDIATE`` and keeps it until commit, rollback or
close; a writing statement outside a transaction keeps it for that statement. Savepoints are inside a transaction and
do not touch it. A wait longer than the ``timeout`` option ends as SQLite itself would end it: "database is locked".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from django.db.backends.sqlite3 import base

from helix.db.sqlite.fair import FairLock, lock_of

# Statements that never wait for SQLite's write lock, or that the transaction methods below have covered already.
_LOCK_FREE = ("SELECT", "PRAGMA", "EXPLAIN", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


def _verb(query: str) -> str:
    """The first word of a statement; a long statement is not copied for it."""
    words = query[:64].lstrip("( \n\t").split(None, 1)
    return words[0].upper() if words else ""


class WriteLockedCursor(base.SQLiteCursorWrapper):
    """A cursor whose writes outside a transaction take their turn too."""

    wrapper: DatabaseWrapper

    def execute(self, query: str, params: Any = None) -> Any:
        return self._in_turn(query, lambda: super(WriteLockedCursor, self).execute(query, params))

    def executemany(self, query: str, param_list: Iterable[Any]) -> Any:
        return self._in_turn(query, lambda: super(WriteLockedCursor, self).executemany(query, param_list))

    def _in_turn(self, query: str, run: Callable[[], Any]) -> Any:
        if self.connection.in_transaction or _verb(query) in _LOCK_FREE:
            return run()
        taken_here = self.wrapper.take_write_lock()
        try:
            return run()
        finally:
            if taken_here and not self.connection.in_transaction:
                self.wrapper.give_write_lock()


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper, in line with the other writers of this process."""

    _held: FairLock | None = None

    def create_cursor(self, name: str | None = None) -> WriteLockedCursor:
        cursor: WriteLockedCursor = self.connection.cursor(factory=WriteLockedCursor)
        cursor.wrapper = self
        return cursor

    def take_write_lock(self) -> bool:
        """Wait for this process's turn to write. False: this connection has it already. Raises: OperationalError."""
        if self._held is not None:
            return False
        lock = lock_of(str(self.settings_dict["NAME"]))
        if not lock.acquire(self.settings_dict["OPTIONS"].get("timeout", 5.0)):
            raise sqlite3.OperationalError("database is locked")
        self._held = lock
        return True

    def give_write_lock(self) -> None:
        """Let the next writer go on; nothing when this connection does not have the lock."""
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def _start_transaction_under_autocommit(self) -> None:
        with self.wrap_database_errors:
            self.take_write_lock()
        try:
            super()._start_transaction_under_autocommit()
        except BaseException:
            self.give_write_lock()
            raise

    def _commit(self) -> None:
        # A commit that fails leaves the transaction open; Django rolls it back, and that gives the lock away.
        super()._commit()
        self.give_write_lock()

    def _rollback(self) -> None:
        try:
            super()._rollback()
        finally:
            self.give_write_lock()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self.give_write_lock()
