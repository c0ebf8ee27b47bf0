"""The contract as a small program over plain objects: what must be visible after every verb, without a database.

It is written from the contract's tables and rules, not from the services; the random histories compare the two after
each step. One tree, one level of sub-agents, times in milliseconds. What the outside does is in
`tests.stateful.verbs`, what a worker does in `tests.stateful.walk`. A verb raises `Refused` before it changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

GRACE = 60_000
LEASE = 30_000
RETENTION = 900_000
LOSSES_BORNE = 3
BODIES_BORNE = 3
MODEL_PAUSES = (1_000, 2_000, 4_000)

PAUSED = ("suspended_client_tool", "suspended_awaiting_children")
OVER = ("completed", "failed", "interrupted")
OPEN = ("held", "awaiting", "executing", "answered")

# tool: (kind, milliseconds that it waits, whether its body may run again)
TOOLS: dict[str, tuple[str, int | None, bool]] = {
    "ask": ("client", 300_000, False),
    "ask_for_ever": ("client", None, False),
    "pay": ("approval", 600_000, False),
    "count": ("server", None, False),
    "look": ("server", None, True),
    "subagent__clerk": ("subagent", None, False),
}


class Refused(Exception):
    """A refusal by its code, with the reason or cause that stands beside it."""

    def __init__(self, code: str, detail: str | None = None) -> None:
        super().__init__(code, detail)
        self.told = (code, detail)


@dataclass(eq=False)
class Run:
    conversation: Conversation
    number: int
    cause: str
    status: str = "queued"
    due: int = 0
    lease: int | None = None
    epoch: int = 0
    superseded: bool = False
    stop: str | None = None
    stopping: bool = False
    losses: int = 0
    failures: int = 0
    replies: int = 0
    code: str | None = None
    waiting: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.conversation.name}#{self.number}"

    @property
    def is_over(self) -> bool:
        return self.superseded or self.status in OVER

    @property
    def is_paused(self) -> bool:
        return self.status in PAUSED and not self.superseded

    @property
    def is_claimable(self) -> bool:
        return self.status == "queued"


@dataclass(eq=False)
class Call:
    id: str
    tool: str
    conversation: Conversation
    run: Run
    kind: str
    wait: int | None
    state: str = "held"
    answer: str | None = None
    value: Any = None
    exposed_at: int = 0
    deadline: int | None = None
    forgotten_at: int = 0
    reason: str | None = None
    late: bool = False
    told: bool = False
    bodies: int = 0

    @property
    def is_external(self) -> bool:
        return self.kind in ("client", "approval")

    @property
    def is_unanswered(self) -> bool:
        return self.is_external and self.state in ("held", "awaiting")

    def result(self) -> tuple[str | None, Any]:
        """The code and the value of the stored answer as the model reads them."""
        if self.answer == "result":
            return None, self.value
        if self.answer == "error":
            return ("not_executed", None) if self.kind == "approval" else (None, self.value)
        codes = {"timeout": "client_tool_timeout", "abandoned": "client_tool_abandoned", "denied": "approval_denied"}
        return codes[str(self.answer)], None


@dataclass(eq=False)
class Conversation:
    """A session. Its log: ("user", texts), ("assistant", text, ids), ("result", id, code, value), ("notice", id)."""

    name: str
    parent: Call | None = None
    runs: list[Run] = field(default_factory=list)
    log: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def current(self) -> Run | None:
        return self.runs[-1] if self.runs else None

    def transcript(self) -> list[tuple[Any, ...]]:
        """What the model reads: every call followed by its one result, in the order of the calls (R-144)."""
        results = {entry[1]: entry for entry in self.log if entry[0] == "result"}
        read: list[tuple[Any, ...]] = []
        for entry in self.log:
            if entry[0] != "result":
                read.append(entry)
            if entry[0] == "assistant":
                read += [results[call_id] for call_id in entry[2]]
        return read


class Reference:
    """One tree of conversations and what the outside knows of it."""

    def __init__(self, *, most_open: int | None, continues: bool) -> None:
        self.now = 0
        self.swept_at = 0
        self.held: Run | None = None
        self.most_open = most_open
        self.continues = continues
        self.root = Conversation("root")
        self.conversations = [self.root]
        self.calls: dict[str, Call] = {}
        self.asked = 0
        self.ran: Counter[str] = Counter()

    # -- what is derived -------------------------------------------------------------------------------------------

    def status(self) -> str:
        """Contract 4.2: the first line that matches."""
        current = [c.current for c in self.conversations if c.current]
        last = self.root.current
        if any(run.stopping for run in current):
            return "stopping"
        if self.pending():
            return "awaiting_client_tool"
        if any(run.status == "running" for run in current) or any(map(self.open_children, self.conversations)):
            return "running"
        if any(run.is_claimable for run in current) or (last and last.is_paused):
            return "queued"
        if last is None or last.status == "completed":
            return "idle"
        return last.status

    def pending(self) -> list[Call]:
        return [call for call in self.calls.values() if call.state == "awaiting"]

    def computing(self) -> list[Run]:
        current = [c.current for c in self.conversations if c.current]
        return [run for run in current if run.status == "running" or run.is_claimable]

    def open_children(self, conversation: Conversation) -> list[Call]:
        return [call for call in self.of(conversation, "executing") if call.kind == "subagent"]

    def of(self, conversation: Conversation, *states: str) -> list[Call]:
        return [call for call in self.calls.values() if call.conversation is conversation and call.state in states]

    def open_of(self, run: Run) -> list[Call]:
        return [call for call in self.of(run.conversation, *OPEN) if call.run is run]

    def is_fair(self) -> bool:
        """R-242: nobody expires anything while the sweep was away."""
        return self.now - self.swept_at <= GRACE

    def has_lapsed(self, call: Call) -> bool:
        return call.state == "awaiting" and call.deadline is not None and self.now >= call.deadline

    def is_partial(self, conversation: Conversation) -> bool:
        unanswered = [call for call in self.of(conversation, *OPEN) if call.is_unanswered]
        return any(not (self.is_fair() and self.has_lapsed(call)) for call in unanswered)

    def continuation(self, call: Call) -> tuple[str, frozenset[str]]:
        """R-120, with the names of the runs that the answer may point to."""
        if call.state == "consumed":
            return "consumed", frozenset()
        if any(one.is_unanswered for one in self.of(call.conversation, *OPEN)):
            return "awaiting_batch", frozenset()
        if call.run.is_paused:
            if not self.open_children(call.conversation):
                return "caller_resumes", frozenset()
            computing = frozenset(run.name for run in self.computing())
            return ("deferred", computing) if computing else ("awaiting_batch", frozenset())
        if call.run.is_over:
            return "consumed", frozenset()
        return ("new_run" if call.run.is_claimable else "deferred"), frozenset({call.run.name})

    # -- changes that several verbs share ---------------------------------------------------------------------------

    def begin(self, conversation: Conversation, cause: str, *, waiting: Iterable[str] = ()) -> Run:
        run = Run(conversation, len(conversation.runs) + 1, cause, due=self.now, waiting=tuple(waiting))
        conversation.runs.append(run)
        return run

    def replace(self, old: Run, cause: str, *, waiting: Iterable[str] = ()) -> Run:
        """A run-start commit that takes the open calls along (RT-09)."""
        new = self.begin(old.conversation, cause, waiting=waiting)
        for call in self.open_of(old):
            call.run = new
        old.superseded = True
        return new

    def expose(self, suspended: Conversation | None = None) -> None:
        """R-051."""
        held = [call for call in self.calls.values() if call.is_external and call.state == "held"]
        if self.most_open is None:
            held = [call for call in held if call.conversation is suspended]
        else:
            held = [call for call in held if call.run.is_paused][: max(0, self.most_open - len(self.pending()))]
        for call in held:
            call.state, call.exposed_at = "awaiting", self.now
            call.deadline = None if call.wait is None else self.now + call.wait

    def store(self, call: Call, answer: str, value: Any = None) -> None:
        call.state, call.answer, call.value = "answered", answer, value

    def lapse_the_rest(self, conversation: Conversation) -> None:
        for call in self.of(conversation, "awaiting"):
            self.store(call, "timeout")

    def follow(self, conversation: Conversation) -> None:
        """What every answer is followed by: the next exposure, then perhaps the continuation."""
        self.expose()
        self.continue_if_complete(conversation)

    def continue_if_complete(self, conversation: Conversation) -> None:
        run = conversation.current
        if run is None or not run.is_paused or run.stopping or self.is_partial(conversation):
            return
        self.lapse_the_rest(conversation)
        if self.open_children(conversation):
            return
        if conversation.parent is not None or self.continues:
            self.replace(run, "continuation")

    def consume(self, call: Call, code: str | None, value: Any = None, *, as_answer: str = "error") -> None:
        """The call's one result enters the log; a repeat is recognised for a while (R-260)."""
        call.state, call.answer = "consumed", call.answer or as_answer
        call.forgotten_at = self.now + RETENTION
        call.conversation.log.append(("result", call.id, code, value))

    def discard(self, calls: Iterable[Call], reason: str) -> None:
        for call in calls:
            cut = reason == "run_stopped" and call.state == "executing"
            call.conversation.log.append(("result", call.id, "aborted" if cut else reason, None))
            call.state, call.reason = "discarded", reason

    def end(self, run: Run, status: str, code: str | None = None) -> None:
        run.status, run.code, run.lease = status, code, None

    def fail(self, run: Run, code: str) -> None:
        """R-565: undecided calls go, answers stay."""
        self.discard([call for call in self.open_of(run) if call.state != "answered"], "run_failed")
        self.end(run, "failed", code)
        self.tell_parent(run, failed=True)

    def settle_stop(self, run: Run) -> None:
        """RT-07, RT-08, RT-10, RT-11."""
        self.discard(self.open_of(run), "run_stopped")
        self.take_in_message(run)
        run.stopping = False
        if run.stop == "abort":
            self.end(run, "failed", "framework_cancelled")
        else:
            self.end(run, "interrupted")
        self.tell_parent(run, failed=True)

    def take_in_message(self, run: Run) -> None:
        if run.waiting:
            run.conversation.log.append(("user", run.waiting))
            run.waiting = ()

    def tell_parent(self, run: Run, *, failed: bool = False) -> None:
        """A child's end settles its call and, as the last one, queues the parent's continuation (R-209)."""
        call = run.conversation.parent
        if call is None or call.state != "executing" or call.run.stopping:
            return  # a stop of the parent closes the call itself
        self.consume(call, "tool_execution_failed" if failed else None, as_answer="error" if failed else "result")
        self.continue_if_complete(call.conversation)
