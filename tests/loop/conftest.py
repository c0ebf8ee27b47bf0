"""A provider under the test's control, and requests to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import LazySettings

from helix.loop import LoggedMessage, ModelRequest, ToolSpec
from tests.provider_server import ProviderServer

LOOK = ToolSpec("look", "Looks at a thing.", {"type": "object", "properties": {"thing": {"type": "string"}}})


@pytest.fixture
def server(settings: LazySettings) -> Iterator[ProviderServer]:
    """A real HTTP server, and the settings that lead ``openai:`` models to it."""
    with ProviderServer() as running:
        settings.HELIX_MODEL_BASE_URL = running.base_url
        settings.HELIX_MODEL_API_KEY = "a-key-of-the-test"
        yield running


@pytest.fixture
def ask() -> Callable[..., ModelRequest]:
    """Builds a request that says "Hello"; takes any field."""

    def build(*messages: LoggedMessage, **fields: Any) -> ModelRequest:
        given = {"model": "openai:gpt-test", "instructions": "Be brief.", "tools": (LOOK,), **fields}
        return ModelRequest(messages=messages or (said("Hello"),), **given)

    return build


def said(text: str) -> LoggedMessage:
    return LoggedMessage("user", ({"type": "text", "text": text},))
