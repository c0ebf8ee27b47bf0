"""What a scenario is told with: a conversation that waits for the answer of one flavour, and things that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.core.cache import cache
from django.db import OperationalError
from pytest_django.fixtures import Settings

from helix.models import Checkpoint, PendingCall, RemoteChild, Run, Session
from helix.operations.rate import count_submit
from helix.rows import endings
from helix.rows.tree import locked
from helix.services import submit
from helix.services.rewind import rewind
from tests.doors.attempts import Attempt, Flavour
from tests.doors.cast import locate, pay, wire_money
from tests.fixtures import AgentMaker
from tests.kit.models import ScriptedModel, call
from tests.kit.world import OWNER, World, session_of

CANARY = "canary-d00r"
LIMIT = 400


class Scene:
    """One conversation of the owner's. ``undo`` takes back whatever the scene broke."""

    def __init__(
        self,
        world: World,
        agent: AgentMaker,
        settings: Settings,
        monkeypatch: pytest.MonkeyPatch,
        flavour: Flavour,
    ) -> None:
        self.world, self.agent, self.settings, self.monkeypatch = world, agent, settings, monkeypatch
        self.flavour = flavour
        self._undo: Callable[[], Any] = _nothing

    # -- conversations ---------------------------------------------------------------------------------------------

    def asked(self, tool_name: str | None = None, *, ids: tuple[str, ...] = ("c1",), **options: Any) -> Attempt:
        """A conversation that waits for the calls ``ids``; the good answer to the last of them."""
        name = tool_name or ("pay" if self.flavour == "verdict" else "locate")
        calls = [call(name, one, **({} if name == "locate" else {"cents": 5})) for one in ids]
        agent = self.agent(ScriptedModel(calls, ["Done."]), tools=[locate, pay, wire_money], **options)
        return self.good(self.world.started(agent), ids[-1])

    def good(self, session_id: UUID, call_id: str) -> Attempt:
        """The answer of the scene's flavour that nothing is wrong with."""
        row = PendingCall.objects.filter(root_id=session_id, tool_call_id=call_id).first()
        bodies: dict[Flavour, dict[str, Any]] = {
            "result": {"result": {"city": "Bern"}},
            "error": {"error": "the device is off"},
            "verdict": {
                "kind": "approval-response",
                "approvalId": (row.approval_id if row else None) or "none",
                "approved": True,
            },
        }
        return Attempt(str(session_id), call_id, bodies[self.flavour])

    def submit(self, attempt: Attempt) -> None:
        self.world.submit(UUID(attempt.session), attempt.call, **attempt.body)

    # -- what is over ----------------------------------------------------------------------------------------------

    def timed_out(self, *, consumed: bool) -> Attempt:
        good = self.asked()
        self.world.wait(days=8)
        if consumed:
            self.world.drain()
        return good

    def rewound(self) -> Attempt:
        name = "pay" if self.flavour == "verdict" else "locate"
        asking = [call(name, "c1", **({} if name == "locate" else {"cents": 5}))]
        agent = self.agent(ScriptedModel(["Hello."], asking, ["Hello again."]), tools=[locate, pay])
        session_id = self.world.started(agent)
        point = Checkpoint.objects.get().checkpoint_id
        self.world.send(session_id, "go on")
        self.world.drain()
        good = self.good(session_id, "c1")
        rewind(principal=OWNER, session_id=str(session_id), checkpoint_id=point, now=self.world.now)
        return good

    def failed(self) -> Attempt:
        good = self.asked()
        with locked(UUID(good.session), self.world.now) as tree:
            run = tree.current_run(tree.root)
            assert run is not None
            endings.fail(tree, run, "framework_internal", "The process is gone.")
        return good

    def owner_lost(self) -> Attempt:
        """The session of the call stands in for one at a peer that cannot be found any more (R-202, R-204)."""
        good = self.failed()
        Session.objects.update(remote_url="https://peer.example")
        RemoteChild.objects.create(
            session_id=good.session, delegation_id="d1", state="lost", next_attempt_at=self.world.now
        )
        return good

    def stop_recorded(self) -> Attempt:
        """A stop that nobody has resolved yet, since nobody works on the run (R-414)."""
        good = self.asked()
        Run.objects.filter(session_id=good.session).update(stop_kind="interrupt", stop_requested_at=self.world.now)
        return good

    def replaced(self) -> Attempt:
        """The call stands on a run that is not its session's current one (R-068)."""
        good = self.asked()
        other = Run.objects.create(
            session_id=good.session,
            number=99,
            turn=9,
            cause="execute",
            started_by="owner",
            status="completed",
            ended_at=self.world.now,
        )
        current = session_of(UUID(good.session)).current_run
        PendingCall.objects.update(run=other)
        self._undoing(lambda: PendingCall.objects.update(run=current))
        return good

    # -- what breaks -----------------------------------------------------------------------------------------------

    def forget_agent(self, good: Attempt) -> Attempt:
        name = session_of(UUID(good.session)).agent_type
        Session.objects.update(agent_type="gone")
        self._undoing(lambda: Session.objects.update(agent_type=name))
        return good

    def break_registry(self, good: Attempt) -> Attempt:
        def unreachable(agent_type: str) -> None:
            raise ConnectionError(CANARY)

        before = getattr(self.settings, "HELIX_AGENTS", None)
        self.settings.HELIX_AGENTS = unreachable
        self._undoing(lambda: setattr(self.settings, "HELIX_AGENTS", before))
        return good

    def break_write(self, good: Attempt, failure: type[Exception]) -> Attempt:
        """The transaction fails after the answer was written and before what follows is."""

        def fail(*_: object) -> None:
            raise failure(CANARY)

        kept = submit.after_an_answer
        self.monkeypatch.setattr(submit, "after_an_answer", fail)
        self._undoing(lambda: self.monkeypatch.setattr(submit, "after_an_answer", kept))
        return good

    def database_away(self, good: Attempt) -> Attempt:
        return self.break_write(good, OperationalError)

    def use_up_rate(self, good: Attempt) -> Attempt:
        cache.clear()
        self.settings.HELIX_SUBMITS_PER_MINUTE = 1
        count_submit(OWNER, good.session, self.world.now)
        self._undoing(lambda: setattr(self.settings, "HELIX_SUBMITS_PER_MINUTE", 60))
        return good

    def limit(self, **limits: int) -> None:
        for name, value in limits.items():
            setattr(self.settings, name, value)

    def _undoing(self, act: Callable[[], Any]) -> None:
        self._undo = act

    def undo(self) -> None:
        self._undo()
        self._undo = _nothing


def _nothing() -> None:
    """Nothing was broken."""
