/** The journal, as much of it as somebody looks at: the events that a question finds. */

const PAGE = 200;

/** The events that a question finds, newest first, as far as they were scrolled to. */
export class Found {
  /** @param {import("./client.js").Ask} ask @param {object} query @param {() => void} changed */
  constructor(ask, query, changed) {
    this.ask = ask;
    this.query = { ...query, orderBy: { field: "seq", direction: "desc" }, limit: PAGE };
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
      const answer = await this.ask("events.query", { ...this.query, cursor: this.cursor });
      this.events.push(...(answer.events ?? []));
      this.cursor = answer.cursor;
      this.hasMore = answer.cursor !== undefined;
    } catch (error) {
      this.error = /** @type {Error} */ (error);
      this.hasMore = false;
    }
    this.isAsking = false;
    this.changed();
  }
}

const SEARCHED = [
  "type",
  "codonId",
  "data.content",
  "data.message",
  "data.path",
  "data.result",
  "data.toolName",
  "data.toolInput.command",
  "data.toolInput.file_path",
  "data.toolInput.content",
  "data.line",
  "data.text",
  "data.reason",
  "data.command",
  "data.label",
  "data.transition.type",
  "data.transition.data.checkpoint.label",
  "data.transition.data.checkpoint.summary",
];

/**
 * A question to the journal from what a person has filled in; null where he asks for everything.
 * @param {{text: string, type: string, codonId: string, isExact?: boolean}} wanted
 */
export function questionOf({ text, type, codonId, isExact = false }) {
  /** @type {object[]} */
  const where = [];
  if (type) where.push({ field: "type", op: "eq", value: type });
  if (codonId) {
    where.push({
      or: ["codonId", "data.codonId"].map((field) => ({ field, op: "eq", value: codonId })),
    });
  }
  if (text.trim()) {
    const op = isExact ? "contains" : "containsIgnoringCase";
    where.push({ or: SEARCHED.map((field) => ({ field, op, value: text.trim() })) });
  }
  return where.length === 0 ? null : { where };
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
