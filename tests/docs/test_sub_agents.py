"""The blocks of docs/sub-agents.md, run from top to bottom as one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix.agents import lookup, registered

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sub-agents.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_runs_and_declares_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page promises it: a local and a remote sub-agent, and the names under which a model sees them."""
    monkeypatch.setenv("GUIDES_TOKEN", "t")
    page = PAGE.read_text()
    names: dict[str, object] = {"__name__": "page"}
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("```python") > 1
    with registered():
        for block in blocks:
            before = "\n" * page[: block.start(1)].count("\n")
            exec(compile(before + block[1], str(PAGE), "exec"), names)  # noqa: S102  our own page
        assert lookup("concierge").tool("subagent__guide") is not None
        far = lookup("traveller").tool("subagent__far_guide")
    assert far is not None and far.sub_agent is not None
    assert far.sub_agent.silence_ms == 900_000 and far.sub_agent.request_headers() == {"Authorization": "Bearer t"}
