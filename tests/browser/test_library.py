"""The browser library against a scripted server that holds, drops, repeats and reorders (I-58 to I-61).

Each test is a few lines of the library's own language over `scripted.js`; nothing waits for a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Site

HARNESS = (Path(__file__).parent / "scripted.js").read_text()
Play = Callable[[str], Any]


@pytest.fixture(scope="module")
def play(browser: Browser, site: Site) -> Iterator[Play]:
    """``play("const it = await world(); …; return …")``: the value that the script returns."""
    page = browser.new_page(base_url=site.address)
    page.goto("/login/")

    def run(script: str) -> Any:
        return page.evaluate(f"async () => {{ {HARNESS}\n{script} }}")

    yield run
    page.close()


def test_a_live_call_runs_its_handler_once_and_its_value_is_the_result(play: Play) -> None:
    """I-02, I-44, R-696: the same frame again, and the same call from a replay, run nothing."""
    assert play("""
        const it = await world({ tools: { work: async ({ n }) => ({ twice: 2 * n }) } });
        await it.toolStart(11);
        await it.toolStart(11);
        await it.toolStart(12);
        return [it.ran, it.sent("submit").map(({ body }) => [body.toolCallId, body.result])];
    """) == [[{"name": "work", "args": {"n": 1}, "id": "c1"}], [["c1", {"twice": 2}]]]


@pytest.mark.parametrize(
    ("start", "claims"),
    [
        ("{ live: false }", 0),
        ("{ kind: 'approval' }", 0),
        ("{ kind: 'server' }", 0),
        ("{ name: 'toString' }", 0),
        ("{ name: 'other' }", 0),
        ("{}", 1),
    ],
)
def test_only_a_live_client_call_with_a_handler_is_claimed(play: Play, start: str, claims: int) -> None:
    """I-07, I-17, I-20, I-21, R-704; the last row is the control (I-61)."""
    assert play(f"""
        const it = await world({{ tools: {{ work: () => 1 }} }});
        await it.toolStart(11, {start});
        return [it.sent("claim").length, it.ran.length];
    """) == [claims, claims]


@pytest.mark.parametrize("answer", ["[200, {claimed: false}]", "[404, {status: 'unknown_tool_call'}]", "[0, null]"])
def test_without_a_won_claim_nothing_runs(play: Play, answer: str) -> None:
    """I-20, I-45."""
    assert play(f"""
        const it = await world({{ tools: {{ work: () => 1 }} }});
        it.routes.claim = [() => {answer}];
        await it.toolStart(11);
        return [it.ran.length, it.sent("claim").length, it.sent("submit").length];
    """) == [0, 1, 0]


def test_opening_a_paused_conversation_runs_nothing_until_it_is_asked_to(play: Play) -> None:
    """I-17, I-18, I-19, I-47."""
    assert play("""
        const it = await world({ tools: { work: () => "done" } });
        it.snapshot = { ...it.snapshot, status: "awaiting_client_tool", pendingTools: [it.pending()] };
        await it.talk.retry();
        const before = [it.ran.length, it.requests.filter(({ method }) => method !== "GET").length];
        await it.talk.runPending("c1");
        return [before, it.ran.length, it.sent("submit").map(({ body }) => [body.result, body.runId])];
    """) == [[0, 0], 1, [["done", "r"]]]


def test_falsy_results_pass_unchanged(play: Play) -> None:
    """R-700."""
    assert play("""
        const values = [null, 0, "", false];
        const it = await world({ tools: { work: ({ n }) => values[n] } });
        for (const n of values.keys()) await it.toolStart(11 + n, { id: `c${n}`, text: `{"n":${n}}` });
        return it.sent("submit").map(({ body }) => body.result);
    """) == [None, 0, "", False]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("() => undefined", "work returned nothing for call c1."),
        ("() => { throw new Error('no camera') }", "no camera"),
        ("async () => { throw new Error('no camera') }", "no camera"),
        ("() => ({ f() {} })", '"f" has no JSON form.'),
        ("() => 10n", "BigInt"),
        ("() => NaN", "no JSON form"),
        ("() => { const loop = {}; loop.loop = loop; return loop }", "circular"),
    ],
)
def test_a_failing_handler_is_submitted_as_an_error_and_reported_once(play: Play, body: str, said: str) -> None:
    """I-05, I-06, R-699, R-701, R-702."""
    errors, reports = play(f"""
        const it = await world({{ tools: {{ work: {body} }} }});
        await it.toolStart(11);
        return [it.sent("submit").map(({{ body }}) => [body.error, "result" in body]), it.reports];
    """)
    assert len(errors) == 1
    assert said in errors[0][0]
    assert errors[0][1] is False
    assert [(one["phase"], one["toolName"], one["toolCallId"]) for one in reports] == [("handler", "work", "c1")]


def test_arguments_that_are_no_json_reach_no_handler(play: Play) -> None:
    """I-08."""
    assert play("""
        const it = await world({ tools: { work: () => 1 } });
        await it.toolStart(11, { text: "{broken" });
        return [it.ran.length, it.reports.map(({ phase }) => phase), "error" in it.sent("submit")[0].body];
    """) == [0, ["handler"], True]


def test_a_callback_that_raises_is_contained(play: Play) -> None:
    """R-702."""
    assert (
        play("""
        const onClientToolError = () => { throw new Error("callback") };
        const it = await world({ tools: { work: () => undefined }, onClientToolError });
        await it.toolStart(11);
        return it.sent("submit").length;
    """)
        == 1
    )


@pytest.mark.parametrize(
    "end",
    [
        "await it.event(12, { type: 'call_answered', toolCallId: 'c1' })",
        "await it.event(12, { type: 'stop_requested' })",
        "it.routes.interrupt = [[200, {}]]; await it.talk.stop()",
        "it.talk.close()",
    ],
)
def test_what_an_aborted_handler_returns_is_not_submitted(play: Play, end: str) -> None:
    """R-703; the control is any test above."""
    assert play(f"""
        let signal;
        const gate = {{}};
        const opened = new Promise((resolve) => (gate.open = resolve));
        const it = await world({{ tools: {{ work: async (args, {{ abortSignal }}) => {{
            signal = abortSignal;
            await opened;
            return 1;
        }} }} }});
        await it.toolStart(11);
        const before = signal.aborted;
        {end};
        gate.open();
        await it.settle();
        return [before, signal.aborted, it.sent("submit").length];
    """) == [False, True, 0]


def test_a_replaced_table_is_read_at_the_next_call(play: Play) -> None:
    """I-04: replacing it touches nothing else."""
    assert play("""
        const it = await world({ tools: { work: () => "old" } });
        const before = it.requests.length;
        it.talk.setTools({ work: () => "new" });
        const touched = it.requests.length - before;
        await it.toolStart(11);
        return [touched, it.sent("submit")[0].body.result];
    """) == [0, "new"]


# -- delivery ----------------------------------------------------------------------------------------------------------

PAUSED = """
    const it = await world({ snapshot: { status: "awaiting_client_tool", streamStatus: "paused" } });
    it.snapshot = { ...it.snapshot, pendingTools: [it.pending()] };
    await it.talk.retry();
    const queue = () => it.talk.snapshot.pendingTools.map((call) => [call.delivering, call.undelivered]);
    let failure = null;
    const submit = () => it.talk.submitToolResult("c1", 1).catch((error) => (failure = error.code));
"""


def test_an_item_leaves_at_the_acknowledgement_and_not_before(play: Play) -> None:
    """I-26."""
    assert play(f"""{PAUSED}
        const gate = it.gate();
        it.routes.submit = [async () => (await gate.opened, [200, {{ status: "accepted", continuation: {{}} }}])];
        submit();
        await it.settle();
        const held = queue();
        it.snapshot = {{ ...it.snapshot, pendingTools: [] }};
        gate.open();
        await it.settle();
        return [held, queue()];
    """) == [[[True, False]], []]


def test_a_snapshot_that_was_asked_for_before_the_acknowledgement_brings_nothing_back(play: Play) -> None:
    """I-26: once it has left, it has left."""
    assert play(f"""{PAUSED}
        const gate = it.gate();
        const old = it.snapshot;
        it.routes.snapshot = [async () => (await gate.opened, [200, old])];
        it.talk.retry();
        await it.settle();
        it.snapshot = {{ ...old, pendingTools: [] }};
        submit();
        await it.settle();
        const lengths = [queue().length];
        it.talk.subscribe(() => lengths.push(queue().length));
        gate.open();
        await it.settle();
        return [lengths.length > 1, [...new Set(lengths)]];
    """) == [True, [0]]


@pytest.mark.parametrize(
    "answer",
    [
        "[200, { status: 'accepted', continuation: { kind: 'new_run' } }]",
        "[200, { status: 'accepted', continuation: { kind: 'consumed' } }]",
        "[200, { status: 'accepted', more: 1, continuation: { kind: 'new_run', relation: 'next', runId: 'r9' } }]",
        "[200, { status: 'already_completed', continuation: { kind: 'consumed' } }]",
        "[200, { status: 'late_answer_after_timeout' }]",
        "[404, { status: 'unknown_tool_call', reason: 'run_stopped' }]",
    ],
)
def test_what_is_over_leaves_without_an_error(play: Play, answer: str) -> None:
    """R-705, I-28; `accepted` with `consumed` is legal (R-077), and unknown fields are ignored (R-136)."""
    assert play(f"""{PAUSED}
        it.routes.submit = [{answer}];
        it.routes.snapshot = () => [200, {{ ...it.snapshot, pendingTools: [] }}];
        await submit();
        return [failure, queue(), it.reports.length, it.waits.length];
    """) == [None, [], 0, 0]


@pytest.mark.parametrize(
    "answer",
    ["[0, null]", "[503, { code: 'transport_error' }]", "[409, { code: 'state_concurrency_conflict' }]"],
)
def test_what_may_pass_is_sent_again_unchanged_five_times_at_most(play: Play, answer: str) -> None:
    """I-27, I-48: the resends used up, the result is kept for a deliberate "send again"."""
    waits, sent, same, held, reports, after = play(f"""{PAUSED}
        it.routes.submit = () => {answer};
        submit();
        await it.settle();
        const waits = [];
        while (it.waits.length) waits.push(...(await it.fire()));
        const sent = it.sent("submit");
        const same = new Set(sent.map(({{ body }}) => JSON.stringify(body))).size;
        const held = queue();
        it.routes.submit = undefined;
        it.routes.snapshot = () => [200, {{ ...it.snapshot, pendingTools: [] }}];
        await it.talk.sendAgain("c1");
        return [waits, sent.length, same, held, it.reports.map(({{ phase }}) => phase), queue()];
    """)
    assert waits == [500, 1000, 2000, 4000, 8000]
    assert (sent, same, held, reports, after) == (6, 1, [[False, True]], ["submit"], [])


def test_too_many_waits_as_long_as_the_server_says(play: Play) -> None:
    assert play(f"""{PAUSED}
        it.routes.submit = [[429, {{ code: "rate_limited" }}, 7000]];
        submit();
        await it.settle();
        const waits = await it.fire();
        return [waits, it.sent("submit").length, failure];
    """) == [[7000], 2, None]


@pytest.mark.parametrize(("still_open", "sent"), [("true", 2), ("false", 1)])
def test_an_unexpected_failure_is_followed_by_a_look_at_the_rows(play: Play, still_open: str, sent: int) -> None:
    assert (
        play(f"""{PAUSED}
        it.routes.submit = [[500, {{ code: "transport_error" }}]];
        if (!{still_open}) it.routes.snapshot = () => [200, {{ ...it.snapshot, pendingTools: [] }}];
        submit();
        await it.settle();
        await it.fire();
        return it.sent("submit").length;
    """)
        == sent
    )


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        ("[409, { code: 'state_call_not_exposed' }]", 0),
        ("[409, { code: 'state_run_superseded' }]", 0),
        ("[409, { code: 'state_arguments_changed' }]", 0),
        ("[400, { code: 'INVALID_RESULT' }]", 1),
        ("[413, { code: 'validation_payload_too_large' }]", 1),
        ("[403, { code: 'transport_forbidden' }]", 1),
        ("[401, { code: 'transport_unauthorized' }]", 1),
        ("[200, { status: 'accepted' }]", 1),
    ],
)
def test_a_refusal_is_not_sent_again_and_the_item_stays(play: Play, answer: str, reported: int) -> None:
    """R-707; the last row is I-63: an acknowledgement without a continuation is none."""
    refused, left, sent, waits, reports, reread = play(f"""{PAUSED}
        it.routes.submit = [{answer}];
        const before = it.sent("snapshot").length;
        await submit();
        const reread = it.sent("snapshot").length > before;
        return [failure, queue().length, it.sent("submit").length, it.waits.length, it.reports.length, reread];
    """)
    assert refused is not None
    assert (left, sent, waits, reports, reread) == (1, 1, 0, reported, True)


def test_an_approval_sends_the_digest_that_was_shown(play: Play) -> None:
    """R-179, and the new arguments are shown after a refusal."""
    assert play("""
        const it = await world();
        const shown = it.pending("c1", { kind: "approval", approvalId: "r::c1" });
        it.snapshot = { ...it.snapshot, pendingTools: [shown] };
        await it.talk.retry();
        it.routes.submit = [[409, { code: "state_arguments_changed" }]];
        it.snapshot = { ...it.snapshot, pendingTools: [{ ...shown, argumentsDigest: "d2" }] };
        await it.talk.decide("c1", { approved: true }).catch(() => {});
        await it.talk.decide("c1", { approved: false, reason: "no" });
        return it.sent("submit").map(({ body }) =>
            [body.approvalId, body.argumentsDigest, body.approved, body.reason ?? null]);
    """) == [["r::c1", "d1", True, None], ["r::c1", "d2", False, "no"]]


def test_only_a_caller_that_resumes_resumes(play: Play) -> None:
    """I-25."""
    assert play(f"""{PAUSED}
        it.routes.resume = () => [200, {{}}];
        it.routes.submit = [[200, {{ status: "accepted", continuation: {{ kind: "new_run" }} }}]];
        await submit();
        const none = it.sent("resume").length;
        it.routes.submit = [[200, {{ status: "accepted", continuation: {{ kind: "caller_resumes" }} }}]];
        await submit();
        return [none, it.sent("resume").length];
    """) == [0, 1]


def test_a_closed_page_stops_resending(play: Play) -> None:
    assert play(f"""{PAUSED}
        it.routes.submit = () => [0, null];
        submit();
        await it.settle();
        it.talk.close();
        return [it.waits.length, it.sent("submit").length];
    """) == [0, 1]


# -- sending and streams -----------------------------------------------------------------------------------------------


def test_a_first_message_listens_before_it_speaks(play: Play) -> None:
    """I-37, I-44: what the agent asks for at once is live, so its handler runs."""
    assert play("""
        const it = await world({ sessionId: undefined, agentType: "a" });
        const sending = it.talk.send("hello", { metadata: { title: "t" } });
        await it.settle();
        const before = [it.sockets.length, it.sent("messages").length];
        it.sockets[0].onFrame({ type: "head", sequence: 10 });
        await sending;
        const created = it.sent("sessions")[0].body;
        const isNamed = created.clientId === it.talk.sessionId;
        return [before, it.sent("messages").length, created.agentType, created.metadata, isNamed];
    """) == [[1, 0], 1, "a", {"title": "t"}, True]


def test_a_message_whose_answer_was_lost_is_repeated_under_the_same_id(play: Play) -> None:
    """I-51."""
    assert (
        play("""
        const it = await world();
        it.routes.messages = [[0, null]];
        it.talk.send("hello");
        await it.settle();
        await it.fire();
        const ids = it.sent("messages").map(({ body }) => body.clientMessageId);
        return ids.length === 2 && ids[0] === ids[1];
    """)
        is True
    )


def test_a_message_while_paused_says_what_it_gives_up(play: Play) -> None:
    """I-39: refused without the flag; the refusal is an error of the conversation (R-707)."""
    assert play(f"""{PAUSED}
        it.routes.messages = [[409, {{ code: "state_not_resumable", error: "Calls wait.", toolCallIds: ["c1"] }}]];
        const refusal = await it.talk.send("on").catch(({{ code, toolCallIds }}) => [code, toolCallIds]);
        const shown = it.talk.snapshot.error.message;
        await it.talk.send("on", {{ abandonPending: true }});
        return [refusal, shown, it.sent("messages").map(({{ body }}) => body.abandonPending), it.talk.snapshot.error];
    """) == [["state_not_resumable", ["c1"]], "Calls wait.", [False, True], None]


def test_text_is_drawn_while_it_is_written_and_once_when_it_is_recorded(play: Play) -> None:
    """R-511, I-54: a repeated frame adds nothing; the recorded message takes the draft's place."""
    assert play("""
        const it = await world();
        const texts = () => it.talk.snapshot.messages.map(({ parts }) => parts.map(({ text }) => text).join(""));
        await it.event(11, { type: "text_delta", delta: "Hel" });
        await it.event(12, { type: "text_delta", delta: "lo" });
        await it.event(12, { type: "text_delta", delta: "lo" });
        const draft = texts();
        await it.event(13, { type: "step_committed", text: "Hello" });
        const between = texts();
        const recorded = { id: "1", role: "assistant", parts: [{ text: "Hello" }] };
        it.snapshot = { ...it.snapshot, streamSequence: 13, messages: [recorded] };
        await it.fire();
        return [draft, between, texts()];
    """) == [["Hello"], ["Hello"], ["Hello"]]


def test_a_replayed_text_is_not_drawn_beside_its_recorded_message(play: Play) -> None:
    """I-54: the snapshot was read before the backlog came; what is still being written appears with the head."""
    assert play("""
        const message = { id: "1", role: "assistant", parts: [{ type: "text", text: "old" }] };
        const it = await world({ snapshot: { streamStatus: "active", streamSequence: 300, messages: [message] } });
        it.sockets[0].onClose(1006);
        await it.settle();
        await it.fire();
        const texts = () => it.talk.snapshot.messages.map(({ parts }) => parts[0].text);
        await it.event(101, { type: "text_delta", delta: "old" }, false);
        const during = texts();
        await it.event(102, { type: "step_committed", text: "old" }, false);
        await it.event(103, { type: "text_delta", delta: "new" }, false);
        it.sockets.at(-1).onFrame({ type: "head", sequence: 103 });
        return [it.sockets[0].path, during, texts()];
    """) == ["sessions/s/?after=100", ["old"], ["old", "new"]]


def test_a_child_agent_does_not_write_into_the_conversation(play: Play) -> None:
    assert (
        play("""
        const it = await world();
        await it.event(11, { type: "text_delta", delta: "inner", agentId: "child" });
        return it.talk.snapshot.messages;
    """)
        == []
    )


def test_a_gap_makes_it_read_from_its_cursor_again(play: Play) -> None:
    """I-53."""
    assert play("""
        const it = await world();
        await it.event(11, { type: "custom" });
        await it.event(13, { type: "custom" });
        return [it.sockets.map(({ path }) => path), it.sockets.map(({ closed }) => closed)];
    """) == [["sessions/s/?after=10", "sessions/s/?after=11"], [True, False]]


def test_a_cursor_too_old_begins_at_the_snapshot(play: Play) -> None:
    """I-54."""
    assert (
        play("""
        const it = await world();
        it.snapshot = { ...it.snapshot, streamSequence: 90 };
        it.sockets[0].onClose(4410);
        await it.settle();
        await it.fire();
        return it.sockets.at(-1).path;
    """)
        == "sessions/s/?after=90"
    )


def test_reconnecting_doubles_to_thirty_seconds_and_starts_nothing(play: Play) -> None:
    """I-55, R-524; a head begins the pauses anew."""
    waits, again, writes = play("""
        const it = await world();
        const waits = [];
        for (let drop = 0; drop < 8; drop++) {
            it.sockets.at(-1).onClose(1006);
            await it.settle();
            waits.push(...(await it.fire()));
        }
        it.sockets.at(-1).onFrame({ type: "head", sequence: 10 });
        it.sockets.at(-1).onClose(1006);
        await it.settle();
        return [waits, await it.fire(), it.requests.filter(({ method }) => method !== "GET").length];
    """)
    assert waits == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    assert (again, writes) == ([500], 0)


@pytest.mark.parametrize("code", [4500, 4503])
def test_a_server_in_trouble_is_asked_again_like_after_a_dropped_connection(play: Play, code: int) -> None:
    """I-55."""
    assert play(f"""
        const it = await world();
        it.sockets[0].onClose({code});
        await it.settle();
        return [await it.fire(), it.sockets.length, it.sockets.at(-1).path];
    """) == [[500], 2, "sessions/s/?after=10"]


@pytest.mark.parametrize("code", [4401, 4403, 4404])
def test_a_refused_socket_is_not_asked_again(play: Play, code: int) -> None:
    """R-367."""
    assert play(f"""
        const it = await world();
        it.routes.snapshot = () => [404, {{ error: "There is no such session.", code: "NOT_FOUND" }}];
        it.sockets[0].onClose({code});
        await it.settle();
        return [it.waits.length, it.sockets.length, it.talk.snapshot.error.code];
    """) == [0, 1, "NOT_FOUND"]


def test_many_events_of_one_commit_cause_one_reading(play: Play) -> None:
    assert (
        play("""
        const it = await world();
        const before = it.sent("snapshot").length;
        for (let number = 11; number < 31; number++) await it.event(number, { type: "custom" });
        await it.fire();
        return it.sent("snapshot").length - before;
    """)
        == 1
    )


def test_a_new_batch_replaces_the_old_one(play: Play) -> None:
    """C-014: nothing of an earlier batch stays in the queue, whatever its answers were."""
    assert play(f"""{PAUSED}
        const ids = () => it.talk.snapshot.pendingTools.map((call) => call.toolCallId);
        const before = ids();
        it.snapshot = {{ ...it.snapshot, pendingTools: [it.pending("n1"), it.pending("n2")] }};
        await it.talk.retry();
        return [before, ids()];
    """) == [["c1"], ["n1", "n2"]]


def test_a_slow_snapshot_does_not_undo_a_newer_one(play: Play) -> None:
    assert (
        play("""
        const it = await world();
        it.snapshot = { ...it.snapshot, streamSequence: 20, status: "running" };
        await it.talk.retry();
        it.snapshot = { ...it.snapshot, streamSequence: 15, status: "queued" };
        await it.talk.retry();
        return it.talk.snapshot.status;
    """)
        == "running"
    )


def test_retry_reads_before_anything_else_and_retries_only_what_failed(play: Play) -> None:
    """R-708."""
    assert play("""
        const it = await world();
        it.routes.retry = () => [200, {}];
        await it.talk.retry();
        const idle = it.sent("retry").length;
        it.snapshot = { ...it.snapshot, status: "failed" };
        const from = it.requests.length;
        await it.talk.retry();
        return [idle, it.requests.slice(from, from + 2).map(({ route }) => route)];
    """) == [0, ["snapshot", "retry"]]


def test_refusals_have_classes_and_unknown_codes_are_tolerated(play: Play) -> None:
    """R-707, I-56."""
    assert play("""
        const { library } = await world();
        const { parseHelixError, isKnownErrorCode, isClientToolErrorCode, ...classes } = library;
        const large = parseHelixError(413, {
            error: "Too large.", code: "validation_payload_too_large", limitBytes: 5, cause: "tool_result",
        });
        const strange = parseHelixError(418, { error: "New.", code: "tea_ready", leaves: 2 });
        const silent = parseHelixError(0, null);
        return [
            large instanceof classes.PayloadTooLargeError, large.limitBytes, large.cause, large.status,
            parseHelixError(409, { code: "state_run_superseded" }) instanceof classes.RunSupersededError,
            strange.code, strange.leaves, isKnownErrorCode("tea_ready"), silent.retryable,
            isKnownErrorCode("NOT_FOUND"), isClientToolErrorCode("aborted"), isClientToolErrorCode("NOT_FOUND"),
        ];
    """) == [True, 5, "tool_result", 413, True, "tea_ready", 2, False, True, True, True, False]
