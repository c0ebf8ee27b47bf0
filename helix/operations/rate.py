"""How many submits one principal may make for one session in a minute (R-387).

Submits are counted in Django's cache, per second, over the last sixty: no burst at the edge of a fixed window gets
through twice. The session counts as it was named, before anything is read; a stranger has a count of its own and
cannot use up an owner's. A cache that is away refuses nobody: a lost answer would be worse than a fast client.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.core.cache import cache

from helix import conf, jsontext
from helix.errors import RateLimited
from helix.principals import Principal

log = logging.getLogger("helix.rate")

WINDOW_SECONDS = 60


def count_submit(principal: Principal, session_id: str, now: datetime) -> None:
    """Count one submit. Raises: `RateLimited` with ``retryAfterSeconds``; a refused submit does not count."""
    try:
        wait = _seconds_to_wait(principal, session_id, int(now.timestamp()))
    except Exception as failure:
        log.warning("rate.cache_unavailable", extra={"failure": type(failure).__name__})
        return
    if wait:
        log.info("rate.refused", extra={"sessionId": session_id, "retryAfterSeconds": wait})
        raise RateLimited("Too many submits for this session.", retryAfterSeconds=wait)


def _seconds_to_wait(principal: Principal, session_id: str, second: int) -> int:
    """0: counted and allowed."""
    # Names of any length and alphabet, as a key that every cache takes.
    who = jsontext.digest(jsontext.dumps([principal.id, session_id]))
    names = {at: f"helix:submits:{who}:{at}" for at in range(second - WINDOW_SECONDS + 1, second + 1)}
    # `add` and `incr` are atomic, so that rivals in other processes are all counted.
    if not cache.add(names[second], 1, timeout=WINDOW_SECONDS + 1):
        cache.incr(names[second])
    counts = cache.get_many(names.values())
    if sum(counts.values()) <= conf.get("HELIX_SUBMITS_PER_MINUTE"):
        return 0
    cache.decr(names[second])
    oldest = min((at for at, name in names.items() if name in counts), default=second)
    return oldest + WINDOW_SECONDS - second
