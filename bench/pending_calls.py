"""What one submit costs among 10 and among 10,000 calls that wait in the same conversation (G8, B-02).

``python -m bench.pending_calls [--rounds N]`` fills a throw-away database beside the one that ``DATABASE_URL`` names,
submits to both conversations in turn, and prints medians and their ratio. The goal is a ratio of at most 1.3.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import django

FEW, MANY = 10, 10_000
RESULTS = Path(__file__).parent / "results" / "pending_calls.json"


@contextmanager
def database() -> Iterator[str]:
    """A fresh database of the configured kind, migrated; its vendor."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.db import connection
    from django.test.utils import setup_databases, teardown_databases

    old = setup_databases(verbosity=0, interactive=False)
    try:
        yield connection.vendor
    finally:
        teardown_databases(old, verbosity=0)


def waiting_conversation(calls: int) -> UUID:
    """A conversation whose one step asked for that many client calls, all of them open."""
    from helix.agents import Agent, client_tool, register
    from helix.clock import utc_now
    from helix.loop.scripted import Call, script
    from helix.principals import Principal
    from helix.services.advance import advance_run
    from helix.services.entries import start

    name = f"bench-{calls}-{uuid4().hex[:8]}"

    @script(name)
    def asks(request: object) -> Iterator[Call]:
        yield from (Call("locate", {"number": number}, f"c{number}") for number in range(calls))

    register(
        Agent(
            name,
            model=f"scripted:{name}",
            tools=[client_tool("locate", description="Where?", input_schema={}, client_tool_timeout_ms=None)],
        )
    )
    entered = start(
        principal=Principal("owner"), agent_type=name, message=[{"type": "text", "text": "go"}], now=utc_now()
    )
    advance_run(UUID(entered.run_id))
    return UUID(entered.session_id)


def submit_milliseconds(session_id: UUID, number: int) -> float:
    from helix.answers import Result
    from helix.clock import utc_now
    from helix.principals import Principal
    from helix.services.submit import submit_answer

    begun = time.perf_counter()
    done = submit_answer(
        principal=Principal("owner"),
        session_id=str(session_id),
        tool_call_id=f"c{number}",
        answer=Result(text='"here"', value="here"),
        now=utc_now(),
    )
    taken = (time.perf_counter() - begun) * 1000
    if done.status != "accepted":
        raise SystemExit(f"a submit was {done.status}")
    return taken


def measure(rounds: int) -> dict[str, object]:
    """Interleaved: each round submits once to a small and once to the big conversation."""
    with database() as vendor:
        from helix import nudges

        nudges.send_to_worker = lambda run_id: None
        nudges.send_to_readers = lambda root_id, sequence: None
        begun = time.perf_counter()
        big = waiting_conversation(MANY)
        emitted = time.perf_counter() - begun
        few: list[float] = []
        many: list[float] = []
        small = waiting_conversation(FEW)
        for number in range(rounds):
            if number % (FEW - 1) == 0:
                small = waiting_conversation(FEW)
            few.append(submit_milliseconds(small, number % (FEW - 1)))
            many.append(submit_milliseconds(big, number))
    # The first submits of a process pay for imports and plans.
    warm = max(2, rounds // 10)
    low, high = statistics.median(few[warm:]), statistics.median(many[warm:])
    return {
        "workload": "submit among pending calls",
        "database": vendor,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "rounds": rounds,
        "p50_ms": {str(FEW): round(low, 2), str(MANY): round(high, 2)},
        "ratio": round(high / low, 3),
        "emit_10000_calls_s": round(emitted, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    measured = measure(parser.parse_args().rounds)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[str(measured["database"])] = measured
    RESULTS.write_text(json.dumps(known, indent=2) + "\n")
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
