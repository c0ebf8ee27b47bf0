/** Types of `helix.js`. Unknown statuses, codes, kinds and fields are tolerated everywhere. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Open<Known extends string> = Known | (string & {});

export type SessionStatus = Open<
  "idle" | "queued" | "running" | "awaiting_client_tool" | "stopping" | "interrupted" | "failed" | "completed"
>;

export interface PendingTool {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly kind: Open<"client" | "approval">;
  /** The model's text, character for character. */
  readonly argumentsJson: string;
  readonly argumentsDigest: string;
  readonly approvalId?: string;
  readonly schemaDigest?: string;
  readonly runId: string;
  readonly agentType: string;
  readonly agentPath: readonly string[];
  readonly createdAt: string;
  readonly exposedAt: string;
  /** null: it waits until it is answered or stopped. */
  readonly deadlineAt: string | null;
  readonly claimed: boolean;
  /** This page's answer is on its way. */
  readonly delivering: boolean;
  /** This page has an answer that could not be delivered; see `sendAgain`. */
  readonly undelivered: boolean;
  /** This page's handler is at work on it. */
  readonly running: boolean;
}

export interface MessagePart {
  readonly type: Open<"text" | "reasoning" | "tool_call" | "tool_result" | "file">;
  readonly [field: string]: unknown;
}

export interface Message {
  readonly id: string;
  readonly role: Open<"user" | "assistant" | "tool">;
  readonly parts: readonly MessagePart[];
  readonly toolCallId?: string;
  readonly errorCode?: string;
  readonly helixInterrupted?: { readonly stop: string };
  /** Waits on a run; stands at its future place. */
  readonly pending?: true;
  /** Is being written. */
  readonly draft?: true;
}

export interface Snapshot {
  readonly status: SessionStatus;
  readonly streamStatus: Open<"active" | "paused" | "ended" | "failed">;
  readonly canSend: boolean;
  readonly canCancel: boolean;
  readonly pendingTools: readonly PendingTool[];
  readonly messages: readonly Message[];
  readonly streamSequence: number;
  readonly runId: string | null;
  readonly state: { readonly [key: string]: Json };
  readonly agentType?: string;
  readonly sessionId?: string;
  readonly timestamp?: string;
  readonly errorDetail?: { readonly [field: string]: Json };
  /** Whether new events arrive at once. */
  readonly connected: boolean;
  /** The last refusal, until something succeeds. */
  readonly error: HelixError | null;
}

export interface HandlerContext {
  readonly abortSignal: AbortSignal;
  readonly toolCallId: string;
  readonly toolName: string;
}
/** Returns any JSON value, or throws. `undefined` counts as a failure. */
export type ToolHandler = (args: any, context: HandlerContext) => unknown | Promise<unknown>;
export type ToolTable = { readonly [toolName: string]: ToolHandler };

export interface Answer {
  readonly status: number;
  readonly body: any;
  readonly retryAfterMs: number | null;
}
export interface Connection {
  request(method: string, path: string, body?: string): Promise<Answer>;
  listen(
    path: string,
    on: { onFrame(frame: { type: string; [field: string]: unknown }): void; onClose(code: number): void },
  ): () => void;
  random(): number;
  newId(): string;
  readonly timers: { set(run: () => void, ms: number): unknown; clear(timer: any): void };
}
export interface ConnectOptions {
  api?: string;
  socket?: string;
  headers?: { readonly [name: string]: string };
  protocols?: readonly string[];
  fetch?: typeof globalThis.fetch;
  WebSocket?: typeof globalThis.WebSocket;
  random?: Connection["random"];
  newId?: Connection["newId"];
  timers?: Connection["timers"];
}
export function connect(options?: ConnectOptions): Connection;

export interface ConversationOptions {
  connection?: Connection;
  /** Opens this conversation; without it the first message starts one with `agentType`. */
  sessionId?: string;
  agentType?: string;
  tools?: ToolTable;
  onClientToolError?(
    error: unknown,
    about: { toolName: string; toolCallId: string; phase: "handler" | "submit" },
  ): void;
}

export interface Conversation {
  readonly ready: Promise<void>;
  readonly snapshot: Snapshot;
  readonly sessionId: string | undefined;
  subscribe(listener: () => void): () => void;
  setTools(tools: ToolTable): void;
  send(
    message: string | readonly MessagePart[],
    options?: { abandonPending?: boolean; metadata?: { [key: string]: Json } },
  ): Promise<void>;
  stop(options?: { hard?: boolean }): Promise<void>;
  submitToolResult(toolCallId: string, result: unknown): Promise<void>;
  submitToolError(toolCallId: string, text: string): Promise<void>;
  decide(
    toolCallId: string,
    verdict: { approved: boolean; reason?: string; editedArguments?: { [key: string]: Json } },
  ): Promise<void>;
  /** Runs the handler of a pending client call because somebody asked for it. */
  runPending(toolCallId: string): Promise<void>;
  /** Delivers once more an answer that could not be delivered; no handler runs. */
  sendAgain(toolCallId: string): Promise<void>;
  retry(): Promise<void>;
  close(): void;
}
export function openConversation(options: ConversationOptions): Conversation;

export interface SessionRow {
  readonly sessionId: string;
  readonly clientId: string | null;
  readonly agentType: string;
  readonly status: SessionStatus;
  readonly waitingSince: string | null;
  readonly tags: readonly string[];
  readonly metadata: { readonly [key: string]: Json };
  readonly createdAt: string;
  readonly updatedAt: string;
}
export function listConversations(query: {
  connection: Connection;
  status?: SessionStatus;
  agentType?: string;
  tag?: string;
  limit?: number;
  cursor?: string;
}): Promise<{ readonly sessions: readonly SessionRow[]; readonly nextCursor: string | null }>;

export class HelixError extends Error {
  readonly code: string;
  readonly retryable: boolean;
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  readonly cause?: string;
  readonly limitBytes?: number;
  readonly sizeBytes?: number;
  readonly reason?: string;
  readonly toolCallIds?: readonly string[];
  readonly [field: string]: unknown;
}
export class PayloadTooLargeError extends HelixError {}
export class RunSupersededError extends HelixError {}
export function parseHelixError(status: number, body: unknown): HelixError;
export function isKnownErrorCode(code: string): boolean;
export function isClientToolErrorCode(code: string): boolean;
