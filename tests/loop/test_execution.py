"""Running tool bodies: how each ends, and that a stop ends the wait and not the bookkeeping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from pydantic import BaseModel

from helix.agents import Tool, ToolContext, client_tool, tool
from helix.loop import Cancelled, CancelToken
from helix.loop.execution import BodyResult, run_body
from helix.loop.registry import Executing, ProcessRegistry
from helix.loop.subprocesses import run_subprocess


def context(token: CancelToken | None = None) -> ToolContext:
    return ToolContext(
        session_id="s1",
        root_id="s1",
        run_id="r1",
        tool_call_id="c1",
        agent_type="shop",
        owner="owner",
        token=token or CancelToken(),
    )


@dataclass
class Held:
    """A body that computes until the test lets it go, whatever its token says (Q-57)."""

    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def tool(self) -> Tool:
        @tool
        def hold() -> str:
            self.entered.set()
            self.gate.wait()
            return "late"

        return hold


@pytest.fixture
def held() -> Iterator[Held]:
    body = Held()
    yield body
    body.gate.set()


def returning(value: Any) -> Tool:
    @tool
    def answer():  # type: ignore[no-untyped-def]
        return value

    return answer


def raising(error: BaseException) -> Tool:
    @tool
    def fail() -> None:
        raise error

    return fail


@tool
def add(left: int, right: int = 1) -> int:
    return left + right


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}, "plain", {"a": [1.5, None, True]}, "é \U0001f600"])
def test_any_json_value_is_a_result(value: Any) -> None:
    """R-073: nothing that is empty counts as nothing."""
    assert run_body(returning(value), {}, context()) == BodyResult("result", value=value)


def test_arguments_arrive_as_the_signature_says() -> None:
    assert run_body(add, {"left": 2}, context()).value == 3
    refused = run_body(add, {"left": "two"}, context())
    assert (refused.kind, refused.error_code) == ("error", "validation_failed")
    assert "/left" in str(refused.error)


def test_an_async_body_is_awaited() -> None:
    @tool
    async def later(word: str) -> str:
        await asyncio.sleep(0)
        return word * 2

    assert run_body(later, {"word": "go"}, context()).value == "gogo"


def test_a_body_receives_its_context_beside_its_arguments() -> None:
    @tool
    def whose(greeting: str, where: ToolContext) -> str:
        where.set_state("greeted", True)
        return f"{greeting}, {where.owner} in {where.session_id}"

    given = context()
    assert run_body(whose, {"greeting": "Hello"}, given).value == "Hello, owner in s1"
    assert given.state == {"greeted": True}


def test_a_model_is_returned_as_its_json() -> None:
    class Point(BaseModel):
        x: int

    assert run_body(returning(Point(x=1)), {}, context()).value == {"x": 1}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such order"), "no such order"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "exit the process"),
        (asyncio.CancelledError(), "CancelledError"),
        (Cancelled(), "cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_body_that_raises_has_failed(error: BaseException, said: str) -> None:
    """Nobody stopped the run: a body that pretends so has failed like any other."""
    result = run_body(raising(error), {}, context())
    assert (result.kind, result.error_code) == ("error", "tool_execution_failed")
    assert said in str(result.error)


def test_a_keyboard_interrupt_is_not_the_tools() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_body(raising(KeyboardInterrupt()), {}, context())


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("nan"), float("inf"), "\ud800", "nul \x00", b"bytes", circle(), {"a": {"b": object()}}],
    ids=["object", "set", "nan", "infinity", "surrogate", "nul", "bytes", "cycle", "nested"],
)
def test_a_result_that_cannot_be_stored_is_a_clean_failure(value: Any) -> None:
    result = run_body(returning(value), {}, context())
    assert (result.kind, result.error_code) == ("error", "tool_execution_failed")


def test_a_client_tool_never_runs_here() -> None:
    """R-001."""
    result = run_body(client_tool("pick", input_schema={"type": "object"}), {}, context())
    assert (result.kind, result.error_code) == ("error", "tool_execution_failed")


def test_a_stop_ends_the_wait_for_a_body_that_ignores_it(held: Held) -> None:
    """Q-14: the call closes at once, the body stays listed, and its late result changes nothing."""
    token = CancelToken()
    registry = ProcessRegistry()
    results: list[BodyResult] = []
    driver = threading.Thread(
        target=lambda: results.append(run_body(held.tool(), {}, context(token), registry=registry))
    )
    driver.start()
    held.entered.wait()
    token.cancel("interrupt")
    driver.join()
    assert [(result.kind, result.error_code) for result in results] == [("cancelled", "aborted")]
    assert registry.executing() == (Executing("r1", "c1", "hold"),)
    assert registry.executing("another") == ()
    held.gate.set()
    assert registry.wait_until_quiet()
    assert registry.executing() == ()
    assert len(results) == 1
    assert token.watchers == 0


def test_a_stop_before_the_start_starts_nothing(held: Held) -> None:
    """Q-15."""
    token = CancelToken()
    token.cancel()
    assert run_body(held.tool(), {}, context(token)).kind == "cancelled"
    assert not held.entered.is_set()


def test_a_stop_cancels_an_async_body() -> None:
    """Q-21: the body sees it, and its clean-up runs."""
    token = CancelToken()
    cleaned = threading.Event()
    registry = ProcessRegistry()

    @tool
    async def endless() -> None:
        try:
            token.cancel()
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    assert run_body(endless, {}, context(token), registry=registry).kind == "cancelled"
    cleaned.wait()
    assert registry.wait_until_quiet()


def test_a_body_that_asks_its_token_leaves_by_itself() -> None:
    token = CancelToken()
    registry = ProcessRegistry()

    @tool
    def polite(where: ToolContext) -> str:
        token.cancel()
        where.token.check()
        return "never"

    assert run_body(polite, {}, context(token), registry=registry).kind == "cancelled"
    assert registry.wait_until_quiet()


@pytest.mark.parametrize(
    "make", [lambda: returning(1), lambda: raising(ValueError("x")), lambda: raising(SystemExit())]
)
def test_no_ending_leaves_anything_behind(make: Callable[[], Tool]) -> None:
    """Q-07, Q-28: registry and watchers are back to zero, whichever event won."""
    token = CancelToken()
    registry = ProcessRegistry()
    run_body(make(), {}, context(token), registry=registry)
    assert registry.executing() == ()
    assert token.watchers == 0


@pytest.mark.django_db
def test_a_body_leaves_no_connection_behind() -> None:
    used: list[Any] = []

    @tool
    def query() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            used.append(cursor.db)
            return int(cursor.fetchone()[0])

    assert run_body(query, {}, context()).value == 1
    assert used[0].connection is None


def test_a_subprocess_is_waited_for() -> None:
    finished = run_subprocess(context(), ["cat"], stdin="through and through")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "through and through", "")


def test_a_stop_ends_a_subprocess_with_all_it_started() -> None:
    """Q-21: the group dies. The child of the shell holds the pipes open, so only its end ends the wait."""
    token = CancelToken()
    registry = ProcessRegistry()
    reports, report = threading.Event(), CancelToken()

    @tool
    def shell(where: ToolContext) -> str:
        try:
            reports.set()
            return run_subprocess(where, ["sh", "-c", "cat /dev/zero > /dev/null & wait"]).stdout
        finally:
            report.cancel()

    stopper = threading.Thread(target=lambda: (reports.wait(), token.cancel()))
    stopper.start()
    assert run_body(shell, {}, context(token), registry=registry).kind == "cancelled"
    stopper.join()
    assert registry.wait_until_quiet()
    assert report.cancelled


def test_a_stopped_run_starts_no_subprocess() -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        run_subprocess(context(token), ["true"])
