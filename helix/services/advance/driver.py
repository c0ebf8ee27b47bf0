"""The walk of one run in one worker: survey what is open, do the next thing, until the run is somebody else's.

Nothing here has a clock of its own. A turn is cut when its stop record appears or its epoch is no longer current
(Q-13); both are rows, read before each body, at each written chunk and in every commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import OperationalError

from helix import clock as clocks
from helix.agents import Agent, StepContext, lookup
from helix.errors import AgentNotFound, AgentResolutionFailed
from helix.loop import (
    Cancelled,
    CancelToken,
    LoggedMessage,
    ModelError,
    ModelRequest,
    Reply,
    ToolSpec,
    arrange,
    complete_reply,
)
from helix.models import Message, PendingCall, Run, Session
from helix.rows import runs
from helix.rows.holdings import HOLDINGS, SHUTDOWN
from helix.selectors import live_messages
from helix.services.advance import bodies, drain, finish, notices
from helix.services.advance.claim import Claim, claim_run
from helix.services.advance.delegating import resolve_delegates
from helix.services.advance.deltas import DeltaWriter
from helix.services.advance.hooks import call_told, ended_sub_agents, fire, has_hooks
from helix.services.advance.reply import prepare_calls
from helix.statuses import ANSWER_APPROVALS, CALL_OPEN, CallKind, CallState, Role

log = logging.getLogger("helix.advance")

Clock = Callable[[], datetime]


def advance_run(run_id: UUID, *, clock: Clock = clocks.utc_now) -> bool:
    """Claim the run and work on it until it ends, suspends or is lost. False: it was not this worker's to take.

    May be called again at any time by anybody: a second delivery loses the claim (F-7).
    """
    if HOLDINGS.is_leaving:
        return False
    with HOLDINGS.turn() as turn:
        claim = claim_run(run_id, now=clock(), turn=turn)
        if claim is None:
            return False
        try:
            Walk(claim, clock, turn.token).go()
        except (runs.LostFence, Session.DoesNotExist):
            # Another worker's now, or the whole conversation was removed.
            log.info("run.fenced_off", extra={"runId": str(claim.run_id), "epoch": claim.epoch})
    return True


class Walk:
    """One claim being worked on. ``go`` returns when the run is over, suspended, queued again, or given back."""

    def __init__(self, claim: Claim, clock: Clock, token: CancelToken) -> None:
        self.claim = claim
        self.clock = clock
        self.token = token
        self.agent: Agent | None = None
        self.deltas: DeltaWriter | None = None
        # Whether the model or a body was asked for anything under this claim.
        self.has_begun = False

    def go(self) -> None:
        claim = self.claim
        try:
            self.agent = lookup(claim.agent_type)
        except AgentNotFound as gone:
            finish.fail_run(claim, gone.code, gone.message, self.clock())
            return
        except AgentResolutionFailed as failed:
            finish.start_failed(claim, failed.code, failed.message, self.clock())
            return
        try:
            self._tell_the_start(self.agent)
            while self._advance_once(self.agent):
                pass
        except runs.StopSeen:
            self._stopped(None)
        except Cancelled as cut:
            self._stopped(cut.partial)
        except (runs.LostFence, Session.DoesNotExist, OperationalError):
            # Lost to another worker, or the database is away: the lease decides who goes on (L-7).
            raise
        except Exception as failure:
            # Q-11: no exception of the driver may leave a run that nobody works on and nobody owes.
            log.exception("run.driver_failed", extra={"runId": str(claim.run_id)})
            finish.driver_failed(claim, type(failure).__name__, self.clock(), has_begun=self.has_begun)
        self._tell_the_end(self.agent)

    def _advance_once(self, agent: Agent) -> bool:
        """Do the next thing that the rows call for. False: the worker is done with this run."""
        claim, clock = self.claim, self.clock
        if HOLDINGS.is_leaving:
            self.token.cancel(SHUTDOWN)
        self.token.check()
        calls = self._open_calls()
        answered = [call for call in calls if call.is_external and call.state != CallState.HELD]
        if answered:
            return self._take_in_answers(agent, answered)
        local = [call for call in calls if call.kind == CallKind.SERVER]
        deferred = [call for call in local if finish.is_deferred(agent, call)]
        runnable = [call for call in local if call not in deferred]
        if runnable:
            return self._execute(agent, runnable[0])
        if len(calls) > len(local):
            self._tell_of_sub_agents(agent, calls)
            delegates = resolve_delegates(agent, (call.tool_name for call in calls if call.kind == CallKind.SUBAGENT))
            finish.suspend(claim, delegates, clock())
            return False
        if deferred:
            drain.drain(claim, agent, clock)
            return True
        return self._think(agent)

    def _open_calls(self) -> list[PendingCall]:
        claim = self.claim
        calls = PendingCall.objects.filter(session_id=claim.session_id, run_id=claim.run_id, state__in=CALL_OPEN)
        return list(calls.order_by("seq"))

    def _take_in_answers(self, agent: Agent, answered: list[PendingCall]) -> bool:
        """Approved bodies first, in emission order, then one drain of the rest (R-169, R-137)."""
        for call in answered:
            if call.answer_kind in ANSWER_APPROVALS:
                return self._execute(agent, call)
        drain.drain(self.claim, agent, self.clock)
        return True

    def _execute(self, agent: Agent, call: PendingCall) -> bool:
        self.has_begun = True
        return not bodies.execute_call(self.claim, agent, call.id, self.clock, self.token)

    def _think(self, agent: Agent) -> bool:
        claim, clock = self.claim, self.clock
        notices.take_in(claim, clock)
        session = Session.objects.get(pk=claim.session_id)
        run = Run.objects.get(pk=claim.run_id)
        context = self._step_context(session, run)
        if self._is_at_its_end(agent, run, context):
            return False
        request = self._request(agent, session, run, context)
        fire(agent, "before_model", self._told())
        self.deltas = DeltaWriter(
            claim, clock, self.token, is_private=lambda name: bool((tool := agent.tool(name)) and tool.private)
        )
        self.has_begun = True
        try:
            reply = complete_reply(request, emit=self.deltas, token=self.token)
        except ModelError as error:
            log.warning("model.failed", extra={"runId": str(claim.run_id), "code": error.code})
            finish.model_failed(claim, error, self.deltas.rest(), clock())
            return False
        if has_hooks(agent, "after_model"):
            fire(agent, "after_model", {**self._told(), "text": reply.text, "calls": len(reply.calls)})
        prepared = prepare_calls(agent, claim, reply)
        rest = self.deltas.rest()
        # Hooks hear of a sub-agent before it starts, outside every transaction: the suspension is then a second one.
        may_suspend = not has_hooks(agent, "before_subagent")
        try:
            names = (one.emitted.tool_name for one in prepared if one.kind == CallKind.SUBAGENT)
            delegates = resolve_delegates(agent, names)
            return finish.commit_reply(claim, agent, reply, prepared, delegates, rest, clock(), may_suspend=may_suspend)
        except runs.StopSeen:
            # The stop came between the last chunk and the commit: what was written is kept as from any other chunk.
            finish.stop_run(claim, agent, reply, rest, clock())
            return False

    def _is_at_its_end(self, agent: Agent, run: Run, context: StepContext) -> bool:
        """`stop_when` is asked before the cap on the capping step (R-014)."""
        if run.step_count and agent.stop_when is not None and agent.stop_when(_after_the_reply(context)):
            finish.complete_run(self.claim, self.clock())
            return True
        if run.step_count >= agent.step_limit:
            text = f"The turn reached its {agent.step_limit:g} steps."
            finish.fail_run(self.claim, "framework_max_steps_exceeded", text, self.clock())
            return True
        return False

    def _request(self, agent: Agent, session: Session, run: Run, context: StepContext) -> ModelRequest:
        """The whole live history, whatever its length (R-467)."""
        log_rows = live_messages(session).values_list(
            "role", "parts", "tool_call_id", "error_code", "interrupted", named=True
        )
        messages = arrange(
            LoggedMessage(row.role, row.parts, row.tool_call_id, row.error_code, row.interrupted) for row in log_rows
        )
        return ModelRequest(
            model=agent.model_for(context),
            instructions=agent.instructions,
            messages=messages,
            tools=tuple(ToolSpec(tool.name, tool.description, tool.input_schema) for tool in agent.all_tools),
            settings=agent.model_settings,
            metadata={"sessionId": str(session.id), "runId": str(run.id), "step": run.step_count + 1},
        )

    def _step_context(self, session: Session, run: Run) -> StepContext:
        return StepContext(
            session_id=str(session.id),
            root_id=str(session.root_id),
            run_id=str(run.id),
            agent_type=session.agent_type,
            owner=session.owner,
            step=run.step_count,
            state=session.state,
        )

    def _stopped(self, partial: Reply | None) -> None:
        """The token fired or a commit met the stop: end by the record, or give back at a shutdown."""
        rest = self.deltas.rest() if self.deltas else []
        if self.token.kind == SHUTDOWN:
            try:
                finish.give_back(self.claim, self.clock())
                return
            except runs.StopSeen:
                pass
        finish.stop_run(self.claim, self.agent, partial, rest, self.clock())

    # -- hooks -----------------------------------------------------------------------------------------------------

    def _tell_the_start(self, agent: Agent) -> None:
        """The run has a worker; its agent's hooks hear so, and how sub-agents ended that it had waited for."""
        fire(agent, "agent_start", self._told())
        for ended in ended_sub_agents(self.claim) if has_hooks(agent, "after_subagent") else ():
            fire(agent, "after_subagent", ended)

    def _tell_of_sub_agents(self, agent: Agent, calls: list[PendingCall]) -> None:
        if not has_hooks(agent, "before_subagent"):
            return
        for call in calls:
            if call.kind == CallKind.SUBAGENT and call.state == CallState.HELD:
                fire(agent, "before_subagent", call_told(call))

    def _tell_the_end(self, agent: Agent) -> None:
        if not has_hooks(agent, "agent_complete", "agent_fail"):
            return
        run = Run.objects.get(pk=self.claim.run_id)
        if run.status == "completed":
            fire(agent, "agent_complete", {**self._told(), "output": run.output})
        elif run.status == "failed":
            fire(agent, "agent_fail", {**self._told(), "error": run.error_detail})

    def _told(self) -> dict[str, object]:
        claim = self.claim
        return {"sessionId": str(claim.session_id), "runId": str(claim.run_id), "agentType": claim.agent_type}


def _after_the_reply(context: StepContext) -> StepContext:
    """The same step with what its reply said and asked for: what a stop condition judges by."""
    replies = Message.objects.filter(session_id=context.session_id, role=Role.ASSISTANT, rolled_back_by=None)
    last = replies.order_by("-position").values_list("parts", flat=True).first() or []
    return replace(
        context,
        text="".join(part["text"] for part in last if part["type"] == "text"),
        tool_names=tuple(part["toolName"] for part in last if part["type"] == "tool_call"),
    )
