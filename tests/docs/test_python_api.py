"""The blocks of docs/python-api.md, run from top to bottom as one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix.agents import registered
from helix.models import Session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-api.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.django_db
def test_every_block_runs() -> None:
    """The page promises it: each block goes on where the one before it ended."""
    page = PAGE.read_text()
    names: dict[str, object] = {"__name__": "page"}
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("```python") > 5
    with registered():
        for block in blocks:
            # Lines count as in the page, so that a failure names its place there.
            before = "\n" * page[: block.start(1)].count("\n")
            exec(compile(before + block[1], str(PAGE), "exec"), names)  # noqa: S102  our own page
    assert Session.objects.get().status == "awaiting_client_tool"
