/** Draws the log. What has not changed keeps its node, so that a selection or an open detail survives new text. */

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function drawMessages(log, view) {
  const results = new Map();
  for (const message of view.messages) {
    for (const part of message.parts) if (part.type === "tool_result") results.set(part.toolCallId, part);
  }
  const open = new Set(view.pendingTools.map((call) => call.toolCallId));
  const wanted = view.messages.filter((message) => message.role !== "tool").map((message) => ({
    key: message.id,
    facts: [message, message.parts.map((part) => [results.get(part.toolCallId), open.has(part.toolCallId)])],
    draw: () => drawn(message, results, open),
  }));
  if (view.errorDetail) {
    wanted.push({
      key: "failure",
      facts: view.errorDetail,
      draw: () => element("p", {
        className: "notice error",
        textContent: `The turn failed. ${view.errorDetail.message ?? view.errorDetail.code ?? ""}`,
      }),
    });
  }
  keep(log, wanted);
}

/** Makes the keyed children of `place` those that are wanted; one whose facts are equal is left alone. */
export function keep(place, wanted) {
  const known = new Map([...place.children].filter((node) => node.dataset.key).map((node) => [node.dataset.key, node]));
  let last = [...place.children].findLast((node) => !node.dataset.key) ?? null;
  for (const { key, facts, draw } of wanted) {
    const signature = JSON.stringify(facts);
    let node = known.get(key);
    known.delete(key);
    if (node?.signature !== signature) {
      const fresh = draw();
      fresh.dataset.key = key;
      fresh.signature = signature;
      node?.replaceWith(fresh);
      node = fresh;
    }
    const next = last ? last.nextSibling : place.firstChild;
    if (next !== node) place.insertBefore(node, next);
    last = node;
  }
  for (const node of known.values()) node.remove();
}

function drawn(message, results, open) {
  const node = element("article", { className: message.role });
  node.setAttribute("aria-label", message.role === "user" ? "You" : "Agent");
  for (const flag of ["pending", "draft"]) node.classList.toggle(flag, Boolean(message[flag]));
  node.append(...message.parts.map((part) => drawnPart(part, results, open)).filter(Boolean));
  if (message.helixInterrupted) node.append(element("p", { className: "dim", textContent: "Stopped here." }));
  return node;
}

function drawnPart(part, results, open) {
  switch (part.type) {
    case "text":
      return element("p", { className: "said", textContent: part.text });
    case "reasoning":
      return element("p", { className: "said thought", textContent: part.text });
    case "file":
      return element("p", { className: "said dim", textContent: `A file: ${part.url}` });
    case "tool_call":
      return drawnCall(part, results.get(part.toolCallId), open.has(part.toolCallId));
    default:
      return null;
  }
}

function drawnCall({ toolName, argumentsJson }, result, isOpen) {
  const state = result ? (result.error === undefined ? "done" : "failed") : isOpen ? "open" : "busy";
  const words = { done: "done", failed: "did not succeed", open: "waits for an answer", busy: "is at work" };
  const node = element("details", { className: `tool ${state}` });
  node.append(element("summary", {}, element("code", { textContent: toolName }), ` ${words[state]}`));
  node.append(element("pre", { textContent: pretty(argumentsJson) }));
  if (result?.note) node.append(element("p", { className: "dim", textContent: result.note }));
  if (result) node.append(element("pre", { textContent: resultText(result) }));
  return node;
}

function resultText({ text, value, error }) {
  return error ?? text ?? JSON.stringify(value ?? null, null, 2);
}
