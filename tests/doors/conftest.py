"""The doors of one test and the scene in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache
from pytest_django.fixtures import Settings

from tests.doors.attempts import Flavour
from tests.doors.cast import says_who
from tests.doors.scenes import Scene
from tests.fixtures import AgentMaker
from tests.kit.world import World


@pytest.fixture
def set_scene(
    world: World, agent: AgentMaker, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Flavour], Scene]]:
    """``set_scene("verdict")``: a world in which the cast is believed and nobody has submitted anything yet."""
    settings.HELIX_AUTHENTICATE = says_who
    settings.HELIX_APPROVAL_POLICY = "helix.policy.OwnerDecides"
    settings.ALLOWED_HOSTS = ["testserver"]
    cache.clear()
    yield lambda flavour: Scene(world, agent, settings, monkeypatch, flavour)
    cache.clear()
