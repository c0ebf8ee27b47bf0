"""Which test proves which rule: writes ``docs/rules.md`` from the contract's numbers and the tests' citations.

A rule is a number that ``docs/spec`` defines (``**R-060**`` or the first cell of a table row); a citation is the number
in the docstring or comments of a test function, or of its whole module. ``python scripts/rules.py`` writes the table,
``--check`` fails when it is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "rules.md"
NUMBER = re.compile(r"\b([RXBIQLTDC])-(\d{1,3})([a-z]?)\b")
RANGE = re.compile(r"\b([RXBIQLTDC])-(\d{1,3}) to \1-(\d{1,3})\b")
DEFINITION = re.compile(r"^\s*(?:[-*] |\| )\*{0,2}((?:[RXBIQLTDC]-\d{1,3}[a-z]?(?:, )?)+)\*{0,2}", re.MULTILINE)
SECOND_DEFINITION = re.compile(r"\*\*(R-\d{1,3}[a-z]?)\*\*")
SPECIFICATIONS = ("contract.md", "liveness.md", "client.md", "cases.md")


def defined() -> list[str]:
    """Every rule of the specifications, once, in the order of its letter and number."""
    found: set[str] = set()
    for name in SPECIFICATIONS:
        text = (ROOT / "docs" / "spec" / name).read_text().partition("## 10. Retired")[0]
        for match in DEFINITION.finditer(text):
            found.update("".join(parts) for parts in _numbers(match[1]))
        found.update("".join(parts) for match in SECOND_DEFINITION.finditer(text) for parts in _numbers(match[1]))
    return sorted(found, key=sort_key)


def _numbers(text: str) -> Iterator[tuple[str, ...]]:
    return ((letter, "-", number, suffix) for letter, number, suffix in NUMBER.findall(text))


def sort_key(rule: str) -> tuple[int, int, str]:
    letter, number = rule.split("-")
    digits = re.match(r"\d+", number)
    return "RXBQLTDIC".index(letter), int(digits[0]) if digits else 0, number


def citations() -> dict[str, list[str]]:
    """Rule to the tests that cite it, as ``path::test``; only functions that pytest collects count."""
    cited: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            for rule in cited_in(text):
                cited.setdefault(rule, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    for path in sorted((ROOT / "tests").rglob("*.test.mjs")):
        for rule in cited_in(path.read_text()):
            cited.setdefault(rule, []).append(str(path.relative_to(ROOT)))
    return cited


def cited_in(text: str) -> set[str]:
    rules = {f"{letter}-{number}{suffix}" for letter, number, suffix in NUMBER.findall(text)}
    for letter, low, high in RANGE.findall(text):
        rules.update(f"{letter}-{number:0{len(low)}d}" for number in range(int(low), int(high) + 1))
    return rules


def table() -> str:
    """The page: one row a rule, with the tests that cite it."""
    cited = citations()
    rows = [
        "# Rules and their tests",
        "",
        "Made by `python scripts/rules.py` from the numbers in [the contract](spec/contract.md) and its companions and",
        "from the citations in the tests. A test fails when this page is stale, or when a rule of a finished group has",
        "no test.",
        "",
        "| Rule | Tests |",
        "| --- | --- |",
    ]
    for rule in defined():
        tests = cited.get(rule, [])
        shown = "<br>".join(f"`{test}`" for test in tests[:4]) + (f"<br>and {len(tests) - 4} more" if tests[4:] else "")
        rows.append(f"| {rule} | {shown or '–'} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if TABLE.exists() and TABLE.read_text() == table() else f"{TABLE} is stale: run scripts/rules.py")
    TABLE.write_text(table())
