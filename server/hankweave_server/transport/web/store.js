/**
 * All that the page shows, from events and answers; views read it and are told when it changes.
 *
 * What is kept is bounded: the state, and slim records of checkpoints. Everything else is asked of the
 * server when somebody looks at it.
 */
import { at } from "./places.js";
import { asState, emptyState, fold } from "./state.js";

const ERRORS_KEPT = 50;
const PAGE = 1_000;
// They change the work tree.
const CHANGES = new Set(["file.updated", "files.changed", "checkpoint.rollback", "rollback.completed"]);

export class Store {
  /** @type {Set<() => void>} */
  listeners = new Set();
  /** @type {Set<(event: any) => void>} told of each event of the journal, when it happens */
  hearers = new Set();
  isScheduled = false;
  version = 0;
  /** @type {import("./client.js").Connection} */
  connection = { phase: "connecting", mode: null, retryAt: null, reason: "" };
  /** @type {any} */
  server = null;

  state = emptyState();
  isLoaded = false;
  /** @type {any[]} */
  early = [];
  /** @type {any[]} oldest first */
  checkpoints = [];
  /** @type {Map<string, any>} */
  bySha = new Map();
  /** @type {Map<string, number>} the seqs of those that were pruned while the page was open */
  pruned = new Map();
  checkpointsVersion = 0;
  areAllCheckpoints = false;
  filesVersion = 0; // Counts changes of the work tree.
  /** @type {Map<string, any>} */
  permissions = new Map();
  /** @type {Map<string, any>} */
  problems = new Map();
  /** @type {any[]} */
  errors = [];
  /** @type {{step: number, of: number, message: string} | null} */
  rollback = null;
  /** @type {Map<string, any>} long work that goes on, by its id */
  progress = new Map();
  isIdle = false;
  startedAt = ""; // When the server was.
  lastSeq = 0;
  /** @type {Map<string, any>} */
  retries = new Map();
  usage = 0;
  /** @type {{totalCost: number | null, budgetUsd: number | null, hankName: string | null, forecast: any}} */
  figures = { totalCost: null, budgetUsd: null, hankName: null, forecast: null };
  execution = 0; // Counts those that were served while the page was open.

  /** @param {import("./client.js").Ask} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** Forgets what was told: another execution is served. */
  reset() {
    const { listeners, hearers, connection, version, isScheduled } = this;
    const execution = this.execution + 1;
    const kept = { listeners, hearers, connection, version, isScheduled, execution };
    Object.assign(this, new Store(this.ask), kept);
    this.changed();
  }

  /** @param {() => void} listener */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    this.version += 1;
    if (this.isScheduled) return;

    this.isScheduled = true;
    // A hidden page gets no frames, and need not be drawn.
    requestAnimationFrame(() => {
      this.isScheduled = false;
      for (const listener of this.listeners) listener();
    });
  }

  /** @param {any} connection */
  connected(connection) {
    this.connection = connection;
    if (connection.phase !== "open") this.progress.clear(); // Nobody tells of its end now.
    this.changed();
  }

  /** Asks for what was before this page: once, after the first handshake. */
  async load() {
    const [state, status] = await Promise.all([this.ask("state.get"), this.ask("server.status")]);
    this.state = asState(state);
    this.#status(status);
    this.isLoaded = true;
    this.lastSeq = Math.max(this.lastSeq, state.lastEventSeq ?? 0);
    const early = this.early.splice(0);
    for (const event of early) this.#apply(event, event.seq > (state.lastEventSeq ?? 0));
    this.changed();
    await this.#loadCheckpoints();
  }

  /** What only the server can compute: the forecast changes with each codon that ends. */
  async readFigures() {
    this.#figures(await this.ask("server.status"));
    this.changed();
  }

  /** After a lost connection: what has no events is asked again. */
  async refresh() {
    this.#status(await this.ask("server.status"));
    this.changed();
  }

  /** @param {any} event */
  event(event) {
    if (!this.isLoaded) this.early.push(event);
    else this.#apply(event, true);
    this.lastSeq = Math.max(this.lastSeq, event.seq);
    for (const hear of this.hearers) hear(event);
    this.changed();
  }

  /** What is told to this client alone, or cannot be on record. @param {any} frame */
  frame(frame) {
    if (frame.type === "server.ready") {
      this.server = frame.data;
      this.lastSeq = Math.max(this.lastSeq, frame.data.lastEventSeq ?? 0);
    } else if (frame.type === "state.snapshot") {
      if (!frame.data.isRollingBack) this.rollback = null;
    } else {
      this.#fact(frame);
    }
    this.changed();
  }

  #apply(event, isNewToState) {
    if (event.type === "state.transition") {
      if (isNewToState) fold(this.state, event.data.transition);
      const { type, data } = event.data.transition;
      if (type === "CheckpointCreated") this.#addCheckpoint(data.checkpoint);
      return;
    }
    this.#fact(event);
  }

  /** @param {any} event */
  #fact(event) {
    const { type, data, seq, timestamp } = event;
    for (const hear of at("facts")) hear(this, event);
    if (CHANGES.has(type)) this.filesVersion += 1;
    switch (type) {
      case "permission.requested":
        this.permissions.set(data.requestId, data);
        break;
      case "permission.resolved":
        this.permissions.delete(data.requestId);
        break;
      case "codon.started":
        this.isIdle = false;
        this.retries.delete(data.codonId);
        break;
      case "codon.retrying":
        this.retries.set(data.codonId, { ...data, at: Date.parse(timestamp) + data.delayMs });
        break;
      case "codon.completed":
        for (const [id, asked] of this.permissions) {
          if (asked.codonId === data.codonId) this.permissions.delete(id);
        }
        if (this.isLoaded) this.readFigures().catch(() => undefined); // Or with the next one.
        break;
      case "server.idle":
        this.isIdle = true;
        this.retries.clear();
        break;
      case "server.degraded":
        this.problems.set(data.code, data);
        break;
      case "server.recovered":
        this.problems.delete(data.code);
        break;
      case "rollback.started":
        this.rollback = { step: 0, of: 1, message: "Rolling back" };
        break;
      case "rollback.progress":
        this.rollback = { step: data.currentStep, of: data.totalSteps, message: data.message };
        break;
      case "rollback.completed":
      case "checkpoint.rollback":
        this.rollback = null;
        break;
      case "rollback.failed":
        this.rollback = null;
        this.#error(seq, timestamp, data.message);
        break;
      case "store.progress":
        if (data.ended) this.progress.delete(data.operationId);
        else this.progress.set(data.operationId, data);
        break;
      case "error":
        this.#error(seq, timestamp, data.message);
        break;
      case "token.usage":
        this.usage += 1;
        break;
      case "checkpoint.pinned":
        this.#changeCheckpoint(data.checkpointSha, {
          pinned: data.pinned,
          name: data.pinned ? data.name : undefined,
        });
        break;
      case "checkpoint.pruned":
        this.#prune(new Set(data.checkpoints));
        break;
    }
  }

  #error(seq, timestamp, message) {
    this.errors.push({ seq: seq ?? 0, timestamp, message });
    if (this.errors.length > ERRORS_KEPT) this.errors.shift();
  }

  #status(status) {
    this.permissions = new Map(status.pendingPermissions?.map((each) => [each.requestId, each]));
    this.problems = new Map(status.problems?.map((each) => [each.code, each]));
    this.rollback = status.isRollingBack
      ? (this.rollback ?? { step: 0, of: 1, message: "Rolling back" })
      : null;
    this.isIdle = status.activeCodonId === null;
    this.startedAt = status.startedAt;
    this.#figures(status);
  }

  /** @param {any} status */
  #figures({ totalCost = null, budgetUsd = null, hankName = null, forecast = null }) {
    this.figures = { totalCost, budgetUsd, hankName, forecast };
  }

  // --- checkpoints ------------------------------------------------------------------------------

  /** The first checkpoint that has what an event told of. @param {number} seq */
  firstCheckpointAfter(seq) {
    return this.checkpoints.find((each) => each.seq >= seq) ?? null;
  }

  async #loadCheckpoints() {
    const bySha = this.bySha;
    let cursor;
    do {
      const page = await this.ask("checkpoint.list", { limit: PAGE, cursor });
      if (bySha !== this.bySha) return; // Another execution meanwhile.

      const older = page.checkpoints
        .reverse()
        .filter((each) => !bySha.has(each.sha))
        .map(slim);
      for (const each of older) bySha.set(each.sha, each);
      this.checkpoints = merged(older, this.checkpoints);
      cursor = page.cursor;
      this.checkpointsVersion += 1;
      this.changed();
    } while (cursor);
    this.areAllCheckpoints = true;
    performance.mark("hankweave: complete"); // For `scripts/bench ui`.
    this.changed();
  }

  #addCheckpoint(record) {
    if (this.bySha.has(record.sha)) return;

    const added = slim(record);
    this.bySha.set(added.sha, added);
    this.checkpoints.push(added);
    this.checkpointsVersion += 1;
  }

  #changeCheckpoint(sha, changes) {
    const found = this.bySha.get(sha);
    if (found === undefined) return;

    const changed = { ...found, ...changes };
    this.bySha.set(sha, changed);
    this.checkpoints[this.checkpoints.indexOf(found)] = changed;
    this.checkpointsVersion += 1;
  }

  #prune(shas) {
    for (const sha of shas) {
      this.pruned.set(sha, this.bySha.get(sha)?.seq ?? 0);
      this.bySha.delete(sha);
    }
    this.checkpoints = this.checkpoints.filter((each) => !shas.has(each.sha));
    this.checkpointsVersion += 1;
  }
}

/**
 * What lists and pictures need of a record; ten thousand of them are kept.
 * @param {import("hankweave").CheckpointRecord} record
 */
function slim({ sha, kind, coordinate, codonName, timestamp, label, summary, partial, pinned, name }) {
  const { runId, codonId, codonState, eventSeq } = coordinate;
  return {
    sha,
    kind,
    runId,
    codonId,
    codonState,
    seq: eventSeq,
    codonName,
    timestamp,
    label,
    summary,
    partial,
    pinned,
    name,
  };
}

/** Pages come newest first, and new checkpoints meanwhile: all in the order they were made. */
function merged(older, newer) {
  return [...older, ...newer].sort(
    (a, b) => a.seq - b.seq || a.timestamp.localeCompare(b.timestamp),
  );
}
