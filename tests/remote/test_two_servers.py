"""Two real servers, really killed, over a real link that is really cut: nothing is lost and nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.pair import Pair

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

OUTCOME = 'The helper says {"booked":"a room in Bern"}'


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(Path(tmp_path_factory.mktemp("pair")))
    try:
        pair.start()
        yield pair
    finally:
        pair.end()


@pytest.fixture
def pair(started: Pair) -> Iterator[Pair]:
    """Both servers up and the link whole, however the test before left them."""
    started.link.is_cut = False
    yield started
    started.link.drop_answers_of.clear()


def test_a_client_tool_and_an_approval_cross_the_boundary(pair: Pair) -> None:
    """B-14, R-201, R-213, R-214: from POST to finished, each answered at the parent's root."""
    session_id = pair.begin()
    (shown,) = pair.parent.get(f"sessions/{session_id}")["pendingTools"]
    assert shown["agentPath"] == ["parent", "helper"]
    assert pair.answer(session_id)["continuation"]["kind"] == "deferred"
    assert pair.approve(session_id)["status"] == "accepted"
    assert pair.said(session_id) == OUTCOME
    assert pair.child()["status"] == "completed"


def test_a_start_whose_answer_was_cut_off_begins_one_child(pair: Pair) -> None:
    """R-199, R-359."""
    before = len(list(pair.children()))
    pair.link.drop_answers_of.add("start")
    session_id = pair.begin()
    assert len(list(pair.children())) == before + 1
    pair.answer(session_id)
    pair.approve(session_id)
    assert pair.said(session_id) == OUTCOME


def test_an_answer_whose_receipt_was_cut_off_is_taken_once(pair: Pair) -> None:
    """R-214, F-7: the second attempt is told that it is stored."""
    session_id = pair.begin()
    pair.link.drop_answers_of.add("submit-tool-result")
    pair.answer(session_id)
    pair.link.until("submit-tool-result", 0)
    pair.link.until("submit-tool-result", 200)
    pair.approve(session_id)
    assert pair.said(session_id) == OUTCOME


def test_a_peer_that_is_killed_while_its_call_is_open_goes_on_after_its_start(pair: Pair) -> None:
    """B-14, B-09: answered while it is down, taken when it is up."""
    session_id = pair.begin()
    pair.peer.kill()
    assert pair.answer(session_id)["status"] == "accepted"
    pair.link.until("submit-tool-result", 0)
    pair.peer.start()
    pair.approve(session_id)
    assert pair.said(session_id) == OUTCOME


def test_a_parent_that_is_killed_with_an_answer_in_hand_hands_it_on_after_its_start(pair: Pair) -> None:
    """B-14, F-1, R-037: the answer and its debt are rows; nothing of them lived in the process."""
    session_id = pair.begin()
    pair.link.is_cut = True
    assert pair.answer(session_id)["status"] == "accepted"
    pair.parent.kill()
    pair.link.is_cut = False
    pair.parent.start()
    pair.approve(session_id)
    assert pair.said(session_id) == OUTCOME


def test_a_stop_reaches_a_peer_that_was_down(pair: Pair) -> None:
    """B-40, R-203: peer down, stop, peer up: confirmed."""
    session_id = pair.begin()
    child = pair.child()["sessionId"]
    pair.peer.kill()
    stopped = pair.parent.post("interrupt", {"sessionId": session_id, "reason": "enough"})
    assert stopped["outcome"] == "resolved"
    pair.link.until("interrupt", 0)
    assert pair.parent.get(f"status?sessionId={session_id}")["status"] == "interrupted"
    pair.peer.start()
    pair.link.until("interrupt", 200)
    assert pair.peer.get(f"status?sessionId={child}", by="delegate")["status"] == "interrupted"
