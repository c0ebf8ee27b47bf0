"""What the console says of a sub-agent at another server: how it stands, and what its peer is owed (R-667, B-32)."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from helix.admin.explanation import explain
from helix.peers import http
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.tools import locate
from tests.kit.world import World, session_of
from tests.remote.peers import URL, Peers, child_of, remote

pytestmark = pytest.mark.django_db


@pytest.fixture
def peers(world: World, monkeypatch: pytest.MonkeyPatch) -> Peers:
    peers = Peers(world)
    monkeypatch.setattr(http, "open_exchange", peers.open)
    return peers


def test_a_remote_child_is_explained_from_its_start_to_its_owed_stop(
    world: World, peers: Peers, agent: AgentMaker, operator: Client
) -> None:
    """R-203, R-667, B-32: computing, waiting for a client, an answer on its way, and a debt that outlives the calls."""
    helper = ScriptedModel([call("locate", "c1")], [call("__finish__", ok=True)])
    agent(helper, name="helper", tools=[locate], output_schema={"type": "object"})
    parent = ScriptedModel([call("subagent__helper", "d1", task="x")], ["done"])
    session_id = world.started(agent(parent, sub_agents=[remote("helper")]))

    def said() -> str:
        explanation = explain(session_of(session_id), world.now)
        sentences = [run.waits_for for session in explanation.sessions for run in session.runs]
        sentences += [one.waits_for for session in explanation.sessions for one in session.calls]
        return "\n".join([*sentences, *(debt.waits_for for debt in explanation.debts)])

    assert f"its peer {URL}, which computes" in said()
    peers.settle()
    assert f"on behalf of {URL}" in said()
    peers.is_down = True
    world.submit(session_id, "c1", result="Bern")
    assert f"{URL} to take its result" in said()
    world.stop(session_id)
    assert f"{URL} to take the stop" in said()
    page = operator.get(reverse("admin:helix_remotechild_change", args=[child_of(session_id).pk]))
    assert page.status_code == 200 and URL in page.content.decode()
