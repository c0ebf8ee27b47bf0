"""The browser's lists of codes are the server's (R-743, I-57)."""

from __future__ import annotations

import re

import pytest

from helix.errors import CLIENT_TOOL_ERROR_CODES, known_codes
from tests.architecture.sources import ROOT

LIBRARY = (ROOT / "static" / "helix" / "helix.js").read_text()


def codes_in(name: str) -> list[str]:
    """The words of the set that the module holds under this name."""
    found = re.search(rf"const {name} = new Set\(\((.*?)\)\.split", LIBRARY, re.DOTALL)
    assert found is not None
    return "".join(re.findall(r'"(.*?)"', found[1])).split()


@pytest.mark.parametrize(
    ("name", "codes"), [("KNOWN_CODES", known_codes()), ("CLIENT_TOOL_CODES", CLIENT_TOOL_ERROR_CODES)]
)
def test_the_lists_are_equal(name: str, codes: tuple[str, ...]) -> None:
    assert codes_in(name) == list(codes)
