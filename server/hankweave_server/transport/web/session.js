/** What joins the page: one client, one store, who may do what, and what is looked at. */
import { Client, Refused } from "./client.js";
import { Store } from "./store.js";

const NOTE_STAYS = 12_000;
const TABS = ["live", "time", "events", "cost"];

/**
 * @typedef {{sha: string, path?: string} | {seq: number} | null} Moment
 * @typedef {{tab: string, moment: Moment, dialog: any, note: string, query: any}} Looks
 */

export class Session {
  /** @param {Location} location */
  constructor(location) {
    // The fragment of an address is sent to no server and stands in no log.
    const token = named(location.hash.slice(1)) ?? named(location.search);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    /** @type {Looks} */
    this.looks = { tab: "live", moment: null, dialog: null, note: "", query: null };
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

  /** @param {Partial<Looks>} changes */
  look = (changes) => {
    this.looks = { ...this.looks, ...changes };
    if (changes.note) {
      clearTimeout(this.noteTimer);
      this.noteTimer = setTimeout(() => this.say(""), NOTE_STAYS);
    }
    for (const listener of this.listeners) listener();
  };

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
      this.look({ moment: null, dialog: null });
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

  /** Shows what the address names: `view=cost`, `checkpoint=SHA` or `event=SEQ`. */
  #showWanted() {
    const wanted = new URLSearchParams(this.wanted.slice(1));
    this.wanted = "";
    const [tab, sha, seq] = ["view", "checkpoint", "event"].map((name) => wanted.get(name));
    if (tab !== null && TABS.includes(tab)) this.look({ tab, dialog: null });
    if (sha !== null && /^[0-9a-f]{4,40}$/.test(sha))
      this.look({ tab: "time", moment: { sha }, dialog: null });
    if (seq !== null && /^[1-9]\d{0,14}$/.test(seq)) this.try(() => this.#showEvent(Number(seq)));
  }

  /** @param {number} seq */
  async #showEvent(seq) {
    const { events = [] } = await this.ask("events.query", { since: seq - 1, until: seq, limit: 1 });
    if (events.length === 0) this.say(`There is no event ${seq}.`);
    else this.look({ tab: "events", dialog: { kind: "event", event: events[0] } });
  }
}

/** @param {string} parameters */
function named(parameters) {
  return new URLSearchParams(parameters).get("token");
}
