/**
 * The stock chat against a real server: it posts as often as it must and no more, and shows what the log says.
 * docs/spec/ai-sdk.md sections 1, 4, 5 and 6.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Gate, Page, hasApprovals, locateIn, wouldPost } from "./page.mjs";

const withApprovals = { skip: hasApprovals ? false : "approvals are part of the SDK from 6 on" };

function atRest(page, posts) {
  assert.equal(page.chat.error, undefined);
  assert.equal(page.chat.status, "ready");
  assert.equal(page.posts, posts);
  assert.ok(!wouldPost(page.chat.messages), "the page would post again");
}

test("a text is streamed into one message", async () => {
  const page = new Page("talk");
  await page.say("hello");
  atRest(page, 1);
  assert.equal(page.text, "Results: ");
  assert.deepEqual(page.chat.messages.map((message) => message.role), ["user", "assistant"]);
});

test("a client tool is run once and its answer sent once", async () => {
  const page = new Page("locate", { handler: locateIn("Bern") });
  await page.say("where am I?");
  await page.settled();
  atRest(page, 2);
  assert.equal(page.text, "Results: Bern");
  assert.deepEqual([page.dispatched.length, page.states, page.chat.messages.length], [1, ["output-available"], 2]);
});

test("two parallel answers are one post, whichever comes first", async () => {
  const page = new Page("pair");
  await page.say("where are we?");
  const [first, second] = page.tools;
  await page.output(second, "Basel");
  assert.equal(page.posts, 1);
  await page.output(first, "Bern");
  await page.settled();
  atRest(page, 2);
  assert.equal(page.text, "Results: Bern; Basel");
});

test("an error of the handler is an answer", async () => {
  const page = new Page("locate", {
    handler: ({ toolCall }, self) => {
      const failed = { state: "output-error", errorText: "no permission" };
      self.chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, ...failed });
    },
  });
  await page.say("where am I?");
  await page.settled();
  atRest(page, 2);
  assert.match(page.text, /no permission/);
  assert.deepEqual(page.states, ["output-error"]);
});

test("an output that is undefined is an error answer, and the turn goes on", async () => {
  const page = new Page("locate");
  await page.say("where am I?");
  await page.output(page.tools[0], undefined);
  await page.settled();
  atRest(page, 2);
  assert.match(page.text, /returned no value/);
});

test("a chain of steps stays in one message, and server tools never reach the page's handler", async () => {
  const page = new Page("chain", { handler: locateIn("Bern") });
  await page.say("go");
  await page.settled();
  atRest(page, 3);
  assert.equal(page.text, 'Results: {"found":1}; Bern; Bern');
  assert.equal(page.chat.messages.length, 2);
  assert.equal(page.parts.filter((part) => part.type === "step-start").length, 3);
  assert.deepEqual([page.dispatched.length, page.tools.length], [2, 3]);
});

test("a message over an open call gives it up and begins a message of its own", async () => {
  const page = new Page("locate");
  await page.say("where am I?");
  await page.say("never mind");
  await page.until(() => page.chat.status === "ready");
  assert.deepEqual(page.chat.messages.map((message) => message.role), ["user", "assistant", "user", "assistant"]);
  assert.equal(new Set(page.chat.messages.map((message) => message.id)).size, 4);
  assert.equal(page.chat.messages[1].parts.find((part) => part.toolCallId).state, "input-available");
  assert.deepEqual(page.states, ["input-available"]);
  await page.output(page.tools[0], "Bern");
  await page.settled();
  atRest(page, 3);
  assert.equal(page.text, "Results: Bern");
});

test("a result against the schema is refused with its code, and a second one is taken", async () => {
  const page = new Page("locate");
  await page.say("where am I?");
  await page.output(page.tools[0], 47);
  await page.until(() => page.chat.status === "error");
  assert.equal(JSON.parse(page.chat.error.message).code, "INVALID_RESULT");
  assert.equal(page.posts, 2);
  await page.output(page.tools[0], "Bern");
  await page.until(() => page.text !== "");
  await page.settled();
  atRest(page, 3);
  assert.equal(page.text, "Results: Bern");
});

test("refusals are typed and end no chat", async () => {
  const page = new Page("no-such-agent");
  await page.say("hello");
  assert.equal(page.chat.status, "error");
  assert.equal(JSON.parse(page.chat.error.message).code, "NOT_FOUND");
});

test("a model that fails is an error, and a bare sendMessage tries again", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "flaky-")), "away");
  writeFileSync(file, "");
  const page = new Page("flaky");
  await page.say(file);
  assert.equal(page.chat.status, "error");
  assert.equal(page.chat.error.message, "The provider is away.");
  assert.equal(page.text, "Well, ");
  rmSync(file);
  await page.chat.sendMessage();
  atRest(page, 2);
  assert.match(page.text, /Well, here you are\.$/);
  assert.equal(page.chat.messages.length, 2);
});

test("leaving is no stop: the turn goes on, and a tab that comes back is shown all of it", async () => {
  const gate = new Gate();
  const page = new Page("story");
  const telling = page.say(gate.path);
  await page.until(() => page.text === "Once upon ");
  await page.chat.stop();
  await telling;
  const back = page.beside();
  const joining = back.chat.resumeStream();
  await back.until(() => back.text === "Once upon ");
  gate.open();
  await joining;
  assert.equal(back.text, "Once upon a time.");
  assert.equal(back.chat.messages.length, 2);
  assert.equal(back.chat.lastMessage.id, page.chat.lastMessage.id);
});

test("a second message while a turn runs is refused, and the first is told to its end", async () => {
  const gate = new Gate();
  const page = new Page("story");
  const telling = page.say(gate.path);
  await page.until(() => page.text === "Once upon ");
  const other = page.beside();
  await other.say("me too");
  assert.equal(JSON.parse(other.chat.error.message).code, "state_already_running");
  gate.open();
  await telling;
  atRest(page, 1);
  assert.equal(page.text, "Once upon a time.");
});

test("reconnecting in a later step replays the answered call and hands it to no handler", async () => {
  const gate = new Gate();
  const page = new Page("located-story", { handler: locateIn("Bern") });
  page.say(gate.path);
  await page.until(() => page.text === "Once upon ");
  const back = page.beside({ handler: locateIn("Basel") });
  const joining = back.chat.resumeStream();
  await back.until(() => back.text === "Once upon ");
  gate.open();
  await joining;
  await page.settled();
  assert.deepEqual([back.text, back.dispatched, back.states], ["Once upon a time.", [], ["output-available"]]);
  assert.equal(back.tools[0].output, "Bern");
  assert.deepEqual([back.posts, wouldPost(back.chat.messages)], [0, false]);
  assert.deepEqual([page.text, page.posts], ["Once upon a time.", 2]);
});

test("reconnecting to nothing changes nothing", async () => {
  const page = new Page("locate");
  await page.chat.resumeStream();
  assert.deepEqual([page.chat.status, page.chat.messages.length], ["ready", 0]);
  await page.say("where am I?");
  const before = structuredClone(page.chat.messages);
  await page.chat.resumeStream();
  assert.equal(page.chat.status, "ready");
  assert.deepEqual(page.chat.messages, before);
});

test("a stop at the server ends the stream, and the chat goes on with the next message", async () => {
  const gate = new Gate();
  const page = new Page("story");
  const telling = page.say(gate.path);
  await page.until(() => page.text === "Once upon ");
  assert.equal((await page.stopAtServer()).stop, "interrupt");
  await telling;
  atRest(page, 1);
  assert.equal(page.text, "Once upon ");
  gate.open();
  await page.say(gate.path);
  atRest(page, 2);
  assert.equal(page.text, "Once upon a time.");
});

test("an answer to a stopped call is refused once and for all", async () => {
  const page = new Page("locate");
  await page.say("where am I?");
  await page.stopAtServer();
  await page.output(page.tools[0], "Bern");
  await page.until(() => page.chat.status === "error");
  const refusal = JSON.parse(page.chat.error.message);
  assert.deepEqual([refusal.code, refusal.cause, refusal.retryable], ["state_not_resumable", "run_stopped", false]);
  assert.equal(page.posts, 2);
});

test("a tab that is behind is brought up to date, and posts no more", async () => {
  const page = new Page("chain");
  await page.say("go");
  const behind = page.beside({ messages: structuredClone(page.chat.messages) });
  await page.output(page.tools[1], "Bern");
  await page.until(() => page.tools.length === 3 && page.chat.status === "ready");
  await page.output(page.tools[2], "Basel");
  await page.settled();
  await behind.output(behind.tools[1], "Chur");
  await behind.until(() => behind.text !== "" && behind.chat.status === "ready");
  atRest(behind, 1);
  assert.equal(behind.text, page.text);
  assert.deepEqual(behind.tools.map((part) => part.output), [{ found: 1 }, "Bern", "Basel"]);
  assert.deepEqual(behind.dispatched, []);
});

test("an answer to a call of an earlier turn moves the boundary of its own message and nothing else", async () => {
  const page = new Page("locate");
  await page.say("where am I?");
  const behind = page.beside({ messages: structuredClone(page.chat.messages) });
  await page.say("never mind");
  await behind.output(behind.tools[0], "Bern");
  await behind.until(() => behind.posts === 1 && behind.chat.status === "ready");
  atRest(behind, 1);
  assert.deepEqual([behind.text, behind.states, behind.chat.messages.length], ["", ["output-error"], 2]);
  assert.equal(behind.parts.at(-1).type, "data-resume-rejected");
});

test("an approved call runs, and its result belongs to the server", withApprovals, async () => {
  const page = new Page("pay");
  await page.say("pay");
  assert.deepEqual(page.states, ["approval-requested"]);
  await page.decide(page.tools[0], true);
  await page.settled();
  atRest(page, 2);
  assert.equal(page.text, "Results: paid 1");
  assert.deepEqual([page.states, page.tools[0].providerExecuted], [["output-available"], true]);
});

test("a denied call runs nothing, and the model is told why", withApprovals, async () => {
  const page = new Page("pay");
  await page.say("pay");
  await page.decide(page.tools[0], false, "too much");
  await page.settled();
  atRest(page, 2);
  assert.match(page.text, /too much/);
  assert.deepEqual(page.states, ["output-denied"]);
});

test("verdicts on two calls are one post", withApprovals, async () => {
  const page = new Page("pays");
  await page.say("pay both");
  const [first, second] = page.tools;
  await page.decide(second, true);
  assert.equal(page.posts, 1);
  await page.decide(first, false);
  await page.settled();
  atRest(page, 2);
  assert.deepEqual(page.states, ["output-denied", "output-available"]);
  assert.match(page.text, /paid 2$/);
});

for (const order of ["the client's answer first", "the verdict first"]) {
  test(`a client call beside a gated one is one post: ${order}`, withApprovals, async () => {
    const page = new Page("mixed");
    await page.say("go");
    const [client, gated] = page.tools;
    const acts = [() => page.output(client, "Bern"), () => page.decide(gated, true)];
    if (order === "the verdict first") acts.reverse();
    for (const act of acts) {
      assert.equal(page.posts, 1);
      await act();
    }
    await page.settled();
    atRest(page, 2);
    assert.equal(page.text, "Results: Bern; paid 2");
  });
}
