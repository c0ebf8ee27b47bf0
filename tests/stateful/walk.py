"""What a worker does with a run of the reference, commit by commit.

`work` is a generator that pauses where a worker thinks: at a model request and before a body. What the outside does
meanwhile is done to the reference in that pause; a worker that dies there is a generator that is closed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tests.stateful.reference import (
    BODIES_BORNE,
    LEASE,
    LOSSES_BORNE,
    MODEL_PAUSES,
    TOOLS,
    Call,
    Conversation,
    Reference,
    Run,
)


@dataclass(frozen=True)
class Asked:
    """The model is asked with this transcript; the worker goes on with `Said`."""

    transcript: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Runs:
    """The body of this call runs; the worker goes on when it has returned."""

    call_id: str


@dataclass(frozen=True)
class Said:
    """A model's reply: a text and the calls after it as (id, tool). failure: "retryable" or "final" instead.

    cut: a stop fired while only the text had been written.
    """

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    failure: str | None = None
    cut: bool = False


Work = Generator[Asked | Runs, Said | None, bool]


def work(ref: Reference, run: Run) -> Work:
    """Returns whether the run was this worker's to take."""
    if not claim(ref, run):
        return False
    epoch = run.epoch
    while run.status == "running":
        answered = [call for call in ref.open_of(run) if call.is_external and call.state != "held"]
        approved = [call for call in answered if call.answer == "approved"]
        local = [call for call in ref.open_of(run) if call.kind == "server"]
        if approved or (local and not answered):
            yield from _execute(ref, run, (approved or local)[0], epoch)
        elif answered:
            for call in answered:
                ref.consume(call, *call.result())
            ref.take_in_message(run)
        elif ref.open_of(run):
            _suspend(ref, run)
        else:
            yield from _think(ref, run, epoch)
        if run.epoch != epoch:
            break
    return True


def claim(ref: Reference, run: Run) -> bool:
    """RT-19, RT-17: whether the run is this worker's from now on."""
    if run.is_over or run.conversation.current is not run:
        return False
    if run.is_claimable:
        if run.due > ref.now:
            return False
    elif run.status != "running" or run.lease is None or ref.now < run.lease:
        return False
    elif run.stopping:
        ref.settle_stop(run)
        return False
    elif run.losses >= LOSSES_BORNE:
        ref.fail(run, "framework_auto_resume_exhausted")
        return False
    else:
        run.losses += 1
        for call in ref.open_of(run):
            may_run_again = TOOLS[call.tool][2] and call.bodies < BODIES_BORNE
            if call.state == "executing" and not may_run_again:
                ref.consume(call, "interrupted")
    run.status, run.lease = "running", ref.now + LEASE
    run.epoch += 1
    return True


def _execute(ref: Reference, run: Run, call: Call, epoch: int) -> Work:
    """P-13 to P-15: the start is a fact before the body runs, and its result one commit after it."""
    call.state = "executing"
    call.bodies += 1
    yield Runs(call.id)
    if run.epoch != epoch:
        return True
    if run.stopping:
        ref.settle_stop(run)
        return True
    ref.consume(call, None, f"{call.tool} of {call.id}", as_answer="result")
    return True


def _suspend(ref: Reference, run: Run) -> None:
    """RT-04, RT-05."""
    calls = ref.open_of(run)
    run.lease = None
    run.status = "suspended_client_tool" if any(c.is_external for c in calls) else "suspended_awaiting_children"
    for call in calls:
        if call.kind == "subagent":
            call.state = "executing"
            child = Conversation(call.id, parent=call)
            ref.conversations.append(child)
            ref.begin(child, "child")
            child.log.append(("user", (f"task of {call.id}",)))
    ref.expose(run.conversation)


def _think(ref: Reference, run: Run, epoch: int) -> Work:
    """One model request and the recording of its reply."""
    conversation = run.conversation
    for call in ref.calls.values():
        if call.conversation is conversation and call.late and not call.told:
            call.told = True
            conversation.log.append(("notice", call.id))
    ref.take_in_message(run)
    ref.asked += 1
    said = yield Asked(conversation.transcript())
    assert said is not None
    if run.epoch != epoch:
        return True
    if said.failure:
        _fail_or_try_later(ref, run, said.failure)
        return True
    if run.stopping:
        if run.stop == "interrupt":
            _record(ref, run, Said(said.text) if said.cut else said, is_stopped=True)
        ref.settle_stop(run)
        return True
    _record(ref, run, said)
    if not said.calls:
        ref.end(run, "completed")
        ref.tell_parent(run)
    return True


def _fail_or_try_later(ref: Reference, run: Run, failure: str) -> None:
    """RT-22, R-494. A recorded stop outranks the failure."""
    if run.stopping:
        ref.settle_stop(run)
    elif failure == "final" or run.failures >= len(MODEL_PAUSES):
        ref.fail(run, "provider_error")
    else:
        run.status, run.lease, run.due = "queued", None, ref.now + MODEL_PAUSES[run.failures]
        run.failures += 1


def _record(ref: Reference, run: Run, said: Said, *, is_stopped: bool = False) -> None:
    """R-042: the message and its calls in one commit; a committed step gives back the budgets.

    is_stopped: none of the calls will be carried out, so nobody is asked whether one needs an approval (R-008).
    """
    run.replies += 1
    run.losses = run.failures = 0
    run.conversation.log.append(("assistant", said.text, tuple(call_id for call_id, _ in said.calls)))
    for call_id, tool in said.calls:
        kind, wait, _ = TOOLS[tool]
        if is_stopped and kind == "approval":
            kind = "server"
        ref.calls[call_id] = Call(call_id, tool, run.conversation, run, kind, wait)
