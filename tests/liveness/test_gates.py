"""The instruments themselves: gates announce, count and wait; a drain reports what is held (D-1, D-2, D-7)."""

from __future__ import annotations

import threading

import pytest

from helix.agents import ToolContext
from helix.loop import Cancelled, CancelToken
from helix.loop.execution import run_body
from helix.loop.registry import REGISTRY
from helix.rows.holdings import HOLDINGS
from tests.kit.gates import BodyGate, Worker, another_process
from tests.kit.models import ModelGate


def context(token: CancelToken) -> ToolContext:
    names = {"session_id": "s", "root_id": "s", "run_id": "r", "tool_call_id": "c", "agent_type": "a", "owner": "owner"}
    return ToolContext(**names, token=token)


def test_a_gate_announces_counts_and_waits() -> None:
    """D-1, D-2, D-7."""
    gate, token = ModelGate(), CancelToken()
    worker = Worker(lambda: gate.wait(token))
    gate.entered.wait()
    assert gate.arrivals == 1 and not gate.opened.is_set()
    gate.release()
    worker.end()
    assert gate.cancellations == 0 and token.watchers == 0


def test_a_stop_opens_a_gate_and_is_counted() -> None:
    """D-1, Q-28: and no watcher is left."""
    gate, token = ModelGate(), CancelToken()
    worker = Worker(lambda: gate.wait(token))
    gate.entered.wait()
    token.cancel("stop")
    worker.end()
    assert (gate.arrivals, gate.cancellations, token.watchers) == (1, 1, 0)


@pytest.mark.parametrize("ignores", [False, True])
def test_an_endless_body_is_a_line_of_a_test(ignores: bool) -> None:
    """Q-57, Q-14: held for as long as nobody stops it, and beyond the stop when it takes no notice."""
    gate, token = BodyGate(ignores_stops=ignores), CancelToken()
    worker = Worker(lambda: run_body(gate.tool(), {}, context(token)))
    gate.entered.wait()
    assert [body.tool_name for body in REGISTRY.executing()] == ["hold"]
    token.cancel("stop")
    assert worker.end().kind == "cancelled"
    if ignores:
        assert [body.tool_name for body in REGISTRY.executing()] == ["hold"]
        gate.release()
    assert REGISTRY.wait_until_quiet() and gate.arrivals == 1


def test_a_worker_carries_its_failure_to_the_test() -> None:
    """D-12: a thread that died is no success."""

    def fails() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        Worker(fails).end()


def test_another_process_is_left_as_it_was_found() -> None:
    """L-1: this process gets its own name and marks back."""
    before, here = HOLDINGS.holder, threading.current_thread()
    with another_process():
        assert HOLDINGS.holder != before and threading.current_thread() is here
    assert HOLDINGS.holder == before
