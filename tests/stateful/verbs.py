"""What somebody outside may do to the reference: answers, entries, stops, and the passing of time."""

from __future__ import annotations

from tests.stateful.reference import Call, Conversation, Reference, Refused, Run

Continuation = tuple[str, frozenset[str]]

# what an outsider may say of a call: (is a verdict, what is stored)
ANSWERS: dict[str, tuple[bool, str]] = {
    "result": (False, "result"),
    "error": (False, "error"),
    "approve": (True, "approved"),
    "deny": (True, "denied"),
}


# -- answers -----------------------------------------------------------------------------------------------------------


def submit(ref: Reference, call_id: str, answer: str, value: str) -> tuple[str, Continuation | None]:
    """R-323 from step 6 on. Raises: `Refused`."""
    call = ref.calls.get(call_id)
    if call is None or not call.is_external:
        raise Refused("unknown_tool_call", "never_existed")
    if call.state == "discarded":
        raise Refused("unknown_tool_call", call.reason)
    if call.state == "consumed":
        return _repeat_of_consumed(ref, call, answer)
    if call.run.stopping:
        if call.run.status != "running":
            ref.settle_stop(call.run)
        raise Refused("unknown_tool_call", "run_stopped")
    if call.state in ("answered", "executing"):
        if call.answer != "timeout":
            return "already_completed", ref.continuation(call)
        if call.run.is_over or call.kind == "approval":
            return _late(call, answer)
    if call.state == "held":
        raise Refused("state_call_not_exposed")
    if not _fits(call, answer):
        raise Refused("validation_error", "kind")
    ref.store(call, ANSWERS[answer][1], value)
    ref.follow(call.conversation)
    return "accepted", ref.continuation(call)


def _repeat_of_consumed(ref: Reference, call: Call, answer: str) -> tuple[str, Continuation | None]:
    if ref.now >= call.forgotten_at:
        raise Refused("unknown_tool_call", "expired")
    if call.answer == "timeout":
        return _late(call, answer)
    return "already_completed", ref.continuation(call)


def _late(call: Call, answer: str) -> tuple[str, None]:
    """R-272, R-273: kept once, when it would have been accepted in time."""
    call.late = call.late or _fits(call, answer)
    return "late_answer_after_timeout", None


def _fits(call: Call, answer: str) -> bool:
    """R-165 to R-167: an error alone fits both kinds."""
    return answer == "error" or ANSWERS[answer][0] == (call.kind == "approval")


# -- entries -----------------------------------------------------------------------------------------------------------


def send(ref: Reference, text: str, *, abandon: bool = False) -> Run:
    """R-450, R-455, R-460, R-463, L-9. Raises: `Refused`."""
    root, run, status = ref.root, ref.root.current, ref.status()
    is_lost = run is not None and run.status == "running" and not run.stopping and _is_stale(ref, run)
    if run is not None and is_lost:
        _interrupt_lost(ref, run)
    elif status in ("running", "stopping") or (status == "queued" and not (run and run.is_paused)):
        raise Refused("state_already_running")
    if run is None or not (run.is_paused or _left_something(ref, run)):
        new = ref.begin(root, "execute")
        root.log.append(("user", (text,)))
        return new
    if status == "awaiting_client_tool" and not is_lost and (ref.is_partial(root) or ref.open_children(root)):
        if not abandon:
            raise Refused("state_not_resumable")
        _abandon(ref)
    else:
        ref.lapse_the_rest(root)
    return ref.replace(run, "resume_with_message", waiting=(*run.waiting, text))


def _is_stale(ref: Reference, run: Run) -> bool:
    # Never about oneself (L-6).
    return run.lease is not None and ref.now >= run.lease and ref.held is not run


def _interrupt_lost(ref: Reference, run: Run) -> None:
    """RT-20."""
    for call in ref.open_of(run):
        if call.state != "answered":
            ref.consume(call, "interrupted")
    ref.end(run, "interrupted")


def _left_something(ref: Reference, run: Run) -> bool:
    """A run that ended before its drain: what waited there enters the log before the new message (R-456)."""
    return run.status in ("interrupted", "failed") and bool(run.waiting or ref.open_of(run))


def _abandon(ref: Reference) -> None:
    """R-460, R-461."""
    if ref.computing():
        raise Refused("state_already_running")
    for call in ref.of(ref.root, "held", "awaiting"):
        if call.is_unanswered:
            ref.store(call, "abandoned")
    for call in ref.open_children(ref.root):
        child = next(one for one in ref.conversations if one.parent is call)
        for given_up in ref.of(child, "held", "awaiting", "answered"):
            is_kept = given_up.state == "answered" and given_up.answer != "approved"
            result = given_up.result() if is_kept else ("client_tool_abandoned", None)
            ref.consume(given_up, *result, as_answer="abandoned")
        assert child.current is not None
        ref.end(child.current, "interrupted")
        ref.consume(call, "client_tool_abandoned", as_answer="abandoned")


def resume(ref: Reference) -> Run:
    """R-101, R-123, R-454, R-360. Raises: `Refused`."""
    root, run = ref.root, ref.root.current
    if run is None:
        raise Refused("ALREADY_COMPLETED")
    if ref.status() == "stopping":
        raise Refused("state_already_running")
    if run.is_paused:
        if ref.open_children(root) and _continue_below(ref):
            return run
        if ref.open_children(root) and ref.status() != "awaiting_client_tool":
            raise Refused("state_already_running")
        if ref.open_children(root) or ref.is_partial(root):
            raise Refused("state_not_resumable")
        ref.lapse_the_rest(root)
        return ref.replace(run, "continuation")
    if run.status in ("queued", "running"):
        if run.cause == "continuation":
            return run
        raise Refused("state_already_running")
    if run.status != "interrupted":
        raise Refused("ALREADY_COMPLETED")
    if _left_something(ref, run):
        return ref.replace(run, "resume_continue", waiting=run.waiting)
    return ref.begin(root, "resume_continue")


def _continue_below(ref: Reference) -> bool:
    """R-192: sub-agents whose batch is complete go on."""
    complete = [c.current for c in ref.conversations[1:] if c.current and c.current.is_paused and not ref.is_partial(c)]
    for run in complete:
        ref.lapse_the_rest(run.conversation)
        ref.replace(run, "continuation")
    return bool(complete)


def retry(ref: Reference, text: str | None) -> Run:
    """R-491, R-492, R-495. Raises: `Refused`."""
    run = ref.root.current
    if ref.status() in ("stopping", "awaiting_client_tool", "running", "queued"):
        raise Refused("state_already_running")
    if run is None or run.status != "failed":
        raise Refused("state_not_resumable", "not_failed")
    if run.code == "framework_cancelled":
        raise Refused("state_not_resumable", "aborted")
    if text is None and run.replies:
        raise Refused("state_not_resumable", "message_needed")
    return ref.replace(run, "retry", waiting=(*run.waiting, *([text] if text else [])))


def rewind(ref: Reference, length: int, open_then: dict[str, tuple[str | None, str | None]], *, is_gone: bool) -> Run:
    """RT-21, P-08, P-16: back to the first entries of the log and to what was open then, as (answer, value).

    is_gone: an earlier rewind took the steps of that moment back.  Raises: `Refused`.
    """
    root, before = ref.root, ref.root.current
    status = ref.status()
    if status in ("running", "stopping") or (status == "queued" and not (before and before.is_paused)):
        raise Refused("state_already_running")
    if ref.open_children(root):
        raise Refused("state_not_resumable", "children")
    if is_gone:
        raise Refused("state_not_resumable", "rewound")
    if any(ref.calls[call_id].kind == "subagent" for call_id in open_then):
        raise Refused("state_not_resumable", "children")
    new = ref.begin(root, "resume_from_checkpoint")
    if before is not None:
        before.superseded = True
    root.log = root.log[:length]
    kept = {call_id for entry in root.log if entry[0] == "assistant" for call_id in entry[2]}
    for call in ref.calls.values():
        origin = call.conversation.parent or call
        if origin.id not in kept and call.state != "discarded":
            call.state, call.reason = "discarded", "rewound"
    for call_id, (answer, value) in open_then.items():
        call = ref.calls[call_id]
        call.state, call.run, call.reason = ("answered" if answer else "held"), new, None
        call.answer, call.value, call.late, call.told = answer, value, False, False
        call.deadline = call.deadline if answer else None
    if any(call.is_unanswered for call in ref.open_of(new)):
        new.status = "suspended_client_tool"
        ref.expose(root)
    return new


def stop(ref: Reference, kind: str) -> str:
    """R-410 to R-427: recorded on the whole tree, resolved at once where nobody works."""
    targets = [c.current for c in reversed(ref.conversations) if c.current and not c.current.is_over]
    if not targets:
        return "nothing_to_stop"
    forced = [run for run in targets if kind == "abort" and run.stopping]
    for run in targets:
        if not (run.stopping and (run.stop == "abort" or kind == "interrupt")):
            run.stop, run.stopping = kind, True
    for run in targets:
        if run.status != "running" or run in forced:
            run.epoch += 1
            ref.settle_stop(run)
    return "recorded" if any(run.stopping for run in targets) else "resolved"


# -- time --------------------------------------------------------------------------------------------------------------


def sweep(ref: Reference) -> None:
    """R-233, R-240, T-7: what is due lapses; after an outage open deadlines are shifted instead."""
    if ref.is_fair():
        due = [call for call in ref.pending() if ref.has_lapsed(call) and not call.run.stopping]
        for call in due:
            ref.store(call, "timeout")
        for conversation in dict.fromkeys(_conversation_of(call) for call in due):
            ref.follow(conversation)
    else:
        for call in ref.pending():
            if call.deadline is not None:
                call.deadline += ref.now - max(ref.swept_at, call.exposed_at)
    ref.swept_at = ref.now


def _conversation_of(call: Call) -> Conversation:
    return call.conversation
