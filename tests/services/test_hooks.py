"""Hooks: told what happens, outside every transaction, and unable to harm a run (R-652 to R-654)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest

from helix.agents import FINISH_TOOL_NAME, Hooks, tool
from helix.loop import ModelError
from helix.models import Session
from helix.statuses import StopKind
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import Bodies, child_agent, locate
from tests.kit.world import World, results, session_of

pytestmark = pytest.mark.django_db

Told = Mapping[str, Any]
NAMES = [one.name for one in fields(Hooks)]


class Ear:
    """Hooks of every kind that write down who heard what, in order; ``act`` may do more."""

    def __init__(self, who: str = "", heard: list[tuple[str, Told]] | None = None, act: Any = None) -> None:
        self.heard: list[tuple[str, Told]] = [] if heard is None else heard
        self.hooks = Hooks(**{name: self._hook(who, name, act) for name in NAMES})

    def _hook(self, who: str, name: str, act: Any) -> Callable[[Told], Any]:
        def hook(told: Told) -> Any:
            self.heard.append((f"{who}{name}", told))
            return act(told) if act else None

        return hook

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.heard]

    def told(self, name: str) -> list[Told]:
        return [told for heard, told in self.heard if heard == name]


def test_hooks_hear_of_the_agent_its_model_and_its_tools_in_order(world: World, agent: AgentMaker) -> None:
    """R-652: what stands around what."""
    ear = Ear()
    model = ScriptedModel([call("add", "a1", number=1)], ["done"])
    world.started(agent(model, tools=[Bodies().tool("add")], hooks=[ear.hooks]))
    step = ["before_model", "after_model"]
    assert ear.names == ["agent_start", *step, "before_tool", "after_tool", *step, "agent_complete"]
    assert ear.told("before_tool")[0]["arguments"] == {"number": 1}
    assert ear.told("after_tool")[0]["result"] == "add 1" and ear.told("after_model")[1]["text"] == "done"


@pytest.mark.parametrize("how", ["model", "bug", "abort"])
def test_hooks_hear_how_a_run_failed(world: World, agent: AgentMaker, how: str) -> None:
    """R-652: by the model, by a bug, or by an abort; never also that it completed."""
    ear = Ear()

    def abort(request: object) -> Any:
        world.stop(session_id, StopKind.ABORT, reason="enough")
        yield "half"

    steps = {"model": ModelError("no"), "bug": KeyError("bug"), "abort": abort}
    session_id = world.start(agent(ScriptedModel(steps[how]), hooks=[ear.hooks]))
    world.drain()
    (told,) = ear.told("agent_fail")
    codes = {"model": "provider_error", "bug": "framework_internal", "abort": "framework_cancelled"}
    assert told["error"]["code"] == codes[how] and "agent_complete" not in ear.names


def test_async_hooks_are_awaited(world: World, agent: AgentMaker) -> None:
    """R-652."""
    heard: list[str] = []

    async def listen(told: Told) -> None:
        heard.append(told["toolName"])

    model = ScriptedModel([call("add", number=1)], ["done"])
    world.started(agent(model, tools=[Bodies().tool("add")], hooks=[Hooks(before_tool=listen, after_tool=listen)]))
    assert heard == ["add", "add"]


def test_a_parent_hears_a_sub_agent_begin_and_end_around_what_the_child_hears(world: World, agent: AgentMaker) -> None:
    """R-652: parent, then agent; the end is told in the parent's continuing run, with the child's value (R-653)."""
    heard: list[tuple[str, Told]] = []
    parent_ear, child_ear = Ear("parent ", heard), Ear("child ", heard)
    child = child_agent("scout", ScriptedModel([call(FINISH_TOOL_NAME, n=1)]), hooks=[child_ear.hooks])
    model = ScriptedModel([call("subagent__scout", "to", task="go")], ["done"])
    session_id = world.started(agent(model, sub_agents=[child], hooks=[parent_ear.hooks]))
    order = [name for name, _ in heard if "agent" in name]
    assert order == [
        "parent agent_start",
        "parent before_subagent",
        "child agent_start",
        "child agent_complete",
        "parent agent_start",
        "parent after_subagent",
        "parent agent_complete",
    ]
    before, after = (told for name, told in heard if name.endswith("subagent"))
    assert (before["toolCallId"], before["arguments"]) == ("to", {"task": "go"})
    assert (after["result"], after["error"]) == ({"n": 1}, None)
    assert after["childSessionId"] == str(Session.objects.get(parent_id=session_id).id)


def test_the_end_of_each_sub_agent_is_told_once(world: World, agent: AgentMaker) -> None:
    """R-652: a failed one with its code, one beside a client call, and not again when the model's step is repeated."""
    ear = Ear()
    broken = child_agent("broken", ScriptedModel(ModelError("no")))
    works = child_agent("works", ScriptedModel([call(FINISH_TOOL_NAME, n=1)]))
    model = ScriptedModel(
        [call("subagent__broken", "b", task="x"), call("locate", "c1"), call("subagent__works", "w", task="x")],
        ModelError("later", code="provider_rate_limited", retryable=True),
        ["done"],
    )
    session_id = world.started(agent(model, sub_agents=[broken, works], tools=[locate], hooks=[ear.hooks]))
    assert [told["toolCallId"] for told in ear.told("before_subagent")] == ["b", "w"]
    world.submit(session_id, "c1", result=1)
    world.drain()
    world.wait(seconds=2)
    world.drain()
    ended = [(told["toolCallId"], told["errorCode"]) for told in ear.told("after_subagent")]
    assert ended == [("b", "tool_execution_failed"), ("w", None)]
    assert session_of(session_id).status == "idle" and model.asked == 3


def test_drained_results_are_told_in_the_continuing_run(world: World, agent: AgentMaker) -> None:
    """R-653: message and after-tool hooks; a timeout's text may be rewritten there too (R-654)."""
    ear = Ear()
    model = ScriptedModel([call("locate", "c1")], ["done"])
    session_id = world.started(agent(model, tools=[locate], hooks=[ear.hooks]))
    assert ear.told("message") == []
    world.submit(session_id, "c1", result="here")
    world.drain()
    assert (
        [told["result"] for told in ear.told("message")]
        == ["here"]
        == [told["result"] for told in ear.told("after_tool")]
    )


@pytest.mark.parametrize("door", ["body", "drain"])
def test_a_hook_rewrites_an_error_before_the_model_reads_it(world: World, agent: AgentMaker, door: str) -> None:
    """R-654: the code stays; a result that did not fail is left alone."""

    @tool
    def breaks() -> str:
        """Break."""
        raise RuntimeError("secret detail")

    rewrite = Hooks(after_tool=lambda told: "Try something else.")
    calls = [call("breaks", "bad"), call("add", "good", number=1)]
    if door == "drain":
        calls = [call("locate", "bad"), call("locate", "good")]
    model = ScriptedModel(calls, ["done"])
    session_id = world.started(agent(model, tools=[breaks, Bodies().tool("add"), locate], hooks=[rewrite]))
    if door == "drain":
        world.submit(session_id, "bad", error="secret detail")
        world.submit(session_id, "good", result="add 1")
        world.drain()
    assert model.results_seen() == {"bad": "Try something else.", "good": "add 1"}
    if door == "body":
        assert results(session_id)["bad"]["errorCode"] == "tool_execution_failed"


@pytest.mark.parametrize("harm", ["raises", "mutates", "answers"])
def test_no_hook_can_harm_a_run(world: World, agent: AgentMaker, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """R-652: one that raises is logged; what it does to its mapping stays with it; what it returns is ignored."""

    def act(told: Any) -> Any:
        if harm == "raises":
            raise RuntimeError("a bug in a hook")
        if harm == "mutates":
            if isinstance(told.get("arguments"), dict):
                told["arguments"]["number"] = 99
            told.clear()
            return None
        return {"result": "other"}

    bodies = Bodies()
    child = child_agent("scout", ScriptedModel([call(FINISH_TOOL_NAME, n=1)]))
    model = ScriptedModel(
        [call("add", "a1", number=1), call("locate", "c1"), call("subagent__scout", "to", task="go")], ["done"]
    )
    ear = Ear(act=act)
    session_id = world.started(agent(model, tools=[bodies.tool("add"), locate], sub_agents=[child], hooks=[ear.hooks]))
    world.submit(session_id, "c1", result="here")
    world.drain()
    assert bodies.ran == [("add", 1)] and session_of(session_id).status == "idle"
    assert model.results_seen() == {"a1": "add 1", "c1": "here", "to": '{"n":1}'}
    failures = [record for record in caplog.records if record.name == "helix.hooks" and record.levelno == logging.ERROR]
    assert bool(failures) == (harm == "raises") and {"before_subagent", "after_subagent", "message"} <= set(ear.names)
