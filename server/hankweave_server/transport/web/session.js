/** What joins the page: one client, one store, who may do what, and what is looked at. */
import { Client, Refused } from "./client.js";
import { Store } from "./store.js";

const NOTE_STAYS = 12_000;

/** The tabs of a step; features have others. */
export const TABS = ["transcript", "changes", "files", "checkpoints", "events"];

// Of links that were made before there were steps to look at.
/** @type {Record<string, Partial<Looks>>} */
const VIEWS = {
  live: { tab: "transcript" },
  time: { tab: "checkpoints" },
  events: { tab: "events" },
  cost: { dialog: { kind: "cost" } },
};
const OWN = ["view", "step", "tab", "checkpoint", "path", "at", "compare", "event"];
const NOW = "now";
const SHA = /^[0-9a-f]{4,40}$/;
const TAB = /^[a-z]+$/; // One that is not there is shown as the transcript.
const SEQ = /^[1-9]\d{0,14}$/;

/**
 * @typedef {{sha: string, path?: string, call?: number} | {seq: number} | null} Moment `call`: the event of a call before it
 * @typedef {{from: string, to: string | null} | null} Comparison `to`: null for the present
 * @typedef {{step: string | null, tab: string, moment: Moment, compare: Comparison, index: boolean,
 *   pick: string | null, dialog: any, report: any,
 *   note: string, query: any}} Looks
 *   What is looked at: `step` is a codon by its id in the plan, null to follow the run; `moment` is
 *   null for the present; `index`: the list of executions is shown instead; `pick` is the checkpoint
 *   that another one is to be compared with; `report`: of the rollback that was made here, until it
 *   is closed. All but pick, report, note and query is in the address.
 */

export class Session {
  /** @param {Location} location */
  constructor(location) {
    // The fragment of an address is sent to no server and stands in no log.
    const token = named(location.hash.slice(1)) ?? named(location.search);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    /** @type {Looks} */
    this.looks = { ...NOTHING, index: isIndex(new URLSearchParams(location.hash.slice(1))), dialog: null, report: null, note: "", query: null };
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.wasOpen = false;
    this.noteTimer = 0;
    this.wanted = location.hash; // What the address wants shown, until there is a connection.
    this.store = new Store(this.ask);
    this.client = new Client(`${scheme}//${location.host}/ws`, {
      token,
      name: "Hankweave's page",
      progress: true,
      onEvent: (event) => this.store.event(event),
      onFrame: (frame) => this.#frame(frame),
      onConnection: (connection) => this.#connected(connection),
    });
    this.client.open();
    addEventListener("hashchange", () => {
      this.wanted = location.hash;
      if (this.wasOpen) this.#showWanted();
    });
  }

  /** @type {import("./client.js").Ask} */
  ask = (type, data) => this.client.ask(type, data);

  /**
   * Changes what is looked at, the only way to do so, and writes it into the address. What can be
   * gone back to is an entry of the history; `isStep` is for one of many in a row, such as a key
   * that is held down, which replaces the entry before it.
   * @param {Partial<Looks>} changes @param {{isStep?: boolean}} [how]
   */
  look = (changes, { isStep = false } = {}) => {
    this.#take(changes);
    const address = addressOf(this.looks);
    if (address === `#${new URLSearchParams(location.hash.slice(1))}`) return;

    if (isStep) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
  };

  /** @param {Partial<Looks>} changes */
  #take(changes) {
    this.looks = { ...this.looks, ...changes };
    if (changes.note) {
      clearTimeout(this.noteTimer);
      this.noteTimer = setTimeout(() => this.say(""), NOTE_STAYS);
    }
    for (const listener of this.listeners) listener();
  }

  /** Why nothing can be changed from here; null where it can. */
  get obstacle() {
    const { phase, mode } = this.store.connection;
    if (phase !== "open") return "There is no connection.";
    if (mode === "readonly") return "This link is read-only.";
    return this.store.rollback === null ? null : "A rollback is in progress.";
  }

  /** The run that is looked at, ended or not: whoever acts on an older view of it is refused. */
  get guard() {
    const run = this.store.state.runs[0]?.runId;
    return run === undefined ? {} : { expectedRunId: run };
  }

  /**
   * Does something, and says in a sentence that it was done, or why not.
   * @param {string} done
   * @param {keyof import("hankweave").Commands} type
   * @param {object} [data]
   */
  act = (done, type, data = {}) =>
    this.try(async () => {
      await this.client.ask(type, { ...this.guard, ...data });
      this.say(done);
    });

  /** Does something, and says why where it fails. @param {() => Promise<void>} what */
  try = async (what) => {
    try {
      await what();
    } catch (error) {
      const { message, hint } = /** @type {Refused} */ (error);
      this.say(hint ? `${message} ${hint}` : message);
    }
  };

  /** @param {string} note */
  say = (note) => this.look({ note });

  /** @param {string} token */
  tryToken = (token) => {
    this.client.token = token.trim();
    this.client.open();
    // For whoever loads the page anew.
    history.replaceState(null, "", `#${new URLSearchParams({ token: this.client.token })}`);
  };

  #frame(frame) {
    if (frame.type === "client.otherExecution") {
      this.wasOpen = false;
      this.store.reset();
      this.look({ ...NOTHING, dialog: null, report: null }, { isStep: true });
      this.say("This address now serves another execution.");
      return;
    }
    this.store.frame(frame);
  }

  #connected(connection) {
    const { store } = this;
    store.connected(connection);
    if (connection.phase !== "open") return;

    const first = !this.wasOpen;
    this.wasOpen = true;
    if (first) this.#showWanted();
    (first ? store.load() : store.refresh()).catch((error) => {
      if (first) this.wasOpen = false; // The next connection begins anew.
      this.say(error.message);
    });
  }

  /** Shows what the address names, and what Back or Forward leads to. */
  #showWanted() {
    const { event, ...looks } = looksOf(new URLSearchParams(this.wanted.slice(1)));
    this.wanted = "";
    this.#take(looks);
    if (event !== null) this.try(() => this.#showEvent(event));
    else this.look({}, { isStep: true }); // As this page writes it.
  }

  /** @param {number} seq */
  async #showEvent(seq) {
    const { events = [] } = await this.ask("events.query", { since: seq - 1, until: seq, limit: 1 });
    if (events.length === 0) this.say(`There is no event ${seq}.`);
    else this.look({ dialog: { kind: "event", event: events[0] } }, { isStep: true });
  }
}

/** @type {Pick<Looks, "step" | "tab" | "moment" | "compare" | "index" | "pick">} */
const NOTHING = { step: null, tab: "transcript", moment: null, compare: null, index: false, pick: null };

/** @param {URLSearchParams} wanted */
const isIndex = (wanted) => wanted.get("view") === "executions";

/**
 * What an address names: `view=executions`, `step=ID`, `tab=NAME`, `checkpoint=SHA` with `path=PATH`,
 * `at=SEQ`, `compare=SHA..SHA` (or `..now`), `event=SEQ`. What it cannot name is left out.
 * @param {URLSearchParams} wanted
 */
export function looksOf(wanted) {
  const [view, step, tab, sha, path, at, compare, event] = OWN.map((name) => wanted.get(name));
  const [from, to] = (compare ?? "").split("..");
  const isMoment = sha !== null && SHA.test(sha);
  return {
    ...NOTHING,
    dialog: null,
    ...(isMoment && path !== null ? { tab: "files" } : {}),
    ...VIEWS[view ?? ""],
    ...(tab !== null && TAB.test(tab) ? { tab } : {}),
    index: isIndex(wanted),
    step: step || null,
    moment: momentOf(isMoment ? sha : null, path, at),
    compare: SHA.test(from) && (to === NOW || SHA.test(to ?? "")) ? { from, to: to === NOW ? null : to } : null,
    event: event !== null && SEQ.test(event) ? Number(event) : null,
  };
}

/** @returns {Moment} */
function momentOf(
  /** @type {string | null} */ sha,
  /** @type {string | null} */ path,
  /** @type {string | null} */ at,
) {
  if (sha !== null) return path === null ? { sha } : { sha, path };
  return at !== null && SEQ.test(at) ? { seq: Number(at) } : null;
}

/** @param {Looks} looks */
function addressOf({ index, step, tab, moment, compare, dialog }) {
  const address = new URLSearchParams(location.hash.slice(1));
  for (const name of OWN) address.delete(name);
  /** @type {Record<string, string | number | null | undefined>} */
  const own = {
    view: index ? "executions" : null,
    step,
    tab: tab === NOTHING.tab ? null : tab,
    checkpoint: moment && "sha" in moment ? moment.sha : null,
    path: moment && "sha" in moment ? moment.path : null,
    at: moment && "seq" in moment ? moment.seq : null,
    compare: compare && `${compare.from}..${compare.to ?? NOW}`,
    event: dialog?.kind === "event" ? dialog.event.seq : null,
  };
  for (const [name, value] of Object.entries(own)) if (value != null) address.set(name, `${value}`);
  const text = address.toString();
  return `#${text}`;
}

/** @param {string} parameters */
function named(parameters) {
  return new URLSearchParams(parameters).get("token");
}
