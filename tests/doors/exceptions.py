"""Where a door cannot say what a scenario is about, and where it answers in another way, each with its reason.

`test_every_door` holds both tables to the truth: an exemption that could be said, or a difference that is none, fails.
"""

from __future__ import annotations

from tests.doors.attempts import Outcome

_FORM = "the page's form has fields of its own, and they hold what the page put there"
_OPERATOR = "an operator works here, on a call that is stored"
_PART = "a part of the page has one state and one value"
_NO_BODY = "a Python caller brings values, not a body"
_NO_HOOK = "a Python caller brings a principal; hooks and tokens are asked where requests come in"
_RAW = ("other content type", "no JSON", "a list", "too deep", "U+0000")
_NO_BUTTON = (
    *_RAW,
    "unknown kind",
    "approved is a text",
    "invalid edit",
    "edit of a denial",
    "another run is named",
)

# door -> reason -> scenarios that it cannot put into words
EXEMPT: dict[str, dict[str, tuple[str, ...]]] = {
    "websocket": {"a frame has no content type": ("other content type",)},
    "chat": {
        _PART: ("unknown kind", "result and error"),
        "a page approves or denies what it was shown; it neither edits nor names digests": (
            "other arguments were shown",
            "invalid edit",
            "edit of a denial",
        ),
        "a page names its message, and the message its run": ("another run is named",),
    },
    "inbox page": {
        _FORM: _NO_BUTTON,
    },
    "approvals.services": {
        _NO_BODY: _NO_BUTTON,
        _NO_HOOK: ("nobody", "the hook refuses"),
    },
    "services.submit": {
        _NO_BODY: _RAW,
        _NO_HOOK: ("nobody", "the hook refuses", "token for reading"),
    },
    "admin form": {
        _OPERATOR: ("no such call", "no such session", "call id too long"),
        "only operators get in": (
            "foreign",
            "nobody",
            "the hook refuses",
            "token for reading",
            "token of elsewhere",
        ),
        "one reason is said and nothing else": (
            "unknown kind",
            "result and error",
            "another run is named",
        ),
    },
}
EXEMPT["helix_force_fail"] = EXEMPT["admin form"]

_NOISE = "what does not fit is no answer: a page posts all that it shows, every time"
_ECHO = "a page repeats the answers of its message for as long as it shows them"
_CLOSED = "a chat is told of closed calls as of what cannot be resumed (R-356, R-357)"
_CHAT_FIRST = "a chat is looked for before the answers in it"
_NOTHING = Outcome(200, "nothing new")
_NOT_STORED = Outcome(409, "state_not_resumable", "answer_not_stored")
_STOPPED = Outcome(409, "state_not_resumable", "run_stopped")
_CLOSED_SOCKET = "the socket itself is refused: a close has a code and a reason, and no cause (R-367)"
_NO_RATE = "the allowance is of clients; whoever operates or calls from Python is the house (R-387)"

# (door, scenario) -> how it answers instead, and why
DIFFERS: dict[tuple[str, str], tuple[Outcome, str]] = {
    ("chat", "expired"): (_NOTHING, _ECHO),
    ("chat", "rewound"): (_NOT_STORED, _CLOSED),
    ("chat", "run failed"): (_NOT_STORED, _CLOSED),
    ("chat", "run stopped"): (_STOPPED, _CLOSED),
    ("chat", "stop recorded"): (_STOPPED, _CLOSED),
    ("chat", "foreign"): (Outcome(404, "NOT_FOUND"), _CHAT_FIRST),
    ("chat", "no such session"): (Outcome(404, "NOT_FOUND"), _CHAT_FIRST),
    ("chat", "call id too long"): (Outcome(404, "unknown_tool_call", reason="never_existed"), "ids of parts are noise"),
    ("chat", "neither result nor error"): (Outcome(200, "accepted"), "a handler without a value has failed (R-072)"),
    ("chat", "a verdict for a client call"): (_NOTHING, _NOISE),
    ("chat", "a result for an approval"): (_NOTHING, _NOISE),
    ("chat", "an error gives an approval up"): (_NOTHING, _NOISE),
    ("chat", "another approval id"): (_NOTHING, _NOISE),
    ("chat", "approved is a text"): (_NOTHING, _NOISE),
    ("websocket", "foreign"): (Outcome(404, "NOT_FOUND"), _CLOSED_SOCKET),
    ("websocket", "no such session"): (Outcome(404, "NOT_FOUND"), _CLOSED_SOCKET),
    ("websocket", "the hook refuses"): (Outcome(403, "house_closed"), _CLOSED_SOCKET),
    ("websocket", "token of elsewhere"): (Outcome(403, "transport_forbidden"), _CLOSED_SOCKET),
    ("inbox page", "nobody"): (Outcome(302, "/login/"), "a person without a login is sent to it"),
    ("services.submit", "token of elsewhere"): (
        Outcome(404, "unknown_tool_call"),
        "out of reach looks missing (R-398)",
    ),
    ("services.submit", "body too large"): (
        Outcome(413, "validation_payload_too_large", "tool_result"),
        "there is no body; its result is bounded by itself",
    ),
    ("services.submit", "too often"): (Outcome(200, "accepted"), _NO_RATE),
    ("admin form", "too often"): (Outcome(200, "accepted"), _NO_RATE),
    ("helix_force_fail", "too often"): (Outcome(200, "accepted"), _NO_RATE),
}
