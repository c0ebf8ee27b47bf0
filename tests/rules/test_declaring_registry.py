"""Finding agents by name: R-011, R-015, R-024, R-074."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from helix.agents import Agent, DeclarationError, SubAgent, all_agents, check, lookup, register, registered
from helix.errors import AgentNotFound, AgentResolutionFailed

ROOT = Path(__file__).resolve().parents[2]
OUTPUT: dict[str, Any] = {"type": "object"}

SHOP = Agent("configured_shop")
MAPPING = {"configured_shop": SHOP}


def find(agent_type: str) -> Agent | None:
    if agent_type == "broken":
        raise ConnectionError("the store of agents is away")
    return SHOP if agent_type == "configured_shop" else None


@pytest.fixture(autouse=True)
def kept_registry(settings: Settings) -> Iterator[None]:
    settings.HELIX_AGENTS = None
    with registered():
        yield


def test_a_registered_agent_is_found_by_its_name() -> None:
    """R-011."""
    agent = register(Agent("shop"))
    assert lookup("shop") is agent
    assert agent in all_agents()


def test_an_unknown_type_is_refused_by_code() -> None:
    """R-074."""
    with pytest.raises(AgentNotFound) as refused:
        lookup("nobody")
    assert refused.value.fields == {"agentType": "nobody"}


def test_registering_again_is_once_and_a_second_agent_of_the_name_is_refused() -> None:
    """R-024."""
    agent = register(Agent("shop"))
    assert register(agent) is agent
    with pytest.raises(DeclarationError, match="agent 'shop', option 'name'"):
        register(Agent("shop"))
    assert lookup("shop") is agent


def test_only_an_agent_is_registered() -> None:
    with pytest.raises(DeclarationError):
        register("shop")  # type: ignore[arg-type]


def test_local_sub_agents_are_registered_with_their_parent() -> None:
    """R-015: a child session finds its agent by name, in any process."""
    grandchild = Agent("grandchild", output_schema=OUTPUT)
    child = Agent("child", output_schema=OUTPUT, sub_agents=[SubAgent(grandchild)])
    register(Agent("shop", sub_agents=[SubAgent(child)]))
    assert lookup("child") is child
    assert lookup("grandchild") is grandchild
    check()


def test_a_block_of_registrations_leaves_nothing_behind() -> None:
    with registered(Agent("for_a_while")):
        assert lookup("for_a_while")
    with pytest.raises(AgentNotFound):
        lookup("for_a_while")


@pytest.mark.parametrize(
    ("sub_agent", "problem"),
    [
        (SubAgent("nobody"), "no agent 'nobody' is registered"),
        (SubAgent("talker"), "declares no output schema"),
        (SubAgent("worker"), None),
        (SubAgent("anyone", remote="https://peer.example", output_schema=OUTPUT), None),
    ],
)
def test_a_sub_agent_that_is_named_must_be_declared(sub_agent: SubAgent, problem: str | None) -> None:
    """R-015, R-024."""
    register(Agent("talker"))
    register(Agent("worker", output_schema=OUTPUT))
    register(Agent("shop", sub_agents=[sub_agent]))
    if problem is None:
        check()
        return
    with pytest.raises(DeclarationError, match=problem) as refused:
        check()
    assert (refused.value.agent, refused.value.tool) == ("shop", sub_agent.tool_name)


@pytest.mark.parametrize("source", [MAPPING, f"{__name__}.MAPPING", find, f"{__name__}.find"])
def test_a_configured_source_answers_instead_of_the_registry(settings: Settings, source: Any) -> None:
    """R-011, R-074."""
    register(Agent("shop"))
    settings.HELIX_AGENTS = source
    check()
    assert lookup("configured_shop") is SHOP
    for unknown in ("shop", "nobody"):
        with pytest.raises(AgentNotFound):
            lookup(unknown)


def test_a_mapping_can_be_listed_and_a_function_cannot(settings: Settings) -> None:
    settings.HELIX_AGENTS = MAPPING
    assert all_agents() == (SHOP,)
    settings.HELIX_AGENTS = find
    assert all_agents() == ()


def test_a_lookup_function_that_fails_may_succeed_later(settings: Settings) -> None:
    """R-074."""
    settings.HELIX_AGENTS = find
    with pytest.raises(AgentResolutionFailed) as refused:
        lookup("broken")
    assert refused.value.retryable
    assert refused.value.fields == {"agentType": "broken"}
    assert "store of agents" not in refused.value.message
    assert lookup("configured_shop") is SHOP


def test_what_a_source_gives_must_be_an_agent(settings: Settings) -> None:
    """R-011, R-024."""
    settings.HELIX_AGENTS = {"shop": "an agent, honestly"}
    with pytest.raises(AgentResolutionFailed):
        lookup("shop")
    with pytest.raises(DeclarationError, match="agent 'shop', option 'HELIX_AGENTS'"):
        check()


@pytest.mark.parametrize("source", ["nowhere.agents", f"{__name__}.nothing", f"{__name__}.OUTPUT_TEXT"])
def test_a_source_that_cannot_be_used_is_refused_at_start(settings: Settings, source: str) -> None:
    """R-024."""
    settings.HELIX_AGENTS = source
    with pytest.raises(DeclarationError, match="HELIX_AGENTS"):
        check()
    with pytest.raises(AgentResolutionFailed):
        lookup("shop")


OUTPUT_TEXT = "neither a mapping nor a function"

STARTED = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["corner_shop"])
django.setup()
from helix.agents import discover, lookup
discover()
print("found", lookup("corner").name)
"""


def started_with(folder: Path, declarations: str) -> subprocess.CompletedProcess[str]:
    """A fresh Django whose one app declares its agents in ``agents.py``."""
    app = folder / "corner_shop"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "agents.py").write_text(declarations)
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_agents_of_installed_apps_are_found_at_start(tmp_path: Path) -> None:
    """R-011."""
    done = started_with(tmp_path, "from helix.agents import Agent, register\nregister(Agent('corner'))\n")
    assert (done.returncode, done.stdout) == (0, "found corner\n"), done.stderr


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (
            "register(Agent('corner', sub_agents=[SubAgent('away')]))",
            "agent 'corner', tool 'subagent__away', option 'sub_agents'",
        ),
        (
            "register(Agent('corner', tools=[client_tool('locate', finish_with=True)]))",
            "an agent of corner_shop.agents, tool 'locate', option 'finish_with'",
        ),
        ("register(Agent('corner', max_steps=0))", "agent 'corner', option 'max_steps'"),
    ],
)
def test_a_refused_declaration_keeps_django_from_starting(tmp_path: Path, declared: str, named: str) -> None:
    """R-002, R-024."""
    imports = "from helix.agents import Agent, SubAgent, client_tool, register\n"
    done = started_with(tmp_path, imports + declared + "\n")
    assert done.returncode != 0
    assert f"DeclarationError: {named}: " in done.stderr
