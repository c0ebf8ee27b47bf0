"""Everything that may come of a submit, as one table: how it comes about, what the contract says, and what mends it.

The scenarios know no door. A scenario without ``corrected`` is over for good, or was no refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from helix.models import CallTombstone, PendingCall
from tests.doors.attempts import FLAVOURS, Attempt, Flavour, Outcome
from tests.doors.cast import HOUSE_RULE
from tests.doors.scenes import LIMIT, Scene
from tests.doors.wire import Door

Prepare = Callable[[Scene], Attempt]
CLIENTS: tuple[Flavour, ...] = ("result", "error")
VERDICT: tuple[Flavour, ...] = ("verdict",)
RESULT: tuple[Flavour, ...] = ("result",)
ERROR: tuple[Flavour, ...] = ("error",)


@dataclass(frozen=True)
class Scenario:
    """flavours: the kinds of answers that it is about.  corrected: from the refused attempt, one that is accepted."""

    name: str
    outcome: Outcome
    prepare: Prepare
    corrected: Callable[[Scene, Attempt], Attempt] | None = None
    flavours: tuple[Flavour, ...] = FLAVOURS
    settles_stop: bool = False

    def sent_through(self, door: type[Door]) -> tuple[Flavour, ...]:
        """The kinds of answers that are sent there."""
        chosen = door.shared if self.flavours == FLAVOURS else door.flavours
        return tuple(one for one in self.flavours if one in chosen and one in door.flavours)


def again(scene: Scene, refused: Attempt) -> Attempt:
    """The same once more, with what was broken mended and by somebody who may."""
    scene.undo()
    return refused.but(who="owner")


def good(scene: Scene, refused: Attempt) -> Attempt:
    """The answer that nothing is wrong with."""
    row = PendingCall.objects.get(root__owner="owner", tool_call_id="c1")
    return scene.good(row.root_id, "c1")


def repeated(scene: Scene) -> Attempt:
    attempt = scene.asked()
    scene.submit(attempt)
    return attempt


def consumed(scene: Scene) -> Attempt:
    attempt = repeated(scene)
    scene.world.drain()
    return attempt


def expired(scene: Scene) -> Attempt:
    attempt = consumed(scene)
    scene.world.now = CallTombstone.objects.get().expires_at
    return attempt


def held(scene: Scene) -> Attempt:
    return scene.asked(ids=("c0", "c1"), max_open_calls=1)


def exposed(scene: Scene, refused: Attempt) -> Attempt:
    row = PendingCall.objects.get(tool_call_id="c0")
    scene.submit(scene.good(row.root_id, "c0"))
    return scene.good(row.root_id, "c1")


def stopped(scene: Scene) -> Attempt:
    attempt = scene.asked()
    scene.world.stop(PendingCall.objects.get().root_id)
    return attempt


def vanished(scene: Scene) -> Attempt:
    """The tool of the call is not declared any more (R-184)."""
    attempt = scene.asked()
    PendingCall.objects.update(tool_name="gone")
    return attempt


def denied(scene: Scene, refused: Attempt) -> Attempt:
    return refused.saying(approved=False)


def nobody_decides(scene: Scene) -> Attempt:
    attempt = scene.asked()
    scene.settings.HELIX_APPROVAL_POLICY = "tests.doors.cast.NobodyDecides"
    return attempt


def decided_by_policy(scene: Scene, refused: Attempt) -> Attempt:
    scene.settings.HELIX_APPROVAL_POLICY = "helix.policy.OwnerDecides"
    return refused


def own_request(scene: Scene) -> Attempt:
    return scene.asked("wire_money")


def by_another(scene: Scene, refused: Attempt) -> Attempt:
    return refused.but(who="operator")


def too_large(scene: Scene) -> Attempt:
    scene.limit(HELIX_MAX_RESULT_BYTES=LIMIT)
    return scene.asked().saying(result={"city": "x" * LIMIT})


def body_too_large(scene: Scene) -> Attempt:
    scene.limit(HELIX_MAX_RESULT_BYTES=LIMIT, HELIX_MAX_CHAT_BODY_BYTES=4 * LIMIT)
    return scene.asked().saying(**{_longest(scene): "x" * 4 * LIMIT})


def _longest(scene: Scene) -> str:
    names: dict[Flavour, str] = {"result": "result", "error": "error", "verdict": "reason"}
    return names[scene.flavour]


def by(who: str | None) -> Prepare:
    return lambda scene: scene.asked().but(who=who)


def raw(text: str) -> Prepare:
    return lambda scene: scene.asked().but(raw=text)


def saying(**fields: object) -> Prepare:
    return lambda scene: scene.asked().saying(**fields)


MALFORMED = Outcome(400, "validation_error")
NOT_YOURS = Outcome(404, "unknown_tool_call")


def gone(reason: str) -> Outcome:
    return Outcome(404, "unknown_tool_call", reason=reason)


def verdict_for_a_client_call(scene: Scene) -> Attempt:
    return scene.asked("locate")


def answer_for_an_approval(scene: Scene) -> Attempt:
    return scene.asked("pay")


def located(scene: Scene, refused: Attempt) -> Attempt:
    return refused.but(body={"result": {"city": "Bern"}})


def decided(scene: Scene, refused: Attempt) -> Attempt:
    """The error alone, which gives an approval up (R-166)."""
    return refused.but(body={"error": "nobody is there"})


SCENARIOS = (
    # -- 2xx: R-335 to R-337 -------------------------------------------------------------------------------------------
    Scenario("accepted", Outcome(200, "accepted"), lambda scene: scene.asked()),
    Scenario("a stored answer is repeated", Outcome(200, "already_completed"), repeated),
    Scenario("a consumed answer is repeated", Outcome(200, "already_completed"), consumed),
    Scenario(
        "a timeout was consumed",
        Outcome(200, "late_answer_after_timeout"),
        lambda scene: scene.timed_out(consumed=True),
    ),
    Scenario(
        "a timeout is replaced",
        Outcome(200, "accepted"),
        lambda scene: scene.timed_out(consumed=False),
        flavours=CLIENTS,
    ),
    Scenario(
        "an approval expired",
        Outcome(200, "late_answer_after_timeout"),
        lambda scene: scene.timed_out(consumed=False),
        flavours=VERDICT,
    ),
    Scenario("an error gives an approval up", Outcome(200, "accepted"), answer_for_an_approval, flavours=ERROR),
    # -- 404, R-075 ------------------------------------------------------------------------------------
    Scenario("no such call", gone("never_existed"), lambda scene: scene.asked().but(call="c9"), good),
    Scenario("expired", gone("expired"), expired),
    Scenario("rewound", gone("rewound"), lambda scene: scene.rewound()),
    Scenario("run failed", gone("run_failed"), lambda scene: scene.failed()),
    Scenario("run stopped", gone("run_stopped"), stopped),
    Scenario("stop recorded", gone("run_stopped"), lambda scene: scene.stop_recorded(), settles_stop=True),
    Scenario("owner lost", gone("owner_not_continuable"), lambda scene: scene.owner_lost()),
    Scenario("foreign", NOT_YOURS, by("stranger"), again),
    Scenario("no such session", NOT_YOURS, lambda scene: scene.asked().but(session=str(uuid4())), good),
    # -- steps 1 to 5 of R-323 -----------------------------------------------------------------------------------------
    Scenario("nobody", Outcome(401, "transport_unauthorized"), by(None), again),
    Scenario("the hook refuses", Outcome(403, HOUSE_RULE.code, "sunday"), by("barred"), again),
    Scenario("token for reading", Outcome(403, "transport_forbidden", "not_permitted"), by("reader"), again),
    Scenario("token of elsewhere", Outcome(403, "transport_forbidden", "session_mismatch"), by("elsewhere"), again),
    Scenario(
        "body too large", Outcome(413, "validation_payload_too_large", "request_body"), body_too_large, good, RESULT
    ),
    Scenario(
        "other content type",
        Outcome(415, "validation_error", "content_type"),
        lambda scene: scene.asked().but(content_type="text/plain"),
        good,
        VERDICT,
    ),
    Scenario("no JSON", MALFORMED, raw("{"), good, VERDICT),
    Scenario("a list", MALFORMED, raw("[]"), good, VERDICT),
    Scenario("too deep", MALFORMED, raw('{"a":' + "[" * 70 + "]" * 70 + "}"), good, VERDICT),
    Scenario("U+0000", MALFORMED, raw('{"a":"\\u0000"}'), good, VERDICT),
    Scenario("unknown kind", MALFORMED, saying(kind="shout"), good),
    Scenario("result and error", MALFORMED, saying(result=1, error="x"), good, CLIENTS),
    Scenario("neither result nor error", MALFORMED, lambda scene: scene.asked().but(body={}), good, CLIENTS),
    Scenario("approved is a text", MALFORMED, saying(approved="yes"), good, VERDICT),
    Scenario("reason too long", MALFORMED, saying(reason="é" * 4097), good, VERDICT),
    Scenario("error too long", MALFORMED, saying(error="é" * 4097), good, ERROR),
    Scenario("call id too long", MALFORMED, lambda scene: scene.asked().but(call="c" * 257), good),
    Scenario("too often", Outcome(429, "rate_limited"), lambda scene: scene.use_up_rate(scene.asked()), again),
    Scenario("result too large", Outcome(413, "validation_payload_too_large", "tool_result"), too_large, good, RESULT),
    # -- steps 10 to 13 ------------------------------------------------------------------------------------------------
    Scenario("not exposed", Outcome(409, "state_call_not_exposed"), held, exposed),
    Scenario(
        "a verdict for a client call",
        Outcome(400, "validation_error", "kind"),
        verdict_for_a_client_call,
        located,
        VERDICT,
    ),
    Scenario(
        "a result for an approval", Outcome(400, "validation_error", "kind"), answer_for_an_approval, decided, RESULT
    ),
    Scenario(
        "another approval id",
        Outcome(400, "validation_error", "approval_id"),
        saying(approvalId="another::c1"),
        good,
        VERDICT,
    ),
    Scenario(
        "not permitted",
        Outcome(403, "transport_forbidden", "not_permitted"),
        nobody_decides,
        decided_by_policy,
        VERDICT,
    ),
    Scenario("own request", Outcome(403, "transport_forbidden", "self_approval"), own_request, by_another, VERDICT),
    Scenario(
        "other arguments were shown",
        Outcome(409, "state_arguments_changed"),
        saying(argumentsDigest="0" * 64),
        good,
        VERDICT,
    ),
    Scenario(
        "agent gone",
        Outcome(404, "framework_agent_not_found"),
        lambda scene: scene.forget_agent(scene.asked()),
        again,
    ),
    Scenario("tool gone", Outcome(404, "framework_agent_not_found"), vanished, denied, VERDICT),
    Scenario(
        "registry away",
        Outcome(503, "framework_agent_resolution_failed"),
        lambda scene: scene.break_registry(scene.asked()),
        again,
    ),
    Scenario("invalid result", Outcome(400, "INVALID_RESULT"), saying(result={"city": 7}), good, RESULT),
    Scenario(
        "invalid edit",
        Outcome(400, "validation_error", "edited_arguments"),
        saying(editedArguments={"cents": "five"}),
        good,
        VERDICT,
    ),
    Scenario(
        "edit of a denial",
        Outcome(400, "validation_error", "edited_arguments"),
        saying(editedArguments={"cents": 6}, approved=False),
        good,
        VERDICT,
    ),
    Scenario("run replaced", Outcome(409, "state_run_superseded"), lambda scene: scene.replaced(), again),
    Scenario("another run is named", Outcome(409, "state_run_superseded"), saying(runId=str(uuid4())), good),
    # -- what nobody expected: R-349, R-350 ----------------------------------------------------------------------------
    Scenario("database away", Outcome(503, "transport_error"), lambda s: s.database_away(s.asked()), again),
    Scenario("unexpected", Outcome(500, "transport_error"), lambda s: s.break_write(s.asked(), RuntimeError), again),
)
NAMES = tuple(scenario.name for scenario in SCENARIOS)
