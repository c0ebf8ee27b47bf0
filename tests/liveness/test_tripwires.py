"""Nothing starts, waits or writes unseen: scans of every call site, and checks of the scans (liveness 7)."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import pytest

from tests.architecture.sources import PACKAGES, modules
from tests.liveness.callsites import Judge, called, sites, sites_in, starts_work, waits_by_a_clock
from tests.liveness.exemptions import CLOCKS, REAL_CLOCK_TESTS, STARTS

SCANS = pytest.mark.parametrize(
    ("judge", "packages", "exempt"),
    [
        (starts_work, PACKAGES, STARTS),
        (waits_by_a_clock, PACKAGES, CLOCKS),
        (waits_by_a_clock, ("tests",), REAL_CLOCK_TESTS),
    ],
    ids=["starts", "clocks", "clocks of tests"],
)


def found_by(judge: Judge, packages: Collection[str]) -> set[str]:
    return {site for site in sites(judge, packages) if not site.startswith("tests.browser")}


@SCANS
def test_every_site_is_tracked_or_exempt_with_a_reason(
    judge: Judge, packages: Collection[str], exempt: dict[str, str]
) -> None:
    """Q-54, Q-52, D-4, Q-35: a new one has to say who waits for it."""
    assert sorted(found_by(judge, packages) - set(exempt)) == []


@SCANS
def test_no_exemption_is_stale(judge: Judge, packages: Collection[str], exempt: dict[str, str]) -> None:
    """Q-54, Q-52: the lists can only shrink with the code."""
    assert sorted(set(exempt) - found_by(judge, packages)) == [] and all(exempt.values())


MIXED = ast.parse(
    """
def nudge(run_id):
    transaction.on_commit(send)

class Edge:
    async def serve(self):
        transaction.on_commit(send)
        threading.Thread(target=work).start()
        threading.Thread(target=more).start()
"""
)


def test_a_scan_sees_sites_and_not_files() -> None:
    """Q-56, Q-55: an exemption of one call in a file covers no other one there, not even an equal one beside it."""
    assert [str(site) for site in sites_in(MIXED, "m", starts_work)] == [
        "m:nudge on_commit",
        "m:Edge.serve on_commit",
        "m:Edge.serve Thread",
        "m:Edge.serve Thread 2",
    ]


@pytest.mark.parametrize(
    "line",
    ["task.delay(1)", "app.send_task('x')", "pool.submit(f)", "Popen(['x'])", "asyncio.create_task(c)", "Timer(1, f)"],
)
def test_the_scan_of_starts_sees_each_kind(line: str) -> None:
    """Q-54, Q-55: the control beside it starts nothing."""
    assert len(sites_in(ast.parse(line), "m", starts_work)) == 1
    assert sites_in(ast.parse("nudge_worker(run.id)"), "m", starts_work) == []


@pytest.mark.parametrize(
    ("line", "is_clock"),
    [
        ("time.sleep(3)", True),
        ("asyncio.wait_for(work, 5)", True),
        ("thread.join(BOUND)", True),
        ("event.wait(0.5)", True),
        ("client.get(url, timeout=3)", True),
        ("thread.join()", False),
        ("event.wait()", False),
        ("lock.acquire(timeout=0)", False),
        ("client.get(url, timeout=None)", False),
        ("', '.join(names)", False),
        ("condition.wait_for(lambda: done)", False),
    ],
)
def test_the_scan_of_clocks_sees_bounds_and_nothing_else(line: str, is_clock: bool) -> None:
    """D-4, Q-55."""
    assert bool(sites_in(ast.parse(line), "m", waits_by_a_clock)) is is_clock


def test_no_service_and_no_task_waits_for_another() -> None:
    """Q-22: turn code waits for its own run only; the waits for everybody belong to a shutdown and to tests."""
    waits = {"wait_until_quiet", "wait_until_empty", "drain_all", "join_native", "AsyncResult", "join"}

    def judge(node: ast.Call) -> str | None:
        is_text = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant | ast.JoinedStr)
        return called(node) if called(node) in waits and not is_text else None

    inside = {
        site for site in sites(judge, ["helix"]) if site.startswith(("helix.services", "helix.rows", "helix.tasks"))
    }
    assert inside == set()
    assert "helix.handover:hand_back wait_until_quiet" in sites(judge, ["helix"])


CLOCKS_OF_SQL = ("now()", "clock_timestamp", "current_timestamp", "statement_timestamp")


def test_sql_tells_no_time_but_through_the_clock() -> None:
    """D-4, L-5: a comparison with the database's own now could not be frozen."""
    telling = {
        module.name
        for module in modules(*PACKAGES)
        for node in ast.walk(module.tree)
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and any(word in node.value.lower() and "select" in node.value.lower() for word in CLOCKS_OF_SQL)
        )
        or (isinstance(node, ast.Name) and node.id == "Now")
    }
    assert telling == {"helix.clock"}


def transactions() -> Iterator[tuple[str, bool]]:
    """Every function of the services that opens one, and whether it is tried again."""
    for module in modules("helix"):
        if not module.name.startswith("helix.services"):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if "contextmanager" in marks:
                continue  # opened and closed by the functions that use it
            opened = [
                ast.unparse(item.context_expr)
                for inner in ast.walk(node)
                if isinstance(inner, ast.With)
                for item in inner.items
            ]
            if any(mark.startswith("transaction.atomic") for mark in marks) or any(
                text.startswith("locked(") or text == "transaction.atomic(durable=True)" for text in opened
            ):
                yield f"{module.name}.{node.name}", "tried_again" in marks


def test_every_transaction_of_a_service_is_tried_again() -> None:
    """R-601, Q-17: as a whole, so that it reads the stop and the fence anew."""
    found = dict(transactions())
    assert [name for name, is_tried in found.items() if not is_tried] == []
    assert len(found) > 25
