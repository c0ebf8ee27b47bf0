"""``python -m tests.chaos``: one storm, its counts, and status 1 when anything that must hold does not."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.company import LEASE_SECONDS, Company, company
from tests.chaos.doors import Doors, GivenUp
from tests.chaos.plans import plan
from tests.chaos.storm import DECK, Storm

CLIENTS = 24
ANSWERS_A_CONVERSATION = 6
# Nobody's work may be at rest for as long as this: it only ends a run of this program that would never end.
STUCK_SECONDS = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--blows", type=int, default=0, help="how many fall; left out: one for eight conversations")
    parser.add_argument("--keep", action="store_true", help="leave logs and ledger where they are")
    asked = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="helix-chaos-"))
    directory.chmod(0o755)
    try:
        with company(directory, asked.broker) as serving:
            blows = asked.blows or max(len(DECK), asked.sessions // 8)
            return weather(
                serving, asked.sessions, asked.seed, max(1, asked.sessions * ANSWERS_A_CONVERSATION // blows)
            )
    finally:
        if asked.keep:
            say(f"Kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def weather(serving: Company, sessions: int, seed: int, every: int) -> int:
    """Play all conversations through a storm and judge what is left; the status of this program."""
    # Settings are known only now, and rows with them.
    from tests.chaos.client import Conversation
    from tests.chaos.verdict import Verdict

    begun = time.monotonic()
    storm = Storm(serving, seed, every)
    over = threading.Event()
    doors = Doors(serving.doors, storm.answered, over)
    findings: list[str] = []
    with ThreadPoolExecutor(CLIENTS) as players, ThreadPoolExecutor(CLIENTS) as hands:
        conversations = [Conversation(plan(seed, number), doors, hands) for number in range(sessions)]
        with watched(storm, over), storm.blowing():
            played = [players.submit(conversation.play) for conversation in conversations]
            try:
                wait(played)
            except KeyboardInterrupt:
                over.set()
                raise
        for conversation, outcome in zip(conversations, played, strict=True):
            failure = outcome.exception()
            if isinstance(failure, GivenUp):
                findings.append(f"{conversation.plan.name} ({conversation.root_id}): its client waits for ever")
            elif failure is not None:
                raise failure
        come_to_rest(over)
        verdict = Verdict(serving, conversations)
        verdict.judge()
    findings += verdict.findings + doors.surprises
    findings += [f"the storm never reached: {blow}" for blow in sorted(set(DECK) - set(storm.blows))]
    tell("Blows", storm.blows)
    tell("Answers over HTTP", doors.counts)
    tell("Rows", verdict.counts)
    tell("Logged", logged(serving))
    say(f"{sessions} conversations, seed {seed}, {time.monotonic() - begun:.0f} s: {len(findings)} findings")
    for finding in findings:
        say(f"  {finding}")
    return 1 if findings else 0


@contextmanager
def watched(storm: Storm, over: threading.Event) -> Iterator[None]:
    """The one detector of everything that is stuck: nobody is answered any more, so nobody asks any more."""
    done = threading.Event()

    def watch() -> None:
        known = -1
        while known != storm.answers:
            known = storm.answers
            if done.wait(STUCK_SECONDS):
                return
        over.set()

    watcher = threading.Thread(target=watch, name="watcher")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def come_to_rest(over: threading.Event) -> None:
    """Clients that left did not see what came of their conversations: a lost worker's lease may still have to lapse."""
    from tests.chaos.verdict import busy_trees

    give_up = time.monotonic() + STUCK_SECONDS
    while busy_trees() and time.monotonic() < give_up:
        over.wait(LEASE_SECONDS / 8)


def logged(serving: Company) -> dict[str, int]:
    """How often each event at WARNING or above was logged."""
    counts: dict[str, int] = {}
    for line in serving.told():
        words = line.split()
        if len(words) > 4 and words[2] in ("WARNING", "ERROR", "CRITICAL") and words[3].startswith("helix"):
            counts[words[4]] = counts.get(words[4], 0) + 1
    return counts


def tell(title: str, counts: dict[str, int]) -> None:
    say(f"{title}:")
    for name in sorted(counts):
        say(f"  {counts[name]:>7}  {name}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
