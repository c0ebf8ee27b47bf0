"""A peer without a network: the same server, asked as somebody else, through the operations behind its HTTP routes.

Every request is counted. A test may put answers in the way of the next ones (`meet`), keep the peer away (`is_down`,
or for starts of one agent `busy_with`), or hold what it says back until after it has acted (`lose_answers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helix import jsontext
from helix.agents import SubAgent
from helix.errors import HelixError
from helix.models import PendingCall, RemoteChild, RemoteDebt, Session
from helix.operations import perform
from helix.peers import Address, Exchange, PeerRefused, PeerUnreachable
from helix.principals import Principal
from helix.services.relay import relay_due
from tests.kit.world import World

URL = "https://peer.example/api"
DELEGATE = Principal(id="delegate")

Meeting = BaseException | dict[str, Any] | Callable[[], Any]


class Peers:
    """Whatever is asked of any address ends here."""

    MOST_ROUNDS = 200

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.addresses: list[Address] = []
        self.is_down = False
        self.lose_answers = False
        self.busy_with: set[str] = set()
        self._met: dict[str, list[Meeting]] = {}

    # -- what the test puts in the way -----------------------------------------------------------------------------

    def meet(self, path: str, *meetings: Meeting) -> None:
        """The next requests of this path meet these instead: raised, answered, or called and then answered."""
        self._met.setdefault(path, []).extend(meetings)

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body in self.requests if asked == path]

    # -- the exchange ----------------------------------------------------------------------------------------------

    def open(self, address: Address) -> Exchange:
        self.addresses.append(address)
        return self._exchange

    def _exchange(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.is_down or body.get("agentType") in self.busy_with:
            raise PeerUnreachable("ConnectError")
        self.requests.append((path, body))
        if waiting := self._met.get(path):
            meeting = waiting.pop(0)
            if isinstance(meeting, BaseException):
                raise meeting
            if isinstance(meeting, dict):
                return meeting
            meeting()
        answer = self._perform(path, jsontext.loads(jsontext.dumps(body)))
        if self.lose_answers:
            raise PeerUnreachable("ReadTimeout")
        return answer

    def _perform(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        named = None
        operation = path
        if path.startswith("sessions/"):
            _, named, operation = path.split("/")
        try:
            reply = perform(operation, principal=DELEGATE, session_id=named, body=body, door="http", now=self.world.now)
        except HelixError as refusal:
            raise PeerRefused(refusal.status, jsontext.loads(jsontext.dumps(refusal.as_body()))) from refusal
        answer: dict[str, Any] = jsontext.loads(jsontext.dumps(reply.body))
        return answer

    # -- work ------------------------------------------------------------------------------------------------------

    def relay(self) -> int:
        """Do what is due at peers at this instant."""
        self.world.commit()
        done = relay_due(self.world.clock)
        self.world.commit()
        return done

    def settle(self) -> None:
        """Both servers work until nothing moves any more, however often peers are read."""
        still = 0
        for _ in range(self.MOST_ROUNDS):
            before = self._rows()
            self.world.drain()
            self.relay()
            self.world.drain()
            still = still + 1 if self._rows() == before else 0
            if still >= 2 and not RemoteDebt.objects.filter(state="owed").exists():
                return
            self.world.wait(seconds=15)
        raise AssertionError("the two servers do not come to rest")

    def _rows(self) -> list[Any]:
        return [
            *Session.objects.order_by("pk").values_list("pk", "stream_sequence"),
            *RemoteDebt.objects.order_by("pk").values_list("pk", "state"),
            *RemoteChild.objects.order_by("pk").values_list("pk", "state"),
        ]


def remote(name: str, **options: Any) -> SubAgent:
    """A sub-agent of that name at the peer, whose answer is any object."""
    return SubAgent(name, remote=URL, **{"output_schema": {"type": "object"}, **options})


def refused(status: int, code: str, **fields: Any) -> PeerRefused:
    return PeerRefused(status, {"error": "No.", "code": code, "retryable": False, **fields})


def stand_in(root_id: Any) -> Session:
    """The newest stand-in of the tree."""
    found = Session.objects.filter(root_id=root_id, remote_url__isnull=False).order_by("-created_at").first()
    assert found is not None, "no stand-in"
    return found


def child_of(root_id: Any) -> RemoteChild:
    return RemoteChild.objects.get(session=stand_in(root_id))


def at_peer() -> list[Session]:
    """The children that really run, oldest first."""
    return list(Session.objects.filter(owner=DELEGATE.id, root_id__isnull=False, parent=None).order_by("created_at"))


def mirror(root_id: Any, tool_name: str) -> PendingCall:
    found = PendingCall.objects.filter(root_id=root_id, tool_name=tool_name).order_by("-seq").first()
    assert found is not None, f"no mirror of {tool_name}"
    return found
