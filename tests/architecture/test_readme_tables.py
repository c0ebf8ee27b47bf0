"""README's tables say what the code says. A table stands between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from helix import conf, errors
from helix.statuses import EventType
from helix.streaming.routing import websocket_urlpatterns
from tests.architecture.sources import ROOT

Row = tuple[str, ...]


def table(name: str) -> list[Row]:
    """The cells of README's table ``name``, without its head. Fails when there is none."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found, f"README has no table between <!-- {name} --> and <!-- /{name} -->"
    lines = [line for line in found[1].splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines[2:]]


def as_markdown(rows: Sequence[Row]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def code(text: Any) -> str:
    return f"`{text}`"


def test_the_settings_table_has_every_setting_with_its_default_and_meaning() -> None:
    """Contract section 6."""
    wanted = [(code(each.name), code(each.default), each.doc) for each in conf.SETTINGS]
    assert table("settings") == wanted, f"the table should read:\n{as_markdown(wanted)}"


def test_the_codes_table_has_every_refusal_with_its_status_and_whether_it_may_be_retried() -> None:
    """F-9: a refusal has one class and one row."""
    wanted: dict[str, tuple[set[int], set[bool]]] = {}
    for refusal in errors.refusal_classes():
        statuses, retryable = wanted.setdefault(refusal.code, (set(), set()))
        statuses.add(refusal.status)
        retryable.add(refusal.retryable)
    rows = [
        (
            code(name),
            ", ".join(map(str, sorted(statuses))),
            {(True,): "yes", (False,): "no"}.get(tuple(retry), "503: yes"),
        )
        for name, (statuses, retry) in wanted.items()
    ]
    given = [row[:3] for row in table("codes")]
    assert given == rows, f"the first three columns should read:\n{as_markdown(rows)}"


def test_the_outcomes_table_has_every_code_that_ends_a_run_or_stands_in_a_result() -> None:
    wanted = [code(name) for name in (*errors.RUN_ERROR_CODES, *errors.RESULT_ERROR_CODES)]
    assert [row[0] for row in table("outcomes")] == wanted


def test_the_events_table_has_every_event_type() -> None:
    """Contract 5.Q."""
    assert [row[0] for row in table("events")] == [code(event.value) for event in EventType]


def test_the_routes_table_has_every_route_of_the_api_and_every_socket() -> None:
    """Contract 5.L. The first column is the path, with a name in braces for each part that varies."""
    wanted = {path for path in paths_of(get_resolver().url_patterns) if path.startswith("/api/")}
    wanted |= set(paths_of(websocket_urlpatterns))
    assert {row[0].strip("`") for row in table("routes")} == wanted


def paths_of(patterns: Sequence[URLPattern | URLResolver], prefix: str = "/") -> Iterator[str]:
    for pattern in patterns:
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern)).strip("^$")
        if isinstance(pattern, URLResolver):
            yield from paths_of(pattern.url_patterns, path)
        else:
            yield path


@pytest.mark.parametrize("kind", ["settings", "codes", "outcomes", "events", "routes"])
def test_no_row_of_a_table_is_there_twice(kind: str) -> None:
    names = [row[0] for row in table(kind)]
    assert sorted(set(names)) == sorted(names)
