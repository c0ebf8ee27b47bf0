/** The chat page: draws the view of one conversation and passes what is pressed on to the library. */

import { connect, listConversations, openConversation } from "../helix/helix.js";
import { drawAsks } from "./asks.js";
import { drawMessages, element } from "./messages.js";
import { tools } from "./tools.js";

const REREAD_MS = 15000;
const STATUS_WORDS = {
  idle: "", queued: "Queued", running: "Working…", awaiting_client_tool: "Waits for an answer",
  stopping: "Stopping…", interrupted: "Stopped", failed: "Failed", completed: "Finished",
};
const page = JSON.parse(document.getElementById("page").textContent);
const root = document.querySelector("[data-chat]");
const at = (id) => document.getElementById(id);
const agents = new Map(page.agents.map((agent) => [agent.agentType, agent]));

const connection = connect({ headers: { "X-CSRFToken": root.dataset.csrf } });
let conversation = open({ sessionId: page.sessionId ?? undefined });

function open(options) {
  const opened = openConversation({
    connection,
    tools,
    onClientToolError: (error, about) => console.warn("A tool of this page failed.", about, error),
    ...options,
  });
  opened.subscribe(draw);
  return opened;
}

// -- drawing ---------------------------------------------------------------------------------------------------------

let drawnStatus = null;

function draw() {
  const view = conversation.snapshot;
  const isNew = conversation.sessionId === undefined;
  at("agents").hidden = !isNew;
  const log = at("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  drawMessages(log, view);
  drawAsks(at("asks"), { view, conversation, tools, reviewed: agents.get(view.agentType)?.reviewedTools ?? [] });
  if (isAtEnd && !isNew) log.scrollTop = log.scrollHeight;

  const status = at("status");
  status.textContent = view.connected || isNew ? STATUS_WORDS[view.status] ?? view.status : "Connecting…";
  status.dataset.status = view.status;
  at("stop").hidden = !view.canCancel && view.status !== "stopping";
  at("stop").textContent = view.status === "stopping" ? "Abort" : "Stop";
  at("retry").hidden = view.status !== "failed" && !view.error;
  at("send").disabled = !view.canSend && view.pendingTools.length === 0;
  at("hint").textContent = hint(view);
  at("error").hidden = !view.error;
  at("error").textContent = view.error?.message ?? "";
  const said = view.messages.find((message) => message.role === "user")?.parts[0]?.text;
  if (said) document.title = `${(at("title").textContent = shortened(said))} – Helix`;
  if (view.status !== drawnStatus) listOthers();
  drawnStatus = view.status;
}

function hint({ canSend, pendingTools, status }) {
  if (pendingTools.length) return "A message now gives the open request up and goes on with what you write.";
  if (canSend) return "Enter sends, Shift and Enter make a new line.";
  return status === "stopping" ? "The agent is winding down." : "The agent is at work; stop it to say something else.";
}

const shortened = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

// -- other conversations ---------------------------------------------------------------------------------------------

let older = null;
let isListing = false;

async function listOthers() {
  if (isListing || older) return;
  isListing = true;
  try {
    const { sessions, nextCursor } = await listConversations({ connection, limit: 30 });
    at("conversations").replaceChildren(...sessions.map(row));
    showOlder(nextCursor);
  } catch {
    // The list stays as it is; the next reading is seconds away.
  }
  isListing = false;
}

function showOlder(cursor) {
  at("more").hidden = !cursor;
  at("more").dataset.cursor = cursor ?? "";
}

function row({ sessionId, clientId, agentType, status, metadata }) {
  const link = element("a", { href: `${root.dataset.chat}c/${sessionId}/` });
  const isHere = conversation.sessionId && [sessionId, clientId].includes(conversation.sessionId);
  if (isHere) link.setAttribute("aria-current", "page");
  const about = [agents.get(agentType)?.title ?? agentType, STATUS_WORDS[status] ?? status].filter(Boolean).join(" · ");
  const state = element("span", { className: "status dim", textContent: about });
  state.dataset.status = status;
  link.append(typeof metadata.title === "string" ? metadata.title : "Conversation", state);
  const item = element("li");
  item.append(link);
  return item;
}

at("more").addEventListener("click", async () => {
  const { sessions, nextCursor } = await listConversations({ connection, limit: 30, cursor: at("more").dataset.cursor });
  older = true;
  at("conversations").append(...sessions.map(row));
  showOlder(nextCursor);
});

// -- what people press -----------------------------------------------------------------------------------------------

async function say(text) {
  const isFirst = conversation.sessionId === undefined;
  if (isFirst) {
    const chosen = document.querySelector('[name="agent"]:checked');
    conversation.close();
    conversation = open({ agentType: chosen.value });
  }
  const { pendingTools } = conversation.snapshot;
  try {
    const options = { abandonPending: pendingTools.length > 0, metadata: { title: shortened(text) } };
    await conversation.send(text, options);
  } catch {
    // The refusal is in the view; the text goes back to where it was written.
    at("message").value ||= text;
  }
  if (isFirst && conversation.sessionId) {
    history.replaceState(null, "", `${root.dataset.chat}c/${conversation.sessionId}/`);
  }
  listOthers();
}

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("message").value.trim();
  if (!text || at("send").disabled) return;
  at("message").value = "";
  say(text);
});

at("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("composer").requestSubmit();
});

at("agents").addEventListener("click", ({ target }) => {
  if (!target.matches("[data-example]")) return;
  document.querySelector(`[name="agent"][value="${CSS.escape(target.dataset.agent)}"]`).checked = true;
  at("message").focus();
  say(target.dataset.example);
});

const quietly = (doing) => doing.catch(() => {}); // the refusal is in the view
at("stop").addEventListener("click", () => quietly(conversation.stop({ hard: conversation.snapshot.status === "stopping" })));
at("retry").addEventListener("click", () => quietly(conversation.retry()));

draw();
setInterval(listOthers, REREAD_MS);
