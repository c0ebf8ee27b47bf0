"""The README's agent, pasted as it stands, walks the main job to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix.agents import lookup, registered
from tests.kit.world import World, pending, results, session_of

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.django_db
def test_the_declared_agent_asks_a_page_then_a_reviewer_then_pays(world: World) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    with registered():
        exec(compile(block, str(README), "exec"), {"__name__": "readme"})  # noqa: S102  our own page
        session_id = world.started(lookup("shop"), "My mug broke.")
        (where,) = pending(session_id)
        world.submit(session_id, where.tool_call_id, result={"city": "Bern"})
        world.drain()
        (payment,) = pending(session_id)
        assert (where.tool_name, payment.tool_name) == ("locate", "pay_out")
        world.decide(payment)
        world.drain()
        assert results(session_id)[payment.tool_call_id]["text"] == "paid 2400 cents for 1042"
        assert session_of(session_id).status == "idle"
