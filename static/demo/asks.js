/** What the conversation waits for: a tool of this page, or a verdict. Nothing here happens without being pressed. */

import { element, keep, pretty } from "./messages.js";

export function drawAsks(place, { view, conversation, tools, reviewed }) {
  keep(place, view.pendingTools.map((call) => ({
    key: call.toolCallId,
    facts: [call.running, call.delivering, call.undelivered, call.argumentsDigest, call.deadlineAt],
    draw: () => drawn(call, { conversation, tools, isReviewed: reviewed.includes(call.toolName) }),
  })));
}

function drawn(call, context) {
  const node = element("section", { className: "card ask" });
  node.setAttribute("aria-label", `Open request: ${call.toolName}`);
  const title = call.kind === "approval" ? `May ${call.agentType} run ${call.toolName}?` : `${call.toolName} runs in this page`;
  node.append(element("h2", { textContent: title }));
  node.append(element("pre", { textContent: pretty(call.argumentsJson) }));
  if (call.deadlineAt) {
    const until = new Date(call.deadlineAt).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    node.append(element("p", { className: "dim", textContent: `Until ${until}.` }));
  }
  node.append(...body(call, context));
  return node;
}

function body(call, context) {
  if (call.delivering) return [said("The answer is on its way…")];
  if (call.undelivered) {
    return [
      said("The answer could not be delivered; it is kept here."),
      actions(button("Send again", () => context.conversation.sendAgain(call.toolCallId), "primary")),
    ];
  }
  if (call.running) return [said("The page is at work on it.")];
  return call.kind === "approval" ? verdict(call, context) : answer(call, context);
}

function verdict(call, { conversation, isReviewed }) {
  if (isReviewed) return [said("This waits for a reviewer; you asked for it, so you cannot decide it yourself.")];
  const reason = element("input", { autocomplete: "off" });
  const decide = (approved) => () =>
    conversation.decide(call.toolCallId, { approved, ...(reason.value && { reason: reason.value }) });
  return [
    element("label", { textContent: "Reason (optional)" }, reason),
    actions(button("Approve", decide(true), "primary"), button("Deny", decide(false), "danger")),
  ];
}

/** A reopened call: its side effect may have happened already, so running it is somebody's decision (I-17, I-47). */
function answer(call, { conversation, tools }) {
  const text = element("textarea", { rows: 2 });
  const byHand = element("details", {}, element("summary", { textContent: "Answer it by hand" }));
  byHand.append(
    element("label", { textContent: "Result (JSON or text)" }, text),
    actions(
      button("Send as result", () => conversation.submitToolResult(call.toolCallId, valueOf(text.value))),
      button("Send as failure", () => conversation.submitToolError(call.toolCallId, text.value || "It failed."), "danger"),
    ),
  );
  const run = button("Run it here", () => conversation.runPending(call.toolCallId), "primary");
  return Object.hasOwn(tools, call.toolName) ? [actions(run), byHand] : [byHand];
}

function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const said = (text) => element("p", { textContent: text });
const actions = (...buttons) => element("div", { className: "actions" }, ...buttons);

function button(text, act, className = "") {
  const made = element("button", { type: "button", textContent: text, className });
  // A refusal is shown by the view, and the request stays.
  made.addEventListener("click", () => act().catch(() => {}));
  return made;
}
