"""What an outsider does, done to Helix and to the reference at once; the two must answer alike."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from helix.models import Checkpoint, PendingCall
from helix.services import retry, rewind
from helix.statuses import StopKind
from tests.kit.world import OPERATOR, OWNER, World, said, sweeping_since
from tests.stateful import verbs
from tests.stateful.observed import agree, answer_of, live_messages, run_names, told, was_taken_back, with_names
from tests.stateful.plans import FITTING, Verb
from tests.stateful.reference import Reference


class Outside:
    """One tree in two worlds. ``is_sound``: the two were compared since the last change."""

    world: World
    ref: Reference
    root_id: UUID
    issued: int
    is_sound: bool

    def _fresh(self) -> str:
        self.issued += 1
        return str(self.issued)

    def _pass(self, milliseconds: int) -> None:
        self.is_sound = False
        self.world.tick(milliseconds=milliseconds)
        self.ref.now += milliseconds

    def perform(self, verb: Verb) -> None:
        """Do one verb to both and compare what they answer."""
        self._pass(1)
        if verb.name in ("tick", "wait", "outage", "sweep"):
            self._let_time_pass(verb)
        elif verb.name == "submit":
            self._submit(verb)
        else:
            done, wanted = getattr(self, f"_{verb.name}")(verb)
            assert done == wanted, (verb, done, wanted)
        # A commit of one's own has run its hooks when the verb returns.
        self.world.commit()

    def _let_time_pass(self, verb: Verb) -> None:
        if verb.name != "sweep":
            self._pass(verb.pick)
        if verb.name == "wait":
            sweeping_since(self.world.now)
            self.ref.swept_at = self.ref.now
        if verb.name != "tick":
            self.world.sweep()
            verbs.sweep(self.ref)

    def _submit(self, verb: Verb) -> None:
        call_id = self._call_to_answer(verb.pick)
        value = f"value {self._fresh()}"
        row = PendingCall.objects.filter(root_id=self.root_id, tool_call_id=call_id).first()
        word = verb.word if verb.word != FITTING else "approve" if row and row.approval_id else "result"
        if verbs.ANSWERS[word][0]:
            approval_id = (row and row.approval_id) or "none"
            body = {"kind": "approval-response", "approvalId": approval_id, "approved": word == "approve"}
        else:
            body = {word: value}
        principal = OPERATOR if "kind" in body else OWNER
        wanted = told(lambda: verbs.submit(self.ref, call_id, word, value))
        answer = told(lambda: self.world.submit(self.root_id, call_id, principal=principal, **body))
        if isinstance(answer, dict):
            answer = with_names(answer, run_names(self.root_id))
        assert agree(answer, wanted), (verb, call_id, answer, wanted)

    def _call_to_answer(self, pick: int) -> str:
        """Mostly one that waits, now and then any other, or one that nobody ever asked for."""
        pending = [one.id for one in self.ref.pending()]
        others = [one.id for one in self.ref.calls.values() if one.is_external or pick == 0]
        known = pending if pending and pick % 4 else [*others, "nobody"]
        return known[-1 - pick // 4 % len(known)]

    def _entered(self, outcome: Any) -> str:
        return run_names(self.root_id)[UUID(outcome.run_id)]

    def _send(self, verb: Verb) -> tuple[Any, Any]:
        text, abandon = f"message {self._fresh()}", verb.word == "abandon"
        done = told(lambda: self.world.send(self.root_id, text, abandon_pending=abandon), self._entered)
        return done, told(lambda: verbs.send(self.ref, text, abandon=abandon).name)

    def _resume(self, verb: Verb) -> tuple[Any, Any]:
        done = told(lambda: self.world.resume(self.root_id), self._entered)
        return done, told(lambda: verbs.resume(self.ref).name)

    def _retry(self, verb: Verb) -> tuple[Any, Any]:
        text = f"message {self._fresh()}" if verb.word else None

        def act() -> Any:
            return retry.retry_run(
                principal=OWNER,
                session_id=str(self.root_id),
                now=self.world.now,
                message=said(text) if text else None,
            )

        return told(act, self._entered), told(lambda: verbs.retry(self.ref, text).name)

    def _rewind(self, verb: Verb) -> tuple[Any, Any]:
        points = list(Checkpoint.objects.filter(session_id=self.root_id).order_by("-id"))
        if not points:
            return None, None
        point = points[verb.pick % len(points)]
        length = live_messages(self.root_id).filter(position__lte=point.message_position).count()
        open_then = {one["toolCallId"]: answer_of(one) for one in point.calls}

        def act() -> Any:
            return rewind.rewind(
                principal=OWNER, session_id=str(self.root_id), checkpoint_id=point.checkpoint_id, now=self.world.now
            )

        gone = was_taken_back(point)
        done = told(act, self._entered)
        return done, told(lambda: verbs.rewind(self.ref, length, open_then, is_gone=gone).name)

    def _stop(self, verb: Verb) -> tuple[Any, Any]:
        done = told(lambda: self.world.stop(self.root_id, StopKind(verb.word)).outcome)
        return done, told(lambda: verbs.stop(self.ref, verb.word))
