/**
 * A server in the hands of a test: answers wait until they are told to go, clocks stand still until they are fired.
 * Evaluated in a page; `world()` makes one of everything.
 */
async function world({ tools = {}, snapshot = {}, ...options } = {}) {
  const library = await import("/static/helix/helix.js");
  const it = {
    library,
    requests: [],
    sockets: [],
    waits: [],
    reports: [],
    ran: [],
    // What each route answers next; a function of the request, or a list that is used up.
    routes: {},
    snapshot: {
      sessionId: "s", agentType: "a", status: "idle", streamStatus: "ended", canSend: true, canCancel: false,
      pendingTools: [], messages: [], state: {}, runId: "r", streamSequence: 10, ...snapshot,
    },
  };
  let ids = 0;
  const stored = { status: "accepted", continuation: { kind: "awaiting_batch" } };
  const usual = {
    snapshot: () => [200, it.snapshot],
    claim: () => [200, { claimed: true }],
    submit: () => [200, stored],
    messages: () => [200, { runId: "r", startSequence: 11 }],
    sessions: () => [201, { sessionId: "s" }],
  };
  const routeOf = (method, path) =>
    method === "GET" ? "snapshot" : ["claim", "messages", "submit"].find((name) => path.includes(name)) ?? path;
  const connection = {
    random: () => 1,
    newId: () => `id-${++ids}`,
    timers: {
      set: (run, ms) => it.waits.push({ run, ms }) && it.waits.at(-1),
      clear: (wait) => (it.waits = it.waits.filter((one) => one !== wait)),
    },
    async request(method, path, body) {
      const asked = { method, path, route: routeOf(method, path), body: body === undefined ? null : JSON.parse(body) };
      it.requests.push(asked);
      const planned = it.routes[asked.route];
      const next = Array.isArray(planned) ? planned.shift() : planned;
      const made = next ?? usual[asked.route];
      const [status, answer, retryAfterMs = null] = await (typeof made === "function" ? made(asked) : made);
      return { status, body: answer, retryAfterMs };
    },
    listen(path, on) {
      const socket = { path, ...on, closed: false };
      it.sockets.push(socket);
      return () => (socket.closed = true);
    },
  };
  /** Lets everything happen that can happen without a clock or the server. */
  it.settle = async () => {
    for (let turn = 0; turn < 200; turn++) await Promise.resolve();
  };
  /** Fires every clock that is set now; returns how long each would have waited. */
  it.fire = async () => {
    const due = it.waits;
    it.waits = [];
    for (const { run } of due) run();
    await it.settle();
    return due.map(({ ms }) => ms);
  };
  it.sent = (route) => it.requests.filter((one) => one.route === route);
  it.event = async (sequence, payload, live = true) => {
    const socket = it.sockets.at(-1);
    socket.onFrame({
      type: "event", sequence, live, payload: { sequence, sessionId: "s", agentId: "s", runId: "r", ...payload },
    });
    await it.settle();
  };
  it.toolStart = (sequence, { id = "c1", name = "work", live = true, kind = "client", text = '{"n":1}' } = {}) =>
    it.event(sequence, { type: "tool_start", toolCallId: id, toolName: name, kind, argumentsJson: text }, live);
  it.pending = (id = "c1", more = {}) => ({
    toolCallId: id, toolName: "work", kind: "client", argumentsJson: '{"n":1}', argumentsDigest: "d1", runId: "r",
    ...more,
  });
  it.gate = () => {
    const gate = {};
    gate.opened = new Promise((resolve) => (gate.open = resolve));
    return gate;
  };
  const counted = Object.fromEntries(Object.entries(tools).map(([name, body]) => [
    name, (args, context) => (it.ran.push({ name, args, id: context.toolCallId }), body(args, context)),
  ]));
  it.talk = library.openConversation({
    connection, tools: counted, sessionId: "s",
    onClientToolError: (error, about) => it.reports.push({ text: String(error.message), code: error.code, ...about }),
    ...options,
  });
  await it.settle();
  it.sockets.at(-1)?.onFrame({ type: "head", sequence: it.snapshot.streamSequence });
  await it.settle();
  return it;
}
