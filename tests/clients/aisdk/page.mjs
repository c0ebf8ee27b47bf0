/**
 * One browser tab around the unmodified chat of an AI SDK package. Its state is what the SDK's own React binding
 * keeps, with a way to wait for a change: nothing here polls and nobody sleeps.
 *
 * HELIX_ADDRESS: the server.  AI_PACKAGE: which installed version to drive.
 */
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { closeSync, constants, mkdtempSync, openSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ai = await import(process.env.AI_PACKAGE);
const api = `${process.env.HELIX_ADDRESS}api/chat`;

/** Approvals are part of the SDK from 6 on. */
export const hasApprovals = ai.lastAssistantMessageIsCompleteWithApprovalResponses !== undefined;

class State {
  #status = "ready";
  #error = undefined;
  #messages;
  #waiting = new Set();

  constructor(messages) {
    this.#messages = messages;
  }

  get status() { return this.#status; }
  set status(value) { this.#status = value; this.#changed(); }
  get error() { return this.#error; }
  set error(value) { this.#error = value; this.#changed(); }
  get messages() { return this.#messages; }
  set messages(value) { this.#messages = [...value]; this.#changed(); }

  pushMessage = (message) => { this.messages = [...this.#messages, message]; };
  popMessage = () => { this.messages = this.#messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = [...this.#messages.slice(0, index), structuredClone(message), ...this.#messages.slice(index + 1)];
  };
  snapshot = (value) => structuredClone(value);

  until(holds) {
    return new Promise((resolve) => {
      const look = () => { if (holds()) { this.#waiting.delete(look); resolve(); } };
      this.#waiting.add(look);
      look();
    });
  }

  #changed() {
    for (const look of [...this.#waiting]) look();
  }
}

class Chat extends ai.AbstractChat {}

/** handler: ({toolCall}, page) => answers a client call; absent: nobody does. */
export class Page {
  posts = 0;
  dispatched = [];

  constructor(agentType, { handler, id = randomUUID(), messages = [] } = {}) {
    this.id = id;
    this.state = new State(messages);
    this.chat = new Chat({
      id,
      state: this.state,
      generateId: randomUUID,
      transport: new ai.DefaultChatTransport({ api, body: { agentType }, fetch: (...asked) => this.#fetch(...asked) }),
      sendAutomaticallyWhen: ({ messages: now }) => wouldPost(now),
      onToolCall: (event) => {
        this.dispatched.push(event.toolCall.toolCallId);
        handler?.(event, this);
      },
      onError: () => {},
    });
  }

  get text() { return this.parts.filter((part) => part.type === "text").map((part) => part.text).join(""); }
  get parts() { return this.chat.lastMessage?.role === "assistant" ? this.chat.lastMessage.parts : []; }
  get tools() { return this.parts.filter((part) => part.type.startsWith("tool-")); }
  get states() { return this.tools.map((part) => part.state); }

  say(text) { return this.chat.sendMessage({ text }); }

  output(part, output) {
    return this.chat.addToolOutput({ tool: part.type.slice("tool-".length), toolCallId: part.toolCallId, output });
  }

  decide(part, approved, reason) {
    return this.chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
  }

  /** Until the turn is over for this page: nothing streams, and no rule of the SDK would post. */
  settled() {
    return this.state.until(() => ["ready", "error"].includes(this.chat.status) && this.posts > 0 &&
      (this.chat.status === "error" || !wouldPost(this.chat.messages)));
  }

  until(holds) { return this.state.until(() => holds(this)); }

  /** Another tab of the same chat that has what it had before this turn's answer. */
  beside(options) {
    const messages = this.chat.messages.filter((message) => message.role === "user");
    return new Page(undefined, { id: this.id, messages: structuredClone(messages), ...options });
  }

  stopAtServer() { return fetch(`${api}/${this.id}/stop`, { method: "POST" }).then((answer) => answer.json()); }

  #fetch(address, options) {
    if (options.method === "POST") this.posts += 1;
    return fetch(address, options);
  }
}

export function wouldPost(messages) {
  return ai.lastAssistantMessageIsCompleteWithToolCalls({ messages }) ||
    (hasApprovals && ai.lastAssistantMessageIsCompleteWithApprovalResponses({ messages }));
}

/** A pipe that holds a story until it is opened; its path is what the story's user says. */
export class Gate {
  path = join(mkdtempSync(join(tmpdir(), "gate-")), "pipe");

  constructor() { execFileSync("mkfifo", [this.path]); }

  open() {
    const writer = openSync(this.path, constants.O_RDWR | constants.O_NONBLOCK);
    unlinkSync(this.path);
    closeSync(writer);
  }
}

export function locateIn(city) {
  return ({ toolCall }, page) => {
    page.chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: city });
  };
}
