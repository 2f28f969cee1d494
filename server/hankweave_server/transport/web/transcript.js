/**
 * One step's transcript: pages of the journal by their seqs, of which those seen last are kept, and
 * at the end what happens now. A page is asked for when somebody looks at it, so the beginning of a
 * step of a million events is as near as its end.
 */
import { ASKED, blocksOf, isShown } from "./blocks.js";

const SPAN = 400; // Seqs of one page.
const PAGES_KEPT = 30;
const AT_ONCE = 2; // Questions on their way; who drags the scroll bar passes hundreds of pages.
const NEWEST_KEPT = 2 * SPAN; // Events that are kept until the page they belong to is there.
const SEARCHED_AT_ONCE = 50_000; // Seqs; between two such questions others are answered.
const MOST_FOUND = 5_000;
const SAYING = 5; // Events that are asked for where one is wanted: others may speak of it.
const FAR = 5; // Pages without a block that are looked through for one.

/**
 * @typedef {{events: any[], later: any[], upTo: number, blocks: import("./blocks.js").Block[],
 *   isFolded: boolean}} Page
 *   `later`: results of its calls that stand on later pages; `upTo`: the newest seq it knows of.
 */

export class Transcript {
  /**
   * @param {import("./client.js").Ask} ask
   * @param {{since: number, until: number, isOpen: boolean}} range the seqs after `since`, up to
   *   `until`; `isOpen`: more may come
   * @param {() => void} changed
   */
  constructor(ask, { since, until, isOpen }, changed) {
    this.ask = ask;
    this.since = since;
    this.until = until;
    this.isOpen = isOpen;
    this.changed = changed;
    /** @type {Map<number, Page>} by number; the one looked at last is the last one */
    this.pages = new Map();
    /** @type {Set<number>} */
    this.asked = new Set();
    /** @type {number[]} the pages that are looked at */
    this.wanted = [];
    /** @type {any[]} */
    this.newest = [];
    this.heardFrom = Infinity;
    /** @type {Error | null} */
    this.error = null;
  }

  /** The number of pages. */
  get count() {
    return Math.max(1, Math.ceil((this.until - this.since) / SPAN));
  }

  /** @param {number} seq */
  pageOf(seq) {
    return Math.min(this.count - 1, Math.max(0, Math.floor((seq - this.since - 1) / SPAN)));
  }

  /** The blocks of a page; undefined until they are there. @param {number} number */
  at(number) {
    const page = this.pages.get(number);
    if (page === undefined) return undefined;

    if (!page.isFolded) {
      const before = new Map(page.blocks.map((block) => [block.key, block]));
      page.blocks = blocksOf([...page.events, ...page.later], before);
      page.isFolded = true;
    }
    return page.blocks;
  }

  /** Sees to it that these pages come. @param {number} first @param {number} last */
  want(first, last) {
    this.wanted = [];
    for (let number = Math.max(0, first); number <= Math.min(last, this.count - 1); number += 1) {
      const page = this.pages.get(number);
      if (page !== undefined) {
        this.pages.delete(number);
        this.pages.set(number, page);
      }
      if (page === undefined || page.upTo < this.#endOf(number)) this.wanted.push(number);
    }
    this.#goOn();
  }

  /** From now on it is told of everything that happens. @param {number} last the newest seq */
  listen(last) {
    if (this.isOpen) this.until = Math.max(this.until, last);
    this.heardFrom = this.until + 1;
  }

  /** Something happens now. @param {any} event @param {boolean} isOwn whether it is of this step */
  add(event, isOwn = true) {
    if (!this.isOpen || event.seq <= this.until) return;

    this.until = event.seq;
    if (isOwn && event.type === "codon.completed") this.isOpen = false;
    if (!isOwn || !isShown(event)) {
      const page = this.pages.get(this.pageOf(event.seq));
      if (page?.upTo === event.seq - 1) page.upTo = event.seq;
      return;
    }
    this.newest.push(event);
    if (this.newest.length > NEWEST_KEPT) this.newest.splice(0, NEWEST_KEPT / 2);
    const number = this.pageOf(event.seq);
    // The first one of its page: nothing of it can have been missed.
    if (!this.pages.has(number) && event.seq === this.since + number * SPAN + 1)
      this.#keep(number, { events: [], later: [], upTo: event.seq - 1, blocks: [], isFolded: false });
    this.#append(number, event);
    if (event.type === "tool.result") this.#settle(event);
    this.changed();
  }

  #append(number, event) {
    const page = this.pages.get(number);
    if (page === undefined || page.upTo !== event.seq - 1) return;

    page.events.push(event);
    page.upTo = event.seq;
    page.isFolded = false;
  }

  /** Brings a result to the page that has its call. */
  #settle(event) {
    const number = this.pageOf(event.seq);
    for (const [at, page] of this.pages) {
      if (at < number && openCalls(page).has(event.data.toolUseId)) {
        page.later.push(event);
        page.isFolded = false;
      }
    }
  }

  #endOf(number) {
    return Math.min(this.since + (number + 1) * SPAN, this.until);
  }

  #keep(number, page) {
    this.pages.delete(number);
    this.pages.set(number, page);
    if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value ?? -1);
  }

  #goOn() {
    for (const number of this.wanted) {
      if (this.asked.size >= AT_ONCE) return;
      if (!this.asked.has(number)) this.#load(number);
    }
  }

  async #load(number) {
    this.asked.add(number);
    try {
      const since = this.since + number * SPAN;
      const upTo = this.#endOf(number);
      const events = (await this.#all({ types: ASKED, since, until: upTo })).filter(isShown);
      /** @type {Page} */
      const page = { events, later: [], upTo, blocks: this.pages.get(number)?.blocks ?? [], isFolded: false };
      page.later = await this.#resultsOf(page);
      this.#keep(number, page);
      this.wanted = this.wanted.filter((each) => each !== number);
      for (const event of this.newest) {
        if (this.pageOf(event.seq) !== number) continue;
        page.upTo = Math.max(page.upTo, event.seq - 1); // What is not shown lies between.
        this.#append(number, event);
      }
      if (upTo >= this.heardFrom - 1) page.upTo = this.#endOf(number);
      this.error = null;
    } catch (error) {
      this.error = /** @type {Error} */ (error);
      this.wanted = []; // They are asked for again when somebody looks there again.
    }
    this.asked.delete(number);
    this.#goOn();
    this.changed();
  }

  /** Results that stand on later pages. @param {Page} page */
  async #resultsOf(page) {
    if (page.upTo >= this.until) return [];

    const until = Math.min(this.until, page.upTo + SEARCHED_AT_ONCE);
    const results = [...openCalls(page)].map(async (text) => {
      const query = { types: ["tool.result"], text, since: page.upTo, until, limit: SAYING };
      const { events = [] } = await this.ask("events.query", query);
      return events.filter((/** @type {any} */ { data }) => data.toolUseId === text);
    });
    return (await Promise.all(results)).flat();
  }

  async #all(query) {
    /** @type {any[]} */
    const events = [];
    let cursor;
    do {
      const answer = await this.ask("events.query", { ...query, limit: SPAN, cursor });
      events.push(...(answer.events ?? []));
      cursor = answer.cursor;
    } while (cursor);
    return events;
  }

  /**
   * Finds a text in all of the step.
   * @param {string} text @param {(found: number[], part: number) => boolean} onFound is told what
   *   was found so far, and how much was searched (0 to 1); false ends the search
   */
  async find(text, onFound) {
    /** @type {number[]} */
    const found = [];
    const part = text.toLowerCase();
    const has = (/** @type {any} */ value) => typeof value === "string" && value.toLowerCase().includes(part);
    const says = (/** @type {any} */ event) =>
      isShown(event) && (FIELDS.some((field) => has(event.data[field])) || INPUTS.some((field) => has(event.data.toolInput?.[field])));
    for (let since = this.since; since < this.until; since += SEARCHED_AT_ONCE) {
      const until = Math.min(since + SEARCHED_AT_ONCE, this.until);
      let cursor;
      do {
        const answer = await this.ask("events.query", { types: ASKED, text, since, until, cursor });
        found.push(...(answer.events ?? []).filter(says).map((/** @type {any} */ event) => event.seq));
        cursor = answer.cursor;
        const share = (until - this.since) / Math.max(1, this.until - this.since);
        if (!onFound([...found], cursor ? share * 0.99 : share) || found.length > MOST_FOUND) return;
      } while (cursor);
    }
    if (this.since >= this.until) onFound(found, 1);
  }

  /**
   * The page and the key of the block that shows an event; null where none does. A result is shown
   * where its call stands.
   * @param {number} seq
   * @returns {Promise<{page: number, key: number} | null>}
   */
  async placeOf(seq) {
    const number = this.pageOf(seq);
    if (!this.pages.has(number)) await this.#load(number);
    for (const at of [number, ...this.pages.keys()]) {
      const block = this.at(at)?.find(({ seqs }) => seqs.includes(seq));
      if (block !== undefined) return { page: at, key: block.key };
    }
    const event = this.pages.get(number)?.events.find((each) => each.seq === seq);
    if (event?.type !== "tool.result") return null;

    const call = await this.ask("events.query", {
      types: ["assistant.action"],
      text: event.data.toolUseId,
      since: this.since,
      until: seq - 1,
      newestFirst: true,
      limit: SAYING,
    });
    const made = (call.events ?? []).find((/** @type {any} */ { data }) => data.toolUseId === event.data.toolUseId);
    return made?.seq === undefined ? null : this.placeOf(made.seq);
  }

  /**
   * The page and the key of the block with the newest of what had happened up to an event; null where
   * nothing had, or it lies far back.
   * @param {number} seq
   * @returns {Promise<{page: number, key: number} | null>}
   */
  async placeAt(seq) {
    const number = this.pageOf(seq);
    for (let page = number; page >= Math.max(0, number - FAR); page -= 1) {
      if (!this.pages.has(page)) await this.#load(page);
      let [key, newest] = [-1, -1];
      for (const block of this.at(page) ?? []) {
        const last = Math.max(...block.seqs.filter((each) => each <= seq));
        if (last > newest) [key, newest] = [block.key, last];
      }
      if (newest >= 0) return { page, key };
    }
    return null;
  }
}

const FIELDS = ["content", "message", "result", "toolName", "line", "text", "path", "command"];
const INPUTS = [
  "command",
  "description",
  "file_path",
  "path",
  "pattern",
  "content",
  "old_string",
  "new_string",
  "prompt",
  "url",
  "query",
];

/** The ids of calls whose result is not there yet. @param {Page} page */
function openCalls({ events, later }) {
  const open = new Set();
  for (const { type, data } of [...events, ...later]) {
    if (data.action === "tool_use") open.add(data.toolUseId);
    else if (type === "tool.result") open.delete(data.toolUseId);
  }
  return open;
}

/**
 * The seqs of one attempt at a step: those between its two times, found by halving.
 * @param {import("./client.js").Ask} ask
 * @param {any} codon as in the state @param {number} last the newest seq
 */
export async function rangeOf(ask, codon, last) {
  const since = (await firstSince(ask, codon.startTime, last)) - 1;
  if (!codon.endTime) return { since, until: last, isOpen: true };

  const end = await firstSince(ask, codon.endTime, last);
  // What was said of its end follows in a moment.
  const { events = [] } = await ask("events.query", {
    types: ["codon.completed"],
    codonId: codon.codonId,
    since: Math.max(since, end - 2),
    until: end + SPAN,
    limit: 1,
  });
  const [told] = /** @type {any[]} */ (events);
  return { since, until: Math.max(end - 1, told?.seq ?? 0), isOpen: false };
}

/** The first seq at or after a time. @param {import("./client.js").Ask} ask @param {string} time @param {number} last */
async function firstSince(ask, time, last) {
  const wanted = Date.parse(time);
  let [low, high] = [1, last + 1];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const { events = [] } = await ask("events.query", { since: middle - 1, until: middle, limit: 1 });
    const [event] = /** @type {any[]} */ (events);
    if (event !== undefined && Date.parse(event.timestamp) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
