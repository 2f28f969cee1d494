/**
 * A client of a Hankweave server, for browsers (and any JavaScript that has `WebSocket`).
 *
 * It knows the public protocol and nothing of this page: copy it. It keeps the newest event that it
 * has told, by its `seq` and `id`, and so loses and repeats nothing when the connection breaks, and
 * knows another execution from the one that it followed. A command whose answer was lost with the
 * connection is sent again, byte for byte: the server does it once and answers the same. Only a
 * server that was started again meanwhile does not know whether it was done; nor do we then.
 *
 *   const client = new Client("ws://127.0.0.1:43127/ws", { token, onEvent: (event) => … });
 *   client.open();
 *   const state = await client.ask("state.get");
 */

/**
 * @typedef {"closed" | "connecting" | "open" | "waiting" | "refused"} Phase
 *   `waiting`: until the next attempt. `refused`: the token does not hold; another one is needed.
 * @typedef {{phase: Phase, mode: string | null, retryAt: number | null, reason: string}} Connection
 * @typedef {{id: string, seq?: number, timestamp: string, type: string, data: any, runId?: string,
 *   codonId?: string, causes?: (number | string)[]}} WireEvent
 * @typedef {<T extends keyof import("hankweave").Commands>(type: T,
 *   data?: import("hankweave").Commands[T]) => Promise<import("hankweave").Replies[T]>} Ask
 * @typedef {{resolve: (data: any) => void, reject: (error: Error) => void, frame: string,
 *   isLook: boolean}} Waiting
 */

const FIRST_DELAY = 300;
const LONGEST_DELAY = 10_000;
const QUIET = 25_000; // Milliseconds without a frame, after which the client asks whether all is well.
const PATIENCE = 10_000;
const LARGEST = 1_000_000; // Bytes of a frame, of which the server takes no larger ones.
const NEEDS_TOKEN = 1008;
// What changes nothing, and can be asked of any server as often as one likes.
const LOOKS = new Set([
  "checkpoint.diff",
  "checkpoint.list",
  "checkpoint.readFile",
  "codon.readPrompt",
  "codon.readResult",
  "events.query",
  "executions.address",
  "executions.list",
  "ping",
  "replay.view",
  "rollback.preview",
  "server.status",
  "state.get",
]);

/** What the server refused, with its code, and a hint where it has one. */
export class Refused extends Error {
  /** @param {{code: string, message: string, hint?: string, path?: string}} failure */
  constructor({ code, message, hint, path }) {
    super(message);
    this.code = code;
    this.hint = hint;
    this.path = path;
  }
}

export class Client {
  /**
   * @param {string} url
   * @param {{token?: string | null, mode?: "readonly" | "readandwrite", name?: string,
   *   progress?: boolean, sinceSeq?: number | null, onEvent?: (event: WireEvent) => void,
   *   onFrame?: (frame: any) => void, onConnection?: (connection: Connection) => void}} [options]
   *   `sinceSeq`: the newest event one has already; null: only what happens from now on.
   *   `progress`: whether one wants to know how far long work is.
   *   `onEvent` gets the journal's events in order; `onFrame` all else that the server says.
   */
  constructor(url, options = {}) {
    this.url = url;
    this.token = options.token ?? null;
    /** @type {number | null} */
    this.lastSeq = options.sinceSeq ?? null;
    /** @type {string | null} the id of that event, once it is known */
    this.lastId = null;
    this.checking = ""; // The id of the question whether this is what was followed before.
    /** @type {Connection} */
    this.connection = { phase: "closed", mode: null, retryAt: null, reason: "" };
    this.options = options;
    this.delay = FIRST_DELAY;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {Map<string, Waiting>} */
    this.waiting = new Map();
    this.timer = 0;
    this.watch = 0;
  }

  open() {
    this.#drop();
    this.#become({ phase: "connecting" });
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onopen = () => this.#greet(socket);
    socket.onmessage = (message) => this.#hear(JSON.parse(message.data));
    socket.onclose = (event) => this.#lost(event.code, event.reason);
  }

  /** Ends the connection for good; what still waits for an answer is rejected. */
  close() {
    this.#drop();
    this.#become({ phase: "closed" });
    for (const { reject } of this.waiting.values()) reject(new Error("The client was closed."));
    this.waiting.clear();
  }

  /** Tries at once, where it waits for the next attempt. */
  retryNow() {
    if (this.connection.phase === "waiting") this.open();
  }

  /**
   * Sends a command and gives its answer's data; throws `Refused` where the server refuses.
   * @type {Ask}
   */
  ask = (type, data) => {
    const id = newId();
    const frame = JSON.stringify({ id, type, data: data ?? {} });
    // It would cost the connection, and again each time that it is sent again.
    if (frame.length > LARGEST / 3 && new TextEncoder().encode(frame).length > LARGEST)
      return Promise.reject(new Error("The request is too large."));

    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, frame, isLook: LOOKS.has(type) });
      if (this.connection.phase === "open" && this.checking === "") this.#send(id);
    });
  };

  /** @param {WebSocket} socket */
  #greet(socket) {
    const { mode = "readandwrite", name, progress } = this.options;
    /** @type {Record<string, unknown>} */
    const data = { mode, protocolVersion: 1 };
    if (this.lastSeq !== null) data.sinceSeq = this.lastSeq;
    if (this.token) data.token = this.token;
    if (name) data.clientName = name;
    if (progress) data.progress = true;
    socket.send(JSON.stringify({ type: "handshake", data }));
  }

  /** @param {any} frame */
  #hear(frame) {
    this.#keepWatch();
    if (frame.type === "command.succeeded" || frame.type === "command.failed") {
      this.#answer(frame);
    } else if (frame.type === "handshake.response") {
      this.#welcome(frame.data);
    } else if (frame.seq) {
      if (this.lastSeq !== null && frame.seq <= this.lastSeq) return;
      this.lastSeq = frame.seq;
      this.lastId = frame.id;
      this.options.onEvent?.(frame);
    } else {
      this.options.onFrame?.(frame);
    }
  }

  /** @param {{mode: string, totalEvents: number}} data */
  #welcome({ mode, totalEvents }) {
    this.delay = FIRST_DELAY;
    this.lastSeq ??= totalEvents;
    if (this.lastId !== null) this.#check(this.lastSeq, this.lastId);
    this.#become({ phase: "open", mode });
    if (this.lastId === null) {
      this.#goOn();
      this.#identify(this.lastSeq);
    }
  }

  /** Learns the id of the newest event before this connection. @param {number} seq */
  async #identify(seq) {
    if (seq === 0) return;

    try {
      const { events } = await this.ask("events.query", { since: seq - 1, until: seq });
      const [event] = /** @type {any[]} */ (events ?? []);
      if (this.lastSeq === seq) this.lastId = event?.id ?? null;
    } catch {
      // Then the next event tells.
    }
  }

  /**
   * Asks whether the event that was the newest one is still what it was, and whether the server was
   * started since; only then is anything sent again.
   * @param {number} seq
   * @param {string} id
   */
  #check(seq, id) {
    this.#first({ since: seq - 1, until: seq, limit: 1 }, (event) => {
      if (event?.id !== id) return this.#leave();

      const started = { types: ["server.started"], since: seq, limit: 1 };
      this.#first(started, (start) => this.#goOn(start !== undefined));
    });
  }

  /**
   * Asks for the first event that a query finds, before all that waits.
   * @param {object} data @param {(event: any) => void} then
   */
  #first(data, then) {
    this.checking = newId();
    const frame = JSON.stringify({ id: this.checking, type: "events.query", data });
    /** @param {{events?: any[]}} answer */
    const resolve = ({ events = [] }) => then(events[0]);
    this.waiting.set(this.checking, { resolve, reject: () => this.#goOn(), frame, isLook: true });
    this.#send(this.checking);
  }

  /** Sends what waits for an answer. @param {boolean} [isNewServer] */
  #goOn(isNewServer = false) {
    this.checking = "";
    for (const [id, { reject, isLook }] of this.waiting) {
      if (isLook || !isNewServer) {
        this.#send(id);
        continue;
      }
      this.waiting.delete(id);
      reject(new Error("The server was restarted. Check whether the command was carried out."));
    }
  }

  /** Another execution is served: nothing that was told is true of it, or was meant for it. */
  #leave() {
    this.lastSeq = this.lastId = null;
    this.checking = "";
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    for (const { reject } of waiting) reject(new Error("This address now serves another execution."));
    this.options.onFrame?.({ type: "client.otherExecution", data: {} });
    this.open();
  }

  /** @param {any} frame */
  #answer({ type, inReplyTo, data }) {
    const waiting = this.waiting.get(inReplyTo);
    if (waiting === undefined) {
      if (inReplyTo === null && this.connection.phase === "connecting") this.#unwelcome(data);
      return;
    }

    this.waiting.delete(inReplyTo);
    if (type === "command.succeeded") waiting.resolve(data);
    else waiting.reject(new Refused(data));
  }

  /**
   * The handshake was refused. Where it was for `sinceSeq`, this is another execution than the one
   * that was followed: nothing that was told is true of it.
   * @param {{code: string, message: string, path?: string}} failure
   */
  #unwelcome(failure) {
    this.#become({ reason: failure.message });
    if (failure.path?.endsWith("sinceSeq")) this.#leave();
  }

  /** @param {string} id */
  #send(id) {
    const frame = this.waiting.get(id)?.frame;
    if (frame !== undefined && this.socket?.readyState === WebSocket.OPEN) this.socket.send(frame);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    this.#drop();
    if (code === NEEDS_TOKEN) {
      this.#become({ phase: "refused", mode: null, reason });
      return;
    }

    const wait = this.delay * (0.75 + Math.random() / 2);
    this.delay = Math.min(this.delay * 2, LONGEST_DELAY);
    this.#become({ phase: "waiting", retryAt: Date.now() + wait, reason });
    this.timer = setTimeout(() => this.open(), wait);
  }

  /** Forgets the socket without waiting for the other end, which may be gone. */
  #drop() {
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.waiting.delete(this.checking);
    this.checking = "";
    const socket = this.socket;
    this.socket = null;
    if (socket === null) return;

    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** A connection can die without a word: after some silence it has to prove that it lives. */
  #keepWatch() {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      if (this.connection.phase !== "open") return;

      this.socket?.send(JSON.stringify({ id: newId(), type: "ping", data: {} }));
      this.watch = setTimeout(() => this.#lost(0, "The server did not answer."), PATIENCE);
    }, QUIET);
  }

  /** @param {Partial<Connection>} changes */
  #become(changes) {
    this.connection = { ...this.connection, retryAt: null, ...changes };
    this.options.onConnection?.(this.connection);
  }
}

/** Unique without `crypto.randomUUID`, which pages without TLS beyond loopback do not have. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `ui-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
