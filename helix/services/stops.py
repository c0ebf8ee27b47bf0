"""Stop a conversation: a durable record on every run of the tree that is not over (5.N).

Any process may write the record, whoever holds a run. What nobody works on is resolved in the same transaction; a
worker honours the rest at its next checkpoint, and the answer never waits for that (R-364).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from helix import selectors
from helix.errors import ValidationFailed
from helix.models import Run
from helix.principals import Principal
from helix.rows import runs
from helix.rows.attempts import tried_again
from helix.rows.endings import settle_stop
from helix.rows.tree import Tree, locked
from helix.statuses import RUN_UNFINISHED, RunStatus, StopKind


@dataclass(frozen=True)
class Stopped:
    """outcome: resolved, recorded (a worker has to honour it), or nothing_to_stop (R-424)."""

    run_id: str | None
    stop: str
    outcome: str

    def as_body(self) -> dict[str, str | None]:
        return {"runId": self.run_id, "stop": self.stop, "outcome": self.outcome}


@tried_again
def stop_session(
    *,
    principal: Principal,
    session_id: str,
    kind: StopKind,
    now: datetime,
    reason: str = "",
    delegation_id: str | None = None,
) -> Stopped:
    """Interrupt (soft, resumable) or abort (hard, the run fails) the whole tree of a conversation.

    An abort on a session that is already stopping resolves the stop itself, with a new epoch (R-427, Q-43).
    Raises: `NotFound`; `ValidationFailed` when a delegated session is stopped without naming its delegation (R-363).
    """
    session = selectors.session_for(principal, session_id)
    if session.delegation_id is not None and session.delegation_id != delegation_id:
        raise ValidationFailed("This session is stopped by its delegation only.", cause="delegation_id")
    with locked(session.id, now) as tree:
        targets = _unfinished(tree)
        if not targets:
            return Stopped(None, kind, "nothing_to_stop")
        forced = {run.id for run in targets if kind == StopKind.ABORT and run.stop_is_open}
        for run in targets:
            runs.record_stop(tree, run, kind, reason=reason, by=principal.id)
        # Deepest first: a parent is settled after its children.
        for run in targets:
            if run.status != RunStatus.RUNNING or run.id in forced:
                _resolve(tree, run)
        top = tree.current_run(tree.root)
        left = [run for run in targets if run.stop_is_open]
        return Stopped(str(top.id) if top else None, kind, "recorded" if left else "resolved")


def _unfinished(tree: Tree) -> list[Run]:
    """Every run of the tree that is not over, the deepest first."""
    found = Run.objects.filter(
        session__root_id=tree.root.id, status__in=RUN_UNFINISHED, superseded_by=None
    ).select_related("session")
    known = [tree.know(run) for run in found]
    parents = {run.session_id: run.session.parent_id for run in known}

    def depth(run: Run) -> int:
        steps, above = 0, parents[run.session_id]
        while above is not None:
            steps, above = steps + 1, parents.get(above)
        return steps

    return sorted(known, key=depth, reverse=True)


def _resolve(tree: Tree, run: Run) -> None:
    if run.status == RunStatus.RUNNING:
        # The holder did not honour the stop: its epoch is over, its late writes meet the fence.
        runs.update_run(run, epoch=run.epoch + 1)
    settle_stop(tree, run)
