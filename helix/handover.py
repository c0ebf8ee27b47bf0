"""What a process does with its runs when it is asked to end: it hands them back, and another worker goes on (RT-06).

Model requests are cut at once, since a model may be asked again. A body may not be run again, so it gets a while to
finish and to have its result recorded. Only the process is under a clock here, never a turn: what is still at work in
the end is given back or, when it does not even honour that, taken over when its lease has lapsed.
"""

from __future__ import annotations

import logging

from helix.loop.registry import REGISTRY
from helix.rows.holdings import HOLDINGS

log = logging.getLogger("helix.handover")

# Together below the ten seconds after which the usual supervisors kill.
FINISH_SECONDS = 4.0
GIVE_BACK_SECONDS = 2.0


def hand_back(*, finish_seconds: float = FINISH_SECONDS, give_back_seconds: float = GIVE_BACK_SECONDS) -> bool:
    """Take no more runs, and wait until those of this process are given back and its bodies are over.

    False: something did not honour its token in time; the log names it, and the process may end all the same.
    """
    HOLDINGS.leave()
    REGISTRY.wait_until_quiet(finish_seconds)
    HOLDINGS.cut_all()
    is_empty = HOLDINGS.wait_until_empty(give_back_seconds)
    # A body that honours its token may still be on its way out when its driver has left.
    REGISTRY.wait_until_quiet(give_back_seconds)
    for body in REGISTRY.executing():
        log.warning("worker.body_left", extra={"runId": body.run_id, "toolCallId": body.tool_call_id})
    return is_empty and not REGISTRY.executing()
