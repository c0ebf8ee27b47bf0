"""One conversation as its client lives it: it starts, reads the stream, answers, repeats itself, stops, goes away."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from helix.statuses import EventType
from tests.chaos.doors import Answer, Doors
from tests.chaos.plans import Given, Plan, answers

EVENTS_PAGE = 1000


@dataclass(frozen=True)
class Submit:
    """What was given for a call and what came of it."""

    call_id: str
    given: Given
    answer: Answer

    @property
    def was_accepted(self) -> bool:
        return self.answer.body.get("status") == "accepted"


@dataclass
class Conversation:
    """``heard``: the stream as it was read, by number. ``play`` returns when the client is done with it."""

    plan: Plan
    doors: Doors
    hands: ThreadPoolExecutor
    heard: dict[int, dict[str, Any]] = field(default_factory=dict)
    submits: list[Submit] = field(default_factory=list)
    root_id: str = ""
    stops: int = 0
    has_left: bool = False
    _shown: int = 0
    _at_hand: list[Future[None]] = field(default_factory=list)

    def play(self) -> None:
        for number, text in enumerate(self.plan.turns):
            self._say(number, text)
            self._follow()
            for done in self._at_hand:
                done.result()
            if self.has_left:
                return

    # -- what it says ----------------------------------------------------------------------------------------------

    def _say(self, number: int, text: str) -> None:
        chance = self.plan.draw("say", number)
        name = self.plan.name
        if number == 0:
            body = {"agentType": self.plan.agent, "sessionId": name, "message": text}
            self.doors.post("start", body, chance)
        else:
            body = {"message": text, "clientMessageId": f"message {number}"}
            self.doors.post(f"sessions/{name}/messages", body, chance)

    def _submit(self, call_id: str, given: Given, number: int) -> None:
        body = {"sessionId": self.plan.name, "toolCallId": call_id, **given.fields}
        answer = self.doors.post("submit-tool-result", body, self.plan.draw(call_id, number))
        self.submits.append(Submit(call_id, given, answer))

    def _stop(self, verb: str) -> None:
        self.doors.post(verb, {"sessionId": self.plan.name, "reason": "enough"}, self.plan.draw(verb))

    def _give_up(self) -> None:
        body = {"message": "[]", "abandonPending": True, "clientMessageId": "never mind"}
        self.doors.post(f"sessions/{self.plan.name}/messages", body, self.plan.draw("abandon"))

    # -- what it reads ---------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> int:
        return max(self.heard, default=0)

    def _follow(self) -> None:
        for event in self.doors.stream(self.plan.name, lambda: self.cursor, self.plan.draw("read", self.cursor)):
            self.root_id = event["sessionId"]
            self.heard[event["sequence"]] = event
            asks_client = event["type"] == EventType.TOOL_START and event["kind"] == "client"
            if asks_client or event["type"] == EventType.TOOL_APPROVAL_REQUEST:
                self._react({"kind": "client" if asks_client else "approval", **event})
                if self.has_left:
                    return

    def _react(self, shown: dict[str, Any]) -> None:
        self._shown += 1
        fate = self.plan.fate if self._shown == self.plan.moment else "stays"
        if fate == "leaves":
            self.has_left = True
            return
        if fate in ("interrupts", "aborts"):
            self.stops += 1
            self._do(self._stop, fate.removesuffix("s"))
        elif fate == "abandons":
            self._do(self._give_up)
        call_id = shown["toolCallId"]
        chance = self.plan.draw("answer", self._shown)
        for number, given in enumerate(answers(chance, shown, may_be_silent=shown["toolName"] == "whisper")):
            self._do(self._submit, call_id, given, number)

    def _do(self, act: Any, *given: object) -> None:
        self._at_hand.append(self.hands.submit(act, *given))

    def read_from(self, after: int) -> dict[int, dict[str, Any]]:
        """The stream as a client reads it that comes later."""
        read: dict[int, dict[str, Any]] = {}
        while True:
            page = self.doors.get(
                f"sessions/{self.plan.name}/events", self.plan.draw("replay", after), after=after, limit=EVENTS_PAGE
            ).body
            read |= {event["sequence"]: event for event in page["events"]}
            if page["nextAfter"] >= page["head"]:
                return read
            after = page["nextAfter"]
