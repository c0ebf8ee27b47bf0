/**
 * Helix in the browser: one conversation as a live view, with tools that run in the page.
 *
 * The server's rows are the truth; everything here may be thrown away and opened again from the session's id alone.
 * A view is always a whole snapshot plus the text that is being written. Events only say that there is something new,
 * when to run a handler, and what the model has written since.
 */

const RESENDS_MS = [500, 1000, 2000, 4000, 8000];
const RECONNECT_MS = { first: 500, most: 30000 };
const GATHER_MS = 20;
// How far before the snapshot a reader of a live turn begins, so that it sees a half-written reply from its start.
const LOOK_BACK = 200;
const MAX_ERROR_BYTES = 8192;
// No answer, too many, an unexpected failure, unavailable: the same body may be sent again.
const RESENT_STATUSES = [0, 429, 500, 503];
// Refusals after which the rows say something new.
const REREAD_CODES = ["state_call_not_exposed", "state_run_superseded", "state_arguments_changed"];

// Generated from helix.errors; a test compares them.
const KNOWN_CODES = new Set(("validation_error INVALID_RESULT validation_payload_too_large state_size_exceeded " +
  "transport_unauthorized transport_forbidden rate_limited NOT_FOUND ALREADY_COMPLETED state_already_running " +
  "state_not_resumable state_run_superseded state_concurrency_conflict state_arguments_changed " +
  "state_call_not_exposed state_cursor_too_old unknown_tool_call framework_agent_not_found " +
  "framework_agent_resolution_failed framework_usage_store_unavailable framework_not_supported transport_error " +
  "framework_cancelled framework_auto_resume_exhausted framework_max_steps_exceeded " +
  "framework_due_work_unscheduled framework_internal provider_error provider_rate_limited " +
  "provider_stream_stalled client_tool_timeout client_tool_abandoned validation_failed approval_denied " +
  "not_executed run_stopped aborted run_failed interrupted tool_execution_failed framework_subagent_lost " +
  "framework_remote_client_tool_unsupported runtime_restarted disposed").split(" "));
const CLIENT_TOOL_CODES = new Set(("client_tool_timeout aborted runtime_restarted disposed validation_failed " +
  "client_tool_abandoned run_stopped").split(" "));

export const isKnownErrorCode = (code) => KNOWN_CODES.has(code);
export const isClientToolErrorCode = (code) => CLIENT_TOOL_CODES.has(code);

/** A refusal. Branch on `code`; show `message`. Unknown codes are as good as known ones. */
export class HelixError extends Error {
  constructor(status, body) {
    super(typeof body.error === "string" ? body.error : "The server could not be reached.");
    this.name = this.constructor.name;
    const { error, cause, ...fields } = body;
    Object.assign(this, { code: "transport_error", retryable: false, status }, fields);
    if (cause !== undefined) this.cause = cause;
  }
}
export class PayloadTooLargeError extends HelixError {}
export class RunSupersededError extends HelixError {}

/** The refusal in an answer: `status` 0 means that there was none. */
export function parseHelixError(status, body) {
  // An unknown call is told by its status word; every other refusal by its code.
  const fields = body && typeof body === "object" ? { ...body } : { retryable: status === 0 };
  if (fields.code === undefined && fields.status === "unknown_tool_call") fields.code = fields.status;
  delete fields.status;
  const Kind = { validation_payload_too_large: PayloadTooLargeError, state_run_superseded: RunSupersededError };
  return new (Object.hasOwn(Kind, fields.code) ? Kind[fields.code] : HelixError)(status, fields);
}

/**
 * How to reach the server. Everything that a test wants to hold is injectable.
 *
 * api, socket: where the routes are mounted. headers: sent with each request (a CSRF token, an Authorization).
 * protocols: of the websocket; a token travels there, never in a URL.
 */
export function connect({
  api = "/api/", socket = "/ws/", headers = {}, protocols = [],
  fetch = globalThis.fetch.bind(globalThis), WebSocket = globalThis.WebSocket,
  random = Math.random, newId = () => crypto.randomUUID(),
  timers = { set: (run, ms) => setTimeout(run, ms), clear: (timer) => clearTimeout(timer) },
} = {}) {
  return {
    random, newId, timers,
    /** Never rejects: `{status, body, retryAfterMs}`, status 0 when there was no whole answer. */
    async request(method, path, body) {
      try {
        const answer = await fetch(api + path, {
          method,
          credentials: "same-origin",
          headers: { ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
          body,
        });
        const text = await answer.text();
        const wait = Number(answer.headers.get("Retry-After"));
        return { status: answer.status, body: readJson(text), retryAfterMs: wait > 0 ? wait * 1000 : null };
      } catch {
        return { status: 0, body: null, retryAfterMs: null };
      }
    },
    /** Opens a socket; `onClose(code)` is called once. Returns a function that closes it silently. */
    listen(path, { onFrame, onClose }) {
      const url = new URL(socket + path, globalThis.location?.href);
      url.protocol = url.protocol.replace("http", "ws");
      const opened = new WebSocket(url, protocols);
      opened.onmessage = ({ data }) => {
        const frame = readJson(data);
        if (frame) onFrame(frame);
      };
      opened.onclose = ({ code }) => onClose(code);
      return () => {
        opened.onmessage = opened.onclose = null;
        opened.close();
      };
    },
  };
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The value as JSON has it. Throws a TypeError for what has no such form: functions, cycles, big integers, NaN. */
function plain(value) {
  const text = JSON.stringify(value, (key, inner) => {
    if (typeof inner === "function" || typeof inner === "symbol" || (typeof inner === "number" && !isFinite(inner))) {
      throw new TypeError(`${key ? `"${key}"` : "The value"} has no JSON form.`);
    }
    return inner;
  });
  if (text === undefined) throw new TypeError("The value has no JSON form.");
  return JSON.parse(text);
}

function shorten(text) {
  const bytes = new TextEncoder().encode(text);
  // A character that the cut went through is dropped.
  return bytes.length <= MAX_ERROR_BYTES ? text
    : new TextDecoder().decode(bytes.slice(0, MAX_ERROR_BYTES)).replace(/\uFFFD+$/, "");
}

/** One page of the caller's conversations, newest first: `{sessions, nextCursor}`. */
export async function listConversations({ connection, ...query }) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const answer = await connection.request("GET", `sessions?${new URLSearchParams(given)}`);
  if (answer.status !== 200) throw parseHelixError(answer.status, answer.body);
  return answer.body;
}

/** Opens a conversation, or with `agentType` alone prepares one that its first message starts. Changes no row. */
export function openConversation(options) {
  return new Conversation(options);
}

const NOTHING_YET = {
  status: "idle", streamStatus: "ended", canSend: false, canCancel: false, pendingTools: [], messages: [],
  streamSequence: 0, runId: null, state: {},
};

class Conversation {
  #link; #tools; #onClientToolError; #agentType; #listeners = new Set();
  #id; #server = NOTHING_YET; #connected = false; #error = null; #view; #closed = false;
  #drafts = []; #cursor = 0; #unlisten = null; #failures = 0; #timers = new Set(); #gathering = false;
  #reading = null; #readAgain = false; #outdated = 0;
  #claimant; #seen = new Set(); #running = new Map(); #outbox = new Map(); #alias; #listening; #settled;

  constructor({ connection = connect(), sessionId, agentType, tools = {}, onClientToolError }) {
    this.#link = connection;
    this.#tools = tools;
    this.#onClientToolError = onClientToolError;
    this.#agentType = agentType;
    this.#claimant = connection.newId();
    if (sessionId === undefined) this.#server = { ...NOTHING_YET, canSend: true };
    this.#show();
    /** Settles when the first snapshot was read; a refusal stands in `snapshot.error`. */
    this.ready = sessionId === undefined ? Promise.resolve() : this.#open(sessionId);
  }

  get snapshot() {
    return this.#view;
  }

  get sessionId() {
    return this.#id;
  }

  /** Calls `listener` after every change; returns the function that ends that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  setTools(tools) {
    this.#tools = tools;
  }

  /** The next turn. Typing on while a call is open is refused unless `abandonPending` says that it is meant. */
  async send(message, { abandonPending = false, metadata } = {}) {
    if (this.#id === undefined) await this.#begin(metadata);
    const body = { message, abandonPending, clientMessageId: this.#link.newId() };
    const answer = await this.#insist(this.#path("messages"), body);
    if (answer.status !== 200) throw this.#refused(answer);
    this.#error = null;
    await this.#read();
  }

  /** Interrupts the turn; `hard` aborts it. */
  async stop({ hard = false } = {}) {
    if (this.#id === undefined) return;
    for (const controller of this.#running.values()) controller.abort();
    await this.#command(hard ? "abort" : "interrupt");
  }

  submitToolResult(toolCallId, result) {
    return this.#answer(toolCallId, { result: plain(result) });
  }

  submitToolError(toolCallId, text) {
    return this.#answer(toolCallId, { error: shorten(String(text)) });
  }

  /** Answers an approval, naming the digest of the arguments that this view shows. */
  decide(toolCallId, { approved, reason, editedArguments }) {
    const shown = this.#pending(toolCallId);
    return this.#answer(toolCallId, {
      kind: "approval-response", approvalId: shown?.approvalId, argumentsDigest: shown?.argumentsDigest,
      approved, reason, editedArguments,
    });
  }

  /** Delivers once more what could not be delivered; the handler does not run again. */
  async sendAgain(toolCallId) {
    const kept = this.#outbox.get(toolCallId);
    if (kept && !kept.delivering) await this.#deliver(toolCallId, kept);
  }

  /** Reads the snapshot again; then, if the last turn failed, tries it again. */
  async retry() {
    this.#error = null;
    if (this.#id === undefined) return;
    await this.#read();
    if (this.#server.status === "failed") await this.#command("retry");
    if (!this.#unlisten && !this.#closed) this.#attach();
  }

  /** Detaches. Nothing changes on the server: what is pending stays pending. */
  close() {
    this.#closed = true;
    this.#unlisten?.();
    this.#unlisten = null;
    for (const timer of this.#timers) this.#link.timers.clear(timer);
    for (const controller of this.#running.values()) controller.abort();
    this.#listeners.clear();
  }

  /** Makes the conversation and listens before anything is said in it, so that its first events are live. */
  async #begin(metadata) {
    // The alias that we choose makes a repeated beginning the same one.
    const clientId = (this.#alias ??= this.#link.newId());
    const answer = await this.#insist("sessions", { agentType: this.#agentType, clientId, metadata });
    if (answer.status !== 201 && answer.body?.cause !== "client_id") throw this.#refused(answer);
    await this.#open(clientId);
    await this.#listening;
  }

  // -- reading -------------------------------------------------------------------------------------------------------

  async #open(sessionId) {
    this.#id = sessionId;
    if (!(await this.#read()) || this.#closed) return;
    const { streamSequence, streamStatus } = this.#server;
    this.#cursor = streamStatus === "active" ? Math.max(0, streamSequence - LOOK_BACK) : streamSequence;
    this.#attach();
  }

  #path(rest = "") {
    return `sessions/${encodeURIComponent(this.#id)}${rest && `/${rest}`}`;
  }

  /** Reads the snapshot; calls that come meanwhile share one more reading. False: it was refused. */
  #read() {
    if (this.#reading) {
      this.#readAgain = true;
      return this.#reading;
    }
    this.#reading = this.#readOnce().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readOnce() {
    let answer;
    do {
      this.#readAgain = false;
      const asOf = this.#outdated;
      answer = await this.#link.request("GET", this.#path());
      if (this.#closed) return false;
      if (asOf !== this.#outdated) this.#readAgain = true;
      else if (answer.status === 200) this.#take(answer.body);
    } while (this.#readAgain);
    if (answer.status !== 200) this.#refused(answer);
    return answer.status === 200;
  }

  #take(snapshot) {
    // A slow answer must not undo a newer one.
    if (snapshot.streamSequence < this.#server.streamSequence) return;
    this.#server = snapshot;
    this.#forgetRecorded();
    if (["ended", "failed"].includes(snapshot.streamStatus)) this.#drafts = [];
    const open = new Set(snapshot.pendingTools.map((call) => call.toolCallId));
    for (const [id, kept] of this.#outbox) if (!open.has(id) && !kept.delivering) this.#outbox.delete(id);
    this.#show();
  }

  /** A draft ends when its step is recorded and the snapshot has it, whichever comes to us first. */
  #forgetRecorded() {
    this.#drafts = this.#drafts.filter((draft) => !(draft.recordedAt <= this.#server.streamSequence));
  }

  #show() {
    const { pendingTools, messages, ...server } = this.#server;
    this.#view = Object.freeze({
      ...server,
      pendingTools: pendingTools.map((call) => {
        const kept = this.#outbox.get(call.toolCallId);
        return {
          ...call,
          delivering: kept?.delivering ?? false,
          undelivered: Boolean(kept && !kept.delivering),
          running: this.#running.has(call.toolCallId),
        };
      }),
      messages: [...messages, ...this.#drafts.filter((draft) => !draft.isReplayed).map((draft) => draft.message)],
      connected: this.#connected,
      error: this.#error,
    });
    for (const listener of [...this.#listeners]) listener();
  }

  #refused({ status, body }) {
    const error = parseHelixError(status, body);
    this.#error = error;
    this.#show();
    return error;
  }

  // -- the stream ----------------------------------------------------------------------------------------------------

  #attach() {
    const path = `sessions/${encodeURIComponent(this.#id)}/?after=${this.#cursor}`;
    this.#unlisten?.();
    this.#connected = false;
    this.#listening = new Promise((resolve) => {
      this.#settled = resolve;
    });
    this.#unlisten = this.#link.listen(path, {
      onFrame: (frame) => this.#frame(frame),
      onClose: (code) => this.#dropped(code),
    });
  }

  #frame(frame) {
    if (frame.type === "head") {
      this.#failures = 0;
      this.#connected = true;
      for (const draft of this.#drafts) draft.isReplayed = false;
      this.#settled();
      this.#show();
    }
    if (frame.type !== "event" || frame.sequence <= this.#cursor) return;
    if (frame.sequence > this.#cursor + 1) {
      this.#attach();
      return;
    }
    this.#cursor = frame.sequence;
    this.#event(frame.payload, frame.live === true);
  }

  async #dropped(code) {
    this.#unlisten = null;
    this.#connected = false;
    this.#settled();
    this.#show();
    if (code === 4401 || code === 4403 || code === 4404) {
      // Nothing will change by asking again; the refusal says why.
      await this.#read();
      return;
    }
    const wait = Math.min(RECONNECT_MS.first * 2 ** this.#failures++, RECONNECT_MS.most);
    await this.#pause(wait * (0.5 + this.#link.random() / 2));
    // A failed attempt may have missed anything, so each one begins with the rows.
    const isRead = await this.#read();
    if (this.#closed) return;
    if (isRead && (code === 4410 || code === 4400)) this.#cursor = this.#server.streamSequence;
    this.#attach();
  }

  #event(event, live) {
    switch (event.type) {
      case "text_delta":
        return this.#draft(event, "text", event.delta);
      case "thinking":
        return this.#draft(event, "reasoning", event.content);
      case "tool_arg_stream_start":
      case "tool_arg_stream_delta":
        return;
      case "step_committed":
        for (const draft of this.#drafts) if (draft.agentId === event.agentId) draft.recordedAt ??= event.sequence;
        this.#forgetRecorded();
        break;
      case "step_discarded":
      case "stream_resync":
        this.#drafts = this.#drafts.filter((draft) => draft.agentId !== event.agentId || draft.recordedAt);
        break;
      case "call_answered":
      case "tool_end":
        this.#running.get(event.toolCallId)?.abort();
        break;
      case "tool_start":
        if (live && event.kind === "client") this.#dispatch(event);
        break;
      case "stop_requested":
        for (const controller of this.#running.values()) controller.abort();
    }
    if (event.sequence > this.#server.streamSequence) this.#gather();
  }

  /** Many events of one commit cause one reading. */
  #gather() {
    if (this.#gathering) return;
    this.#gathering = true;
    this.#pause(GATHER_MS).then(() => {
      this.#gathering = false;
      return this.#closed ? undefined : this.#read();
    });
  }

  #draft(event, type, text) {
    if (event.agentId !== event.sessionId) return;
    let draft = this.#drafts.find((one) => one.agentId === event.agentId && !one.recordedAt);
    if (!draft) {
      const message = { id: `draft-${event.sequence}`, role: "assistant", parts: [], draft: true };
      // Until the backlog is through, nobody knows whether this was recorded long ago.
      draft = { agentId: event.agentId, message, isReplayed: !this.#connected };
      this.#drafts.push(draft);
    }
    const parts = [...draft.message.parts];
    const last = parts.at(-1);
    if (last?.type === type) parts[parts.length - 1] = { type, text: last.text + text };
    else parts.push({ type, text });
    draft.message = { ...draft.message, parts };
    this.#show();
  }

  // -- handlers ------------------------------------------------------------------------------------------------------

  /** A live call: whoever wins its one claim runs its handler (I-20). */
  async #dispatch(call) {
    if (!this.#handler(call) || this.#seen.has(call.toolCallId)) return;
    this.#seen.add(call.toolCallId);
    const path = this.#path(`calls/${encodeURIComponent(call.toolCallId)}/claim`);
    await this.#run(call, async () => {
      const { status, body } = await this.#link.request("POST", path, JSON.stringify({ claimant: this.#claimant }));
      // A no, and a claim that nobody answered, both leave the call to somebody's deliberate answer.
      return status === 200 && body?.claimed === true;
    });
  }

  /** Runs a pending client call on purpose: after a reload no handler runs by itself (I-17, I-47). */
  async runPending(toolCallId) {
    const call = this.#pending(toolCallId);
    if (call?.kind !== "client" || !this.#handler(call) || this.#running.has(toolCallId)) return;
    this.#seen.add(toolCallId);
    await this.#run(call, () => true);
  }

  #handler({ toolName }) {
    const handler = Object.hasOwn(this.#tools, toolName) && this.#tools[toolName];
    return typeof handler === "function" ? handler : null;
  }

  async #run({ toolCallId, toolName, argumentsJson }, mayRun) {
    const handler = this.#handler({ toolName });
    const controller = new AbortController();
    const { signal: abortSignal } = controller;
    this.#running.set(toolCallId, controller);
    this.#show();
    let fields = null;
    try {
      if ((await mayRun()) && !abortSignal.aborted) {
        const result = await handler(JSON.parse(argumentsJson), { abortSignal, toolCallId, toolName });
        if (result === undefined) throw new TypeError(`${toolName} returned nothing for call ${toolCallId}.`);
        fields = { result: plain(result) };
      }
    } catch (error) {
      if (!abortSignal.aborted) this.#report(error, { toolName, toolCallId, phase: "handler" });
      fields = { error: shorten(String(error?.message || error)) };
    }
    this.#running.delete(toolCallId);
    // What an aborted handler returns is not submitted (R-703).
    if (fields && !abortSignal.aborted) await this.#answer(toolCallId, fields).catch(() => {});
    else if (!this.#closed) this.#show();
  }

  #report(error, about) {
    try {
      this.#onClientToolError?.(error, about);
    } catch {
      // A callback that fails is its page's matter; the conversation goes on.
    }
  }

  // -- delivery ------------------------------------------------------------------------------------------------------

  #pending(toolCallId) {
    return this.#server.pendingTools.find((call) => call.toolCallId === toolCallId);
  }

  #answer(toolCallId, fields) {
    const call = this.#pending(toolCallId);
    const body = { kind: "client-tool-result", toolCallId, runId: call?.runId, ...fields };
    return this.#deliver(toolCallId, { body, toolName: call?.toolName });
  }

  async #deliver(toolCallId, kept) {
    kept.delivering = true;
    this.#outbox.set(toolCallId, kept);
    this.#show();
    const path = `chat/${encodeURIComponent(this.#id)}/submit-tool-result`;
    const { status, body, mayPass } = await this.#insist(path, kept.body, toolCallId);
    kept.delivering = false;
    if (this.#closed) return;
    const isUnknown = status === 404 && body?.status === "unknown_tool_call";
    const isStored = status === 200 && (body?.continuation || body?.status === "late_answer_after_timeout");
    if (isStored || isUnknown) {
      await this.#leave(toolCallId, body.continuation);
      return;
    }
    const error = parseHelixError(status, status === 200 ? { error: "The acknowledgement was malformed." } : body);
    // What the same body cannot bring about later is not kept for "send again".
    if (!mayPass && status !== 401) this.#outbox.delete(toolCallId);
    if (!REREAD_CODES.includes(error.code)) {
      this.#report(error, { toolName: kept.toolName, toolCallId, phase: "submit" });
    }
    this.#error = error;
    this.#show();
    await this.#read();
    throw error;
  }

  /** The server has acknowledged: only now does the call leave the queue (I-26). */
  async #leave(toolCallId, continuation) {
    this.#outbox.delete(toolCallId);
    this.#outdated++;
    const pendingTools = this.#server.pendingTools.filter((call) => call.toolCallId !== toolCallId);
    this.#server = { ...this.#server, pendingTools };
    this.#error = null;
    this.#show();
    if (continuation?.kind === "caller_resumes") await this.#command("resume");
    await this.#read();
  }

  /** Posts the same body until it is answered for good, six times at most. `mayPass`: later it may still succeed. */
  async #insist(path, body, toolCallId) {
    const text = JSON.stringify(body);
    for (const wait of [...RESENDS_MS, null]) {
      const answer = await this.#link.request("POST", path, text);
      const { status } = answer;
      const mayPass = RESENT_STATUSES.includes(status) || answer.body?.code === "state_concurrency_conflict";
      if (!mayPass || wait === null) return { ...answer, mayPass };
      await this.#pause(answer.retryAfterMs ?? wait * (0.5 + this.#link.random() / 2));
      // After an unexpected failure the rows say whether there is still anything to deliver.
      const isOpen = status !== 500 || (toolCallId && (await this.#read()) && this.#pending(toolCallId));
      if (!isOpen || this.#closed) return { ...answer, mayPass };
    }
  }

  async #command(path) {
    const answer = await this.#link.request("POST", path, JSON.stringify({ sessionId: this.#id }));
    if (answer.status !== 200) throw this.#refused(answer);
    await this.#read();
  }

  #pause(ms) {
    return new Promise((resolve) => {
      const timer = this.#link.timers.set(() => {
        this.#timers.delete(timer);
        resolve();
      }, ms);
      this.#timers.add(timer);
    });
  }
}
