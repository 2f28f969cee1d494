/** The journal, as much of it as somebody looks at: the events that a question finds. */

const PAGE = 200;

/** The events that a question finds, newest first, as far as they were scrolled to. */
export class Found {
  /**
   * @param {import("./client.js").Ask} ask @param {object} query @param {() => void} changed
   * @param {(event: any) => boolean} isWanted
   */
  constructor(ask, query, changed, isWanted = () => true) {
    this.ask = ask;
    this.query = { ...query, newestFirst: true, limit: PAGE };
    this.isWanted = isWanted;
    this.changed = changed;
    /** @type {any[]} */
    this.events = [];
    this.cursor = undefined;
    this.hasMore = true;
    this.isAsking = false;
    /** @type {Error | null} */
    this.error = null;
  }

  get count() {
    return this.events.length;
  }

  /** @param {number} row */
  at(row) {
    return this.events[row];
  }

  /** @param {number} _first @param {number} last */
  async want(_first, last) {
    if (!this.hasMore || this.isAsking || last < this.events.length - PAGE / 4) return;

    this.isAsking = true;
    try {
      const enough = this.events.length + PAGE / 4;
      do {
        const answer = await this.ask("events.query", { ...this.query, cursor: this.cursor });
        this.events.push(...(answer.events ?? []).filter(this.isWanted));
        this.cursor = answer.cursor;
        this.hasMore = answer.cursor !== undefined;
      } while (this.hasMore && this.events.length < enough);
    } catch (error) {
      this.error = /** @type {Error} */ (error);
      this.hasMore = false;
    }
    this.isAsking = false;
    this.changed();
  }
}

/** What an event says, in one line. @param {any} event */
export function gist({ type, data }) {
  const of =
    type === "state.transition" ? { ...data.transition.data, kind: data.transition.type } : data;
  const parts = [
    of.kind,
    of.action,
    of.toolName,
    of.path,
    of.content,
    of.message,
    of.line,
    of.result,
    of.text,
    of.reason,
    of.codonId,
    of.codon?.status,
    of.checkpoint?.kind,
    of.checkpoint?.sha?.slice?.(0, 8),
    of.cost ?? of.totalCost,
  ];
  const words = parts
    .filter((each) => each !== "" && (typeof each === "string" || typeof each === "number"))
    .join(" · ");
  return (words || JSON.stringify(of)).slice(0, 240);
}
