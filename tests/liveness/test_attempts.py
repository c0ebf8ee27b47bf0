"""A deadlock or a busy database is tried again, at most three times, and the stop is read each time (R-601, Q-17)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import OperationalError, connection

from helix.models import Message
from helix.rows.attempts import MOST_RETRIES, is_contention
from helix.rows.tree import Tree
from helix.services.advance import advance_run
from helix.statuses import RunStatus
from helix.waypoints import Waypoint, listening
from tests.fixtures import AgentMaker
from tests.kit.gates import Worker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, locate
from tests.kit.world import World, current_run, events, session_of

pytestmark = pytest.mark.django_db(transaction=True)

RETRY = "client_tool.ownership_retry"


def failure_by(cause: Exception) -> OperationalError:
    failure = OperationalError(str(cause))
    failure.__cause__ = cause
    return failure


def sqlite_failure(code: int) -> sqlite3.OperationalError:
    cause = sqlite3.OperationalError("refused")
    cause.sqlite_errorcode = code
    return cause


CONTENTIONS = [
    psycopg.errors.DeadlockDetected("deadlock"),
    psycopg.errors.SerializationFailure("could not serialize"),
    psycopg.errors.LockNotAvailable("lock timeout"),
    sqlite_failure(sqlite3.SQLITE_BUSY),
    sqlite_failure(sqlite3.SQLITE_LOCKED),
    sqlite_failure(sqlite3.SQLITE_BUSY_SNAPSHOT),
    sqlite3.OperationalError("database is locked"),
]
OTHERS = [
    psycopg.errors.AdminShutdown("terminating connection"),
    psycopg.OperationalError("connection refused"),
    sqlite_failure(sqlite3.SQLITE_IOERR),
    sqlite3.OperationalError("no such table"),
]


@pytest.mark.parametrize("cause", CONTENTIONS, ids=repr)
def test_somebody_in_the_way_is_contention(cause: Exception) -> None:
    """R-601."""
    assert is_contention(failure_by(cause))


@pytest.mark.parametrize("cause", OTHERS, ids=repr)
def test_a_database_that_is_away_is_none(cause: Exception) -> None:
    """R-601: the control. Waiting is then the lease's business, not the verb's."""
    assert not is_contention(failure_by(cause))


@contextmanager
def failing(times: int, failure: Callable[[], Exception]) -> Iterator[list[int]]:
    """The next transactions fail at their end, ``times`` of them; the list counts all that came that far."""
    reached: list[int] = []
    close = Tree.close

    def close_or_fail(tree: Tree) -> None:
        reached.append(len(reached) + 1)
        if len(reached) <= times:
            raise failure()
        close(tree)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tree, "close", close_or_fail)
        yield reached


def deadlock() -> OperationalError:
    return failure_by(psycopg.errors.DeadlockDetected("deadlock"))


@pytest.fixture
def waiting(world: World, agent: AgentMaker) -> UUID:
    return world.started(agent(ScriptedModel([call("locate", "c1")], ["done"]), tools=[locate]))


@pytest.mark.parametrize("times", [1, MOST_RETRIES])
def test_a_submit_that_meets_contention_is_accepted_once(
    world: World, waiting: UUID, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """R-601: one debug line per repetition; one answer, one continuation."""
    with caplog.at_level(logging.DEBUG, "helix.rows"), failing(times, deadlock) as reached:
        assert world.submit(waiting, "c1", result="here")["status"] == "accepted"
    assert len(reached) == times + 1
    assert [(r.levelname, r.msg) for r in caplog.records if r.msg == RETRY] == [("DEBUG", RETRY)] * times
    world.drain()
    assert session_of(waiting).status == "idle" and len(events(waiting, "call_answered")) == 1


def test_the_fourth_contention_is_raised_on(world: World, waiting: UUID) -> None:
    """R-601: at most three more attempts; nothing is stored, and the next request is."""
    with failing(MOST_RETRIES + 1, deadlock) as reached, pytest.raises(OperationalError):
        world.submit(waiting, "c1", result="here")
    assert len(reached) == MOST_RETRIES + 1 and session_of(waiting).status == "awaiting_client_tool"
    assert world.submit(waiting, "c1", result="here")["status"] == "accepted"


def test_what_is_no_contention_is_not_tried_again(world: World, waiting: UUID) -> None:
    """R-601."""
    with failing(1, lambda: failure_by(psycopg.OperationalError("gone"))) as reached, pytest.raises(OperationalError):
        world.submit(waiting, "c1", result="here")
    assert reached == [1]


def test_a_turn_goes_on_through_contention(world: World, agent: AgentMaker) -> None:
    """R-601: every write of a whole turn meets contention once; each body runs once, each reply is asked once."""
    bodies = Bodies()
    model = ScriptedModel([call("count", "s1", number=1)], ["done"])
    session_id = world.start(agent(model, tools=[bodies.tool("count")]))
    before = Tree.close
    failed: set[str] = set()

    def close_or_fail(tree: Tree) -> None:
        kinds = "".join(event.type for event in tree._events)
        if kinds not in failed:
            failed.add(kinds)
            raise deadlock()
        before(tree)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tree, "close", close_or_fail)
        world.drain()
    assert len(failed) > 4 and bodies.ran == [("count", 1)] and model.asked == 2
    assert [m.parts[0].get("text") for m in Message.objects.filter(role="assistant").order_by("position")][-1] == "done"
    numbers = list(session_of(session_id).events.order_by("sequence").values_list("sequence", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_stop_that_came_between_two_attempts_is_read(world: World, agent: AgentMaker) -> None:
    """Q-17, Q-18: the repetition is fenced anew, so the reply of a stopped turn is not recorded as if it ran on."""
    bodies = Bodies()
    model = ScriptedModel([call("count", "s1", number=1)], ["done"])
    session_id = world.start(agent(model, tools=[bodies.tool("count")]))
    close = Tree.close
    stopped: list[Any] = []

    def stop_first(tree: Tree) -> None:
        if not stopped and any(event.type == "step_committed" for event in tree._events):
            stopped.append(tree)
            raise deadlock()
        close(tree)

    def stop(point: Waypoint) -> None:
        # Between the attempts: the failed transaction is over, the next one has not yet asked for the lock.
        if point == Waypoint.BEFORE_LOCK and len(stopped) == 1:
            stopped.append(point)
            world.stop(session_id)

    with pytest.MonkeyPatch.context() as patch, listening(stop):
        patch.setattr(Tree, "close", stop_first)
        advance_run(current_run(session_id).id, clock=world.clock)
    assert len(stopped) == 2 and current_run(session_id).status == RunStatus.INTERRUPTED
    assert bodies.ran == [] and model.asked == 1
    assert Message.objects.get(session_id=session_id, role="assistant").interrupted


@pytest.mark.postgres
def test_a_real_deadlock_is_tried_again(world: World, waiting: UUID, caplog: pytest.LogCaptureFixture) -> None:
    """R-601: the server ends one of two transactions that wait for each other; the submit is the one that it ends."""
    rival: list[Worker] = []

    def lock_the_other_way_round() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SET LOCAL deadlock_timeout = '1h'")
            cursor.execute("SELECT pg_advisory_xact_lock(1)")
            cursor.execute("SELECT 1 FROM helix_session WHERE id = %s FOR UPDATE", [waiting])
            cursor.execute("COMMIT")

    def meet(point: Waypoint) -> None:
        if point != Waypoint.LOCKED or rival:
            return
        rival.append(Worker(lock_the_other_way_round))
        with connection.cursor() as cursor:
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            while True:
                cursor.execute(blocked)
                if cursor.fetchone()[0]:
                    break
            cursor.execute("SET LOCAL deadlock_timeout = '1ms'")
            cursor.execute("SELECT pg_advisory_xact_lock(1)")

    with caplog.at_level(logging.DEBUG, "helix.rows"), listening(meet):
        assert world.submit(waiting, "c1", result="here")["status"] == "accepted"
    rival[0].end()
    assert [record.msg for record in caplog.records].count(RETRY) == 1


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL has no write lock of the whole database")
def test_a_database_that_another_process_writes_is_tried_again(
    world: World, waiting: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    """R-601: SQLite's own lock, held outside of this process's queue, and released at the first repetition."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other:
        other.execute("BEGIN IMMEDIATE")

        class LetGo(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.msg == RETRY:
                    other.rollback()

        handler = LetGo()
        logger = logging.getLogger("helix.rows")
        logger.addHandler(handler)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 1")
        try:
            with caplog.at_level(logging.DEBUG, "helix.rows"):
                assert world.submit(waiting, "c1", result="here")["status"] == "accepted"
        finally:
            logger.removeHandler(handler)
            connection.close()
    assert [record.msg for record in caplog.records].count(RETRY) == 1
