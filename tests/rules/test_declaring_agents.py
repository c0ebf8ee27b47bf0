"""Declaring agents: R-005 to R-007, R-012, R-013, R-015, R-020 to R-022, R-024, R-175, R-230, R-239."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from helix.agents import UNSET, Agent, DeclarationError, Hooks, StepContext, SubAgent, Tool, client_tool, tool

DAY_MS = 24 * 60 * 60 * 1000
OUTPUT = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


class Receipt(BaseModel):
    total: int


def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def broken(left) -> int:  # type: ignore[no-untyped-def]
    return 0


def child() -> Agent:
    return Agent("child", output_schema=OUTPUT)


def step() -> StepContext:
    return StepContext(session_id="s", root_id="s", run_id="r", agent_type="shop", owner="owner", step=3)


def test_an_agent_says_little_and_means_the_defaults() -> None:
    """R-006, R-013, R-020, R-021, R-022."""
    agent = Agent("shop")
    assert agent.step_limit == agent.max_steps == 50
    assert agent.completed_tombstone_retention_ms == DAY_MS
    assert agent.max_open_calls is None
    assert agent.continue_on_submit is True
    assert agent.validate_arguments is True
    assert agent.all_tools == ()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "no spaces"}, "name"),
    ({"name": 7}, "name"),
    ({"name": "n" * 257}, "name"),
    ({"model": ""}, "model"),
    ({"model": 7}, "model"),
    ({"instructions": None}, "instructions"),
    ({"tools": [7]}, "tools"),
    ({"tools": [add, add]}, "tools"),
    ({"tools": [broken]}, "signature"),
    ({"tools": [SubAgent(child()).tool]}, "tools"),
    ({"sub_agents": [add]}, "sub_agents"),
    ({"sub_agents": [SubAgent(child()), SubAgent("child")]}, "tools"),
    ({"output_schema": {"type": "text"}}, "output_schema"),
    ({"output_schema": {"type": "string"}}, "output_schema"),
    ({"output_schema": int}, "output_schema"),
    ({"output_schema": "Receipt"}, "output_schema"),
    ({"max_steps": 0}, "max_steps"),
    ({"max_steps": -1}, "max_steps"),
    ({"max_steps": 1.5}, "max_steps"),
    ({"max_steps": math.nan}, "max_steps"),
    ({"max_steps": -math.inf}, "max_steps"),
    ({"max_steps": True}, "max_steps"),
    ({"max_steps": "50"}, "max_steps"),
    ({"stop_when": True}, "stop_when"),
    ({"max_open_calls": 0}, "max_open_calls"),
    ({"max_open_calls": -1}, "max_open_calls"),
    ({"max_open_calls": 1.0}, "max_open_calls"),
    ({"max_open_calls": True}, "max_open_calls"),
    ({"continue_on_submit": None}, "continue_on_submit"),
    ({"validate_arguments": 1}, "validate_arguments"),
    ({"error_texts": ["run_stopped"]}, "error_texts"),
    ({"error_texts": {"run_stopped": 7}}, "error_texts"),
    ({"hooks": [print]}, "hooks"),
    ({"hooks": [Hooks(message="print")]}, "hooks.message"),  # type: ignore[arg-type]
    ({"model_settings": None}, "model_settings"),
]


@pytest.mark.parametrize(("options", "option"), WRONG)
def test_a_wrong_option_is_refused_when_the_agent_is_made(options: dict[str, Any], option: str) -> None:
    """R-024: the refusal names the agent and the option."""
    assert Agent(name="shop", tools=[add], sub_agents=[SubAgent(child())], output_schema=Receipt)
    with pytest.raises(DeclarationError) as refused:
        Agent(**{"name": "shop", **options})
    assert refused.value.option == option
    assert refused.value.agent == str(options.get("name", "shop"))
    assert f"agent {refused.value.agent!r}" in str(refused.value)
    assert f"option {option!r}" in str(refused.value)


def test_a_refused_function_names_the_agent_the_tool_and_the_option() -> None:
    """R-024."""
    with pytest.raises(DeclarationError) as refused:
        Agent("shop", tools=[broken])
    assert str(refused.value).startswith("agent 'shop', tool 'broken', option 'signature': ")


@pytest.mark.parametrize("retention", [-1, -0.5, math.nan, math.inf, -math.inf, "1", None, True])
def test_a_retention_is_a_finite_number_of_at_least_zero(retention: Any) -> None:
    """R-006."""
    with pytest.raises(DeclarationError, match="completed_tombstone_retention_ms"):
        Agent("shop", completed_tombstone_retention_ms=retention)


@pytest.mark.parametrize(
    ("given", "kept"), [(0, 0), (0.0, 0), (1, 1), (0.5, 1), (DAY_MS, DAY_MS), (1e300, 3_153_600_000_000)]
)
def test_a_retention_is_kept_in_whole_milliseconds(given: Any, kept: int) -> None:
    """R-006, R-007: zero is legal; more than a century is a century, which the calendar of the rows can hold."""
    assert Agent("shop", completed_tombstone_retention_ms=given).completed_tombstone_retention_ms == kept
    assert Agent("shop", completed_tombstone_retention_ms=10**400).completed_tombstone_retention_ms == 3_153_600_000_000


def test_infinity_is_a_step_limit_only_when_written_out() -> None:
    """R-013."""
    assert Agent("shop", max_steps=math.inf).step_limit == math.inf
    assert Agent("shop", max_steps=None).step_limit == 50
    assert Agent("shop", max_steps=1).step_limit == 1


@pytest.mark.parametrize("option", ["client_tool_timeout_ms", "approval_timeout_ms"])
@pytest.mark.parametrize("wait", [0, -1, 1.5, math.nan, math.inf, True, "1000"])
def test_an_agents_wait_is_a_positive_integer(option: str, wait: Any) -> None:
    """R-005, R-239."""
    for right in (1, None, UNSET):
        assert getattr(Agent("shop", **{option: right}), option) is right  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=option):
        Agent("shop", **{option: wait})


@pytest.mark.parametrize(
    ("on_tool", "on_agent", "expected"),
    [
        (1, 2, (1, "tool")),
        (UNSET, 2, (2, "agent")),
        (UNSET, UNSET, (3, "setting")),
        (None, 2, (None, "tool")),
        (UNSET, None, (None, "agent")),
        (1, None, (1, "tool")),
    ],
)
def test_the_first_level_that_speaks_decides_the_wait(
    settings: Settings, on_tool: Any, on_agent: Any, expected: tuple[int | None, str]
) -> None:
    """R-175, R-230: ``None`` speaks, and means no deadline."""
    settings.HELIX_CLIENT_TOOL_TIMEOUT_MS = 3
    settings.HELIX_APPROVAL_TIMEOUT_MS = 3
    asking = client_tool("locate", client_tool_timeout_ms=on_tool)
    assert Agent("shop", client_tool_timeout_ms=on_agent).wait_for(asking, "client") == expected
    gated = tool(require_approval=True, approval_timeout_ms=on_tool)(add)
    assert Agent("shop", approval_timeout_ms=on_agent).wait_for(gated, "approval") == expected


def test_the_two_waits_do_not_answer_for_each_other(settings: Settings) -> None:
    """R-175, R-230."""
    settings.HELIX_APPROVAL_TIMEOUT_MS = None
    gated = tool(require_approval=True, client_tool_timeout_ms=1)(add)
    assert Agent("shop", client_tool_timeout_ms=2).wait_for(gated, "approval") == (None, "setting")


def test_arguments_are_checked_unless_one_level_says_no() -> None:
    """R-020."""
    checked, unchecked = client_tool("a"), client_tool("b", validate_arguments=False)
    assert Agent("shop").validates(checked)
    assert not Agent("shop").validates(unchecked)
    assert not Agent("shop", validate_arguments=False).validates(checked)


@pytest.mark.parametrize("schema", [OUTPUT, Receipt, {"properties": {"total": {"type": "integer"}}}])
def test_an_output_schema_gives_a_finish_tool(schema: Any) -> None:
    """R-012."""
    agent = Agent("shop", tools=[add], output_schema=schema)
    finish = agent.tool("__finish__")
    assert finish is not None
    assert finish.finish_with
    assert finish.input_schema == agent.output_schema
    assert finish.input_schema["type"] == "object"
    assert finish.body is not None
    assert finish.body(total=3) == {"total": 3}
    assert Agent("shop", tools=[add]).tool("__finish__") is None


def test_an_agent_finds_its_tools_by_name() -> None:
    agent = Agent("shop", tools=[add, client_tool("locate")], sub_agents=[SubAgent(child())], output_schema=OUTPUT)
    assert [one.name for one in agent.all_tools] == ["add", "locate", "subagent__child", "__finish__"]
    assert all(isinstance(one, Tool) and agent.tool(one.name) is one for one in agent.all_tools)
    assert agent.tool("subtract") is None


def test_a_sub_agent_is_a_tool_for_the_model() -> None:
    """R-015."""
    given = child()
    sub_agent = SubAgent(given, "Counts things.", input_schema=Receipt)
    assert sub_agent.tool.name == "subagent__child"
    assert sub_agent.tool.description == "Counts things."
    assert sub_agent.tool.sub_agent is sub_agent
    assert sub_agent.tool.input_schema["required"] == ["total"]
    assert sub_agent.tool.output_schema == given.output_schema
    assert SubAgent("child").tool.input_schema["required"] == ["task"]
    assert SubAgent("child", name="counter").tool.name == "subagent__counter"


def test_a_remote_sub_agent_declares_what_it_answers_and_may_bound_silence() -> None:
    """R-015, R-202."""
    far = SubAgent("child", remote="https://peer.example/api", output_schema=Receipt, timeout_ms=1000)
    assert far.timeout_ms == 1000
    assert far.output_schema["required"] == ["total"]
    assert far.tool.output_schema == far.output_schema


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"agent": child(), "timeout_ms": 1000}, "timeout_ms"),
        ({"agent": "child", "timeout_ms": 1000}, "timeout_ms"),
        ({"agent": child(), "timeout_ms": None}, "timeout_ms"),
        ({"agent": Agent("child")}, "output_schema"),
        ({"agent": "child", "output_schema": OUTPUT}, "output_schema"),
        ({"agent": "child", "remote": "https://peer.example"}, "output_schema"),
        ({"agent": child(), "remote": "https://peer.example", "output_schema": OUTPUT}, "agent"),
        ({"agent": "child", "remote": "ftp://peer.example", "output_schema": OUTPUT}, "remote"),
        ({"agent": "child", "remote": "peer.example", "output_schema": OUTPUT}, "remote"),
        ({"agent": "child", "remote": "https://p.example", "output_schema": OUTPUT, "timeout_ms": 0}, "timeout_ms"),
        ({"agent": "no spaces"}, "agent"),
        ({"agent": 7}, "agent"),
        ({"agent": "child", "name": "no spaces"}, "name"),
        ({"agent": "child", "input_schema": {"type": "string"}}, "input_schema"),
    ],
)
def test_a_wrong_sub_agent_is_refused_when_it_is_made(options: dict[str, Any], option: str) -> None:
    """R-015, R-024, R-239, Q-01: no clock ends local work."""
    with pytest.raises(DeclarationError) as refused:
        SubAgent(**options)
    assert refused.value.option == option
    assert refused.value.tool is not None
    assert refused.value.tool.startswith("subagent__")


def test_the_model_is_named_by_the_agent_a_function_or_the_setting(settings: Settings) -> None:
    settings.HELIX_MODEL = "openai:from-settings"
    assert Agent("shop", model="scripted:bench").model_for(step()) == "scripted:bench"
    assert Agent("shop", model=lambda asked: f"scripted:{asked.step}").model_for(step()) == "scripted:3"
    assert Agent("shop").model_for(step()) == "openai:from-settings"
    settings.HELIX_MODEL = None
    assert Agent("shop").model_for(step()).startswith("scripted:")


def test_hooks_and_texts_are_kept() -> None:
    """R-652, R-745."""
    hooks = Hooks(agent_start=print, after_tool=print)
    agent = Agent("shop", hooks=[hooks], error_texts={"run_stopped": "Stopped by hand."}, model_settings={"seed": 1})
    assert agent.hooks == (hooks,)
    assert agent.error_texts == {"run_stopped": "Stopped by hand."}
    assert agent.model_settings == {"seed": 1}
