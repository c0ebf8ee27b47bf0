"""What the declaration of a remote sub-agent refuses (R-015, R-024)."""

from __future__ import annotations

from typing import Any

import pytest

from helix.agents import DeclarationError, SubAgent
from tests.remote.peers import URL

SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"remote": "https://user:hunter2@peer.example/api", "output_schema": SCHEMA}, "remote"),
        ({"remote": f"{URL}?key=hunter2", "output_schema": SCHEMA}, "remote"),
        ({"remote": f"https://peer.example/{'x' * 2000}", "output_schema": SCHEMA}, "remote"),
        ({"remote": "ftp://peer.example", "output_schema": SCHEMA}, "remote"),
        ({"remote": URL}, "output_schema"),
        ({"remote": URL, "output_schema": SCHEMA, "headers": "hunter2"}, "headers"),
        ({"remote": URL, "output_schema": SCHEMA, "headers": {"Authorization": b"hunter2"}}, "headers"),
        ({"headers": {"Authorization": "hunter2"}}, "headers"),
        ({"timeout_ms": 1000}, "timeout_ms"),
        ({"remote": URL, "output_schema": SCHEMA, "timeout_ms": 0}, "timeout_ms"),
    ],
)
def test_a_remote_sub_agent_that_cannot_work_is_refused_and_no_secret_repeated(
    options: dict[str, Any], option: str
) -> None:
    """R-015, R-024, R-239."""
    with pytest.raises(DeclarationError) as refusal:
        SubAgent("helper", **options)
    assert refusal.value.option == option
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(("given", "silence"), [({}, 3_600_000), ({"timeout_ms": None}, None), ({"timeout_ms": 5}, 5)])
def test_the_silence_of_a_peer_is_bounded_as_declared(given: dict[str, Any], silence: int | None) -> None:
    """R-015, R-202: an hour when nothing is said, for ever with `None`."""
    assert SubAgent("helper", remote=URL, output_schema=SCHEMA, **given).silence_ms == silence


def test_headers_may_be_a_mapping_or_a_function() -> None:
    """The control of the refusals above."""
    fixed = SubAgent("helper", remote=URL, output_schema=SCHEMA, headers={"X-Key": "a"})
    fresh = SubAgent("helper", remote=URL, output_schema=SCHEMA, headers=lambda: {"X-Key": "b"})
    assert (fixed.request_headers(), fresh.request_headers()) == ({"X-Key": "a"}, {"X-Key": "b"})
