"""What may happen, as values: replies of the model, verbs of the outside, and where a worker dies."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.stateful.reference import TOOLS
from tests.stateful.verbs import ANSWERS

# A little before a lease's and a call's end, and a little after.
PAUSES = (1, 1_000, 4_000, 29_000, 31_000, 59_000, 61_000, 299_000, 301_000, 601_000, 901_000)


FITTING = "fitting"


@dataclass(frozen=True)
class Verb:
    """One thing that somebody outside does. pick: which call or checkpoint it is about, or how long it takes.

    word: which kind of it; ``FITTING`` is the answer that the call's kind asks for.
    """

    name: str
    pick: int = 0
    word: str = ""


@dataclass(frozen=True)
class Plan:
    """One pause of a worker: what its model says, and what happens meanwhile.

    when: the verbs come when the text is written ("mid") or when all is written ("end"). dies: the worker does, then.
    """

    tools: tuple[str, ...] = ()
    failure: str | None = None
    when: str = "end"
    verbs: tuple[Verb, ...] = ()
    dies: bool = False


picks = st.integers(0, 40)
submits = st.builds(Verb, st.just("submit"), picks, st.sampled_from((*[FITTING] * 6, *ANSWERS)))
stops = st.builds(Verb, st.just("stop"), st.just(0), st.sampled_from(("interrupt", "interrupt", "abort")))
sends = st.builds(Verb, st.just("send"), st.just(0), st.sampled_from(("", "abandon")))
retries = st.builds(Verb, st.just("retry"), st.just(0), st.sampled_from(("", "message")))
waits = st.builds(Verb, st.sampled_from(("tick", "wait", "outage")), st.sampled_from(PAUSES))
sweeps = st.just(Verb("sweep"))
resumes = st.just(Verb("resume"))
rewinds = st.builds(Verb, st.just("rewind"), picks)

tools = st.lists(st.sampled_from(tuple(TOOLS)), min_size=1, max_size=3).map(tuple)
failures = st.sampled_from((None, None, None, None, None, None, "retryable", "final"))
interjections = st.lists(st.one_of(stops, stops, submits, sends, waits, resumes, sweeps), min_size=1, max_size=2)
plans = st.one_of(
    st.builds(Plan, tools),
    st.builds(Plan, tools, failures),
    st.builds(Plan, tools, st.none(), st.sampled_from(("mid", "end")), interjections.map(tuple)),
    st.builds(Plan, tools, dies=st.just(True)),
)
replies = st.lists(plans, min_size=1, max_size=3)
