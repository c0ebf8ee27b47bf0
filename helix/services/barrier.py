"""The barrier of one run: is its work done, does it wait for somebody outside, or is somebody of ours still at it?

A predicate over rows, judged in one consistent read and without a clock or a bound on how much a run may do (Q-08,
Q-27). It covers the run, the runs that took its calls over, and every sub-agent below them, and nothing else (Q-24).
A write that has begun and not committed keeps it open, since the row still says what it said before (Q-26).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from uuid import UUID

from django.db.models import Q

from helix.models import PendingCall, Run, Session
from helix.selectors import consistent_read
from helix.statuses import RUN_FINAL, RUN_LIVE, CallKind, CallState


class Settled(StrEnum):
    """The two truthful answers of a barrier that holds are never merged: only a wait may have a deadline."""

    WORKING = "working"
    WAITING = "waiting"
    """Somebody outside owes an answer, or the caller a resume, in the run or below it."""
    FINISHED = "finished"


def settled_for(run_id: UUID) -> Settled:
    """How the run and everything below it stands. Raises: `Run.DoesNotExist`."""
    with consistent_read():
        found = set(_judgements([Run.objects.get(pk=run_id)]))
    for answer in (Settled.WORKING, Settled.WAITING):
        if answer in found:
            return answer
    return Settled.FINISHED


def _judgements(level: list[Run]) -> Iterator[Settled]:
    """One judgement per run, level by level down the tree; the first open one ends the walk."""
    while level:
        chains, last = _followed(level)
        for run in last:
            judged = _judge(run)
            yield judged
            if judged is Settled.WORKING:
                return
        below = Q(parent_call__run__in=chains) | Q(parent_call__emitted_by__in=chains)
        current = Session.objects.filter(below).values_list("current_run_id", flat=True).distinct()
        level = list(Run.objects.filter(pk__in=[run_id for run_id in current if run_id is not None]))


def _followed(level: list[Run]) -> tuple[Collection[UUID], list[Run]]:
    """Every run from these on through those that took over, and the last of each chain."""
    chains: dict[UUID, Run] = {}
    last: list[Run] = []
    while level:
        chains.update((run.id, run) for run in level)
        last += [run for run in level if run.superseded_by_id is None]
        level = list(Run.objects.filter(pk__in=[run.superseded_by_id for run in level if run.superseded_by_id]))
    return chains.keys(), last


def _judge(run: Run) -> Settled:
    """The run by itself. A delegated call says no more than its child does, unless that is over already."""
    if run.status in RUN_FINAL:
        return Settled.FINISHED
    if run.status in RUN_LIVE or run.stop_is_open or _computes(run):
        return Settled.WORKING
    return Settled.WAITING


def _computes(run: Run) -> bool:
    """Whether a paused run owes something itself: a body executes, or a child ended and was not taken in.

    A stand-in computes at its peer unless one of the peer's calls waits for somebody outside.
    """
    if Session.objects.filter(pk=run.session_id, remote_url__isnull=False).exists():
        return not PendingCall.objects.filter(run=run, state=CallState.AWAITING).exists()
    executing = PendingCall.objects.filter(run=run, state=CallState.EXECUTING)
    ended = Q(kind=CallKind.SUBAGENT, child__current_run__status__in=RUN_FINAL)
    return executing.filter(~Q(kind=CallKind.SUBAGENT) | ended).exists()
