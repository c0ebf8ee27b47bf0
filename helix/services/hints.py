"""Remember that the sweep hinted at a run, and when it may hint again.

A hint may be lost, so it is repeated; workers may be away for hours, so the pauses double up to a minute. The pause is
derived from how long the run has waited: nothing counts attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from helix.models import Run
from helix.rows.attempts import tried_again

SHORTEST = timedelta(seconds=2)
LONGEST = timedelta(seconds=60)


@tried_again
@transaction.atomic(durable=True)
def note_hints(*, run_ids: Sequence[UUID], now: datetime) -> None:
    """These runs were hinted at now; the next hint is due after as long as they have waited, within bounds."""
    runs = list(Run.objects.filter(pk__in=run_ids).only("id", "next_attempt_at"))
    for run in runs:
        run.next_hint_at = now + min(LONGEST, max(SHORTEST, now - run.next_attempt_at))
    Run.objects.bulk_update(runs, ["next_hint_at"], batch_size=200)
