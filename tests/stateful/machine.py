"""Random histories of one tree, done to Helix and to the reference at once; after each step the two must agree (D-14).

While a worker thinks, the reference's worker is paused at the same place: a request that only one of the two makes, or
one with another transcript, ends the test there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helix.agents import Agent, SubAgent, Tool, ToolContext, client_tool, registered, tool
from helix.loop import ModelError, ModelRequest
from helix.models import RunLease
from helix.services.advance import advance_run, bodies
from helix.services.advance.claim import claim_run
from tests.kit.crash import WorkerDied
from tests.kit.invariants import Rows, check_invariants, check_nothing_is_forgotten
from tests.kit.models import ScriptedModel, call
from tests.kit.world import T0, new_world, sweeping_since
from tests.stateful import plans, walk
from tests.stateful.observed import (
    differences,
    milliseconds,
    run_names,
    transcript_of,
)
from tests.stateful.outside import Outside
from tests.stateful.plans import Plan, Verb
from tests.stateful.reference import LEASE, RETENTION, TOOLS, Reference
from tests.stateful.reference import Run as ReferenceRun


class Histories(Outside, RuleBasedStateMachine):
    """The machine. ``steps`` counts what all of its runs did together."""

    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.frame = ExitStack()
        self.world = self.frame.enter_context(new_world())
        self.frame.enter_context(_taken_back())
        sweeping_since(T0)
        patch = self.frame.enter_context(pytest.MonkeyPatch.context())
        real = bodies.run_body
        patch.setattr(bodies, "run_body", lambda *given: self._at_body(real, *given))
        self.ran: Counter[str] = Counter()
        self.issued = 0
        self.working: walk.Work | None = None
        self.said: walk.Said | None = None
        self.replies: deque[Plan] = deque()
        self.failure: Exception | None = None
        self.is_sound = True

    # -- the two worlds --------------------------------------------------------------------------------------------

    @initialize(most_open=st.sampled_from((None, None, 1, 2)), continues=st.sampled_from((True, True, False)))
    def begin(self, most_open: int | None, continues: bool) -> None:
        self.ref = Reference(most_open=most_open, continues=continues)
        self.model = ScriptedModel(self._reply)
        tools = [_external(name) for name in ("ask", "ask_for_ever")] + [
            self._server(name) for name in ("pay", "count", "look")
        ]
        options: dict[str, Any] = {
            "model": self.model.name,
            "tools": tools,
            "completed_tombstone_retention_ms": RETENTION,
        }
        clerk = SubAgent(Agent("clerk", output_schema={"type": "object"}, **options))
        agent = Agent("desk", sub_agents=[clerk], max_open_calls=most_open, continue_on_submit=continues, **options)
        self.frame.enter_context(registered(agent))
        self.root_id: UUID = self.world.create(agent)
        self.perform(Verb("send"))

    def _server(self, name: str) -> Tool:
        kind, wait, safe = TOOLS[name]

        def body(context: ToolContext) -> str:
            """Write down that it ran."""
            self.ran[context.tool_call_id] += 1
            return f"{name} of {context.tool_call_id}"

        options: dict[str, Any] = {"require_approval": True, "approval_timeout_ms": wait} if kind == "approval" else {}
        return tool(name=name, replay="safe" if safe else "never", **options)(body)

    # -- a worker --------------------------------------------------------------------------------------------------

    def _run_to_work_on(self, pick: int) -> tuple[ReferenceRun, UUID] | None:
        runs = [run for conversation in self.ref.conversations for run in conversation.runs]
        if not runs:
            return None
        at_work = self.ref.computing()
        run = at_work[pick % len(at_work)] if at_work and pick % 8 else runs[pick % len(runs)]
        if run.lease is not None and run.lease > self.ref.now and pick % 4:
            # Its worker is dead. Mostly the next one comes when the lease is over, now and then too early.
            self._pass(run.lease - self.ref.now)
        ids = {name: run_id for run_id, name in run_names(self.root_id).items()}
        return run, ids[run.name]

    def work(self, pick: int, replies: list[Plan]) -> None:
        """A worker gets a hint for one of the runs and walks until it has nothing more to do, or dies."""
        self._pass(1)
        target = self._run_to_work_on(pick)
        if target is None:
            return
        run, run_id = target
        self.replies = deque(replies)
        self.working, self.said, self.ref.held = walk.work(self.ref, run), None, run
        try:
            took = advance_run(run_id, clock=self.world.clock)
        except WorkerDied:
            self.working.close()
        else:
            assert took == self._rest_of_the_work(), f"{run.name}: taken by a worker: {took}"
        finally:
            self.ref.held = self.working = None
        self._read_lease(run, run_id)
        if self.failure is not None:
            raise self.failure

    def _read_lease(self, run: ReferenceRun, run_id: UUID) -> None:
        """How often a holder renews is free (L-4), so the reference is told; how far a lease reaches is not."""
        lease = RunLease.objects.filter(run_id=run_id).first()
        if lease is not None and run.lease is not None:
            run.lease = milliseconds(lease.expires_at)
            assert run.lease is not None and run.lease <= self.ref.now + LEASE

    def _rest_of_the_work(self) -> bool:
        assert self.working is not None
        try:
            pause = self.working.send(self.said)
        except StopIteration as end:
            return bool(end.value)
        raise AssertionError(f"the worker left before {pause}")

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """The driver takes an exception for the model's or the body's: what is wrong here is raised later."""
        try:
            yield
        except Exception as failure:
            self.failure = failure
            raise WorkerDied("the two disagree") from failure

    def _pause(self) -> tuple[walk.Asked | walk.Runs, Plan]:
        assert self.working is not None
        pause = self.working.send(self.said)
        self.said = None
        return pause, self.replies.popleft() if self.replies else Plan()

    def _reply(self, request: ModelRequest) -> Iterator[Any]:
        if self.working is None:
            yield "done"
            return
        with self._noticing():
            pause, plan = self._pause()
            seen = walk.Asked(transcript_of(request.messages))
            assert pause == seen, f"the model is asked {seen}, the reference is at {pause}"
            text = f"words {self._fresh()}"
            is_child = request.metadata["sessionId"] != str(self.root_id)
            names = [name for name in plan.tools if not (is_child and TOOLS[name][0] == "subagent")]
            calls = tuple((f"c{self._fresh()}", name) for name in names)
            self.said = walk.Said(text, calls, plan.failure)
        if plan.failure:
            with self._noticing():
                self._interject(plan)
            raise ModelError("The model failed.", retryable=plan.failure == "retryable")
        yield text
        if plan.when == "mid" or plan.dies:
            with self._noticing():
                cut = self._interject(plan)
                self.said = walk.Said(text, calls, cut=cut)
        for call_id, name in calls:
            arguments = {"task": f"task of {call_id}"} if TOOLS[name][0] == "subagent" else {}
            yield call(name, call_id, **arguments)
        if plan.when == "end":
            with self._noticing():
                self._interject(plan)

    def _at_body(self, real: Any, body: Tool, arguments: Any, context: ToolContext) -> Any:
        if self.working is None:
            return real(body, arguments, context)
        with self._noticing():
            pause, plan = self._pause()
            assert pause == walk.Runs(context.tool_call_id), f"{context.tool_call_id} runs, the reference is at {pause}"
            if not self._interject(plan, may_die=False):
                self.ref.ran[context.tool_call_id] += 1
        result = real(body, arguments, context)
        if plan.dies:
            raise WorkerDied("after the body")
        return result

    def _interject(self, plan: Plan, *, may_die: bool = True) -> bool:
        """Do the plan's verbs now. True: a stop among them cut the work."""
        run = self.ref.held
        assert run is not None
        epoch = run.epoch
        for verb in plan.verbs:
            self.perform(verb)
        if plan.dies and may_die:
            raise WorkerDied("in its model request")
        return run.stopping or run.epoch != epoch

    # -- rules -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ref.calls)
    @rule(verb=plans.submits)
    def somebody_answers(self, verb: Verb) -> None:
        self.perform(verb)

    @precondition(lambda self: self.ref.pending())
    @rule(verb=plans.submits)
    def somebody_answers_what_waits(self, verb: Verb) -> None:
        self.perform(verb)

    @precondition(lambda self: self.ref.pending())
    @rule(verb=plans.submits)
    def another_answers_what_waits(self, verb: Verb) -> None:
        self.perform(verb)

    @rule(verb=st.one_of(plans.sends, plans.resumes, plans.retries, plans.stops, plans.submits, plans.rewinds))
    def somebody_interferes(self, verb: Verb) -> None:
        self.perform(verb)

    @precondition(lambda self: self.ref.status() in ("idle", "interrupted", "failed"))
    @rule(verb=st.one_of(plans.sends, plans.resumes, plans.retries, plans.rewinds))
    def somebody_goes_on(self, verb: Verb) -> None:
        self.perform(verb)

    @rule(verb=st.one_of(plans.waits, plans.sweeps))
    def time_passes(self, verb: Verb) -> None:
        self.perform(verb)

    @precondition(lambda self: self.ref.computing())
    @rule(pick=st.integers(0, 63), replies=plans.replies)
    def a_worker_walks(self, pick: int, replies: list[Plan]) -> None:
        self.work(pick, replies)

    @precondition(lambda self: self.ref.computing())
    @rule(pick=st.integers(0, 63), replies=plans.replies)
    def a_worker_finds_work(self, pick: int, replies: list[Plan]) -> None:
        self.work(pick, replies)

    @precondition(lambda self: any(run.is_claimable for run in self.ref.computing()))
    @rule(pick=st.integers(0, 63))
    def a_worker_dies_after_its_claim(self, pick: int) -> None:
        self._pass(1)
        target = self._run_to_work_on(pick)
        if target is not None:
            run, run_id = target
            claimed = claim_run(run_id, now=self.world.now) is not None
            assert claimed == walk.claim(self.ref, run), f"{run.name}: claimed: {claimed}"
            self._read_lease(run, run_id)

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def the_two_agree(self) -> None:
        type(self).steps += 1
        self.world.drop_hints()
        if not hasattr(self, "root_id"):
            return
        rows = Rows.of(self.root_id)
        found = differences(self.ref, self.root_id, rows)
        assert not found, f"rows and reference: {found}"
        counted = (self.model.asked, self.ran), (self.ref.asked, self.ref.ran)
        assert counted[0] == counted[1], f"requests and bodies, counted and expected: {counted}"
        check_invariants(self.root_id, rows)
        self.is_sound = True

    def teardown(self) -> None:
        """B-08: every hint was dropped; sweeps alone bring whatever is owed to its end."""
        try:
            if self.is_sound and hasattr(self, "root_id"):
                check_nothing_is_forgotten(self.world, self.root_id)
        finally:
            self.frame.close()


def _external(name: str) -> Tool:
    _, wait, _ = TOOLS[name]
    return client_tool(name, description="Ask.", input_schema={"type": "object"}, client_tool_timeout_ms=wait)


@contextmanager
def _taken_back() -> Iterator[None]:
    """Everything in the block is rolled back at its end; durable transactions inside count as outermost."""
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        yield
        transaction.set_rollback(True)
