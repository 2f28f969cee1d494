/**
 * What the agent says and does, as entries that can be read: words, thoughts, tool calls with their
 * results, lines of programs, and what happened around them. The newest few thousand are kept, and
 * of very long ones the beginning; the journal has all.
 */
import { countsOf } from "./files.js";
import { clipped } from "./format.js";

const KEPT = 3_000;
const SLACK = 500; // So that entries are dropped now and then, not one by one.
const ROOM = 8_000_000; // Characters of all entries that are kept.

/** The types of events that become entries. */
export const FEED_TYPES = [
  "assistant.action",
  "tool.result",
  "agent.output",
  "rig.output",
  "files.changed",
  "codon.started",
  "codon.completed",
  "codon.retrying",
  "codon.waiting",
  "codon.resumed",
  "codon.warning",
  "checkpoint.secret",
  "agent.confined",
  "codon.extended",
  "loop.iteration.completed",
  "check.completed",
  "rig.setup.failed",
  "sentinel.output",
  "sentinel.error",
  "rollback.completed",
  "checkpoint.rollback",
  "rollback.told",
  "permission.resolved",
  "execution.branched",
  "error",
];

/**
 * @typedef {{key: number, kind: string, codonId: string | null, timestamp: string, text: string,
 *   tool?: string, input?: any, result?: string | null, isError?: boolean, external?: boolean,
 *   cut?: boolean}} Entry
 */

export class Feed {
  constructor() {
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, Entry>} */
    this.openTools = new Map();
    this.size = 0; // Characters.
  }

  /** @param {any} event @returns {boolean} whether anything changed */
  add(event) {
    if (event.type === "tool.result") return this.#settle(event.data) || this.#push(orphan(event));

    const entry = entryOf(event);
    if (entry === null) return false;

    const last = this.entries.at(-1);
    if (last !== undefined && continues(last, entry)) {
      // A program's output is one block, not a hundred.
      this.size += entry.text.length;
      this.entries[this.entries.length - 1] = { ...last, text: `${last.text}\n${entry.text}` };
      return true;
    }

    if (entry.kind === "tool") this.openTools.set(event.data.toolUseId, entry);
    return this.#push(entry);
  }

  #settle({ toolUseId, result, isError, truncated }) {
    const call = this.openTools.get(toolUseId);
    this.openTools.delete(toolUseId);
    const at = call === undefined ? -1 : this.entries.indexOf(call);
    if (call === undefined || at < 0) return false;

    const shown = clipped(result ?? "");
    this.size += shown.length;
    this.entries[at] = { ...call, result: shown, isError, cut: truncated };
    return true;
  }

  #push(entry) {
    this.entries.push(entry);
    this.size += sizeOf(entry);
    if (this.entries.length > KEPT + SLACK) this.#drop(SLACK);
    while (this.size > ROOM && this.entries.length > 1)
      this.#drop(Math.ceil(this.entries.length / 8));
    if (this.openTools.size > KEPT) this.openTools.clear();
    return true;
  }

  #drop(count) {
    for (const entry of this.entries.splice(0, count)) this.size -= sizeOf(entry);
  }
}

/** @param {Entry} entry */
function sizeOf({ text, input, result }) {
  return text.length + (result?.length ?? 0) + (input ? JSON.stringify(input).length : 0);
}

function orphan(event) {
  const { toolName, result, isError, truncated } = event.data;
  return {
    ...base(event, "tool", ""),
    tool: toolName,
    input: null,
    result: clipped(result ?? ""),
    isError,
    cut: truncated,
  };
}

function base(event, kind, text) {
  const codonId = event.data.codonId ?? event.codonId ?? null;
  return { key: event.seq, kind, codonId, timestamp: event.timestamp, text: clipped(text ?? "") };
}

function continues(last, entry) {
  const isOutput = entry.kind === "output" || entry.kind === "rig";
  return (
    isOutput &&
    last.kind === entry.kind &&
    last.codonId === entry.codonId &&
    last.text.length < 4_000
  );
}

/** @param {any} event @returns {Entry | null} */
function entryOf(event) {
  const { data } = event;
  switch (event.type) {
    case "assistant.action":
      return action(event);
    case "agent.output":
      return base(event, "output", data.line);
    case "rig.output":
      return base(event, "rig", data.line);
    case "files.changed":
      return base(event, "note", burst(data));
    case "codon.started":
      return base(event, "note", `${data.codonName} started.`);
    case "codon.completed":
      return base(event, data.success || data.skipped ? "note" : "bad", ending(data));
    case "codon.retrying":
      return base(
        event,
        "note",
        `Attempt ${data.attempt} of ${data.maxAttempts} starts in ${Math.round(data.delayMs / 1000)} s.`,
      );
    case "codon.waiting": {
      const until = new Date(data.until).toLocaleString();
      return base(event, "note", `Waits for the end of a ${data.reason} limit, until ${until}.`);
    }
    case "codon.resumed":
      return base(event, "note", "The wait is over; the conversation continues.");
    case "codon.warning":
    case "agent.confined":
      return base(event, "bad", `Warning: ${data.message}`);
    case "checkpoint.secret":
      return base(event, "bad", secretsIn(data));
    case "codon.extended":
      return base(event, "note", `The agent was told to continue: ${data.exhaustWithPrompt}`);
    case "loop.iteration.completed":
      return base(
        event,
        "note",
        `Iteration ${data.iteration + 1} of ${data.loopId} ended${data.isFinal ? ", the last one" : ""}.`,
      );
    case "check.completed":
      return base(
        event,
        data.passed || data.ignored ? "note" : "bad",
        `Check ${data.passed ? "passed" : "failed"}: ${data.command}${data.message ? `: ${data.message}` : ""}`,
      );
    case "rig.setup.failed":
      return base(event, "bad", `The rig failed: ${data.message ?? data.failureType}`);
    case "sentinel.output":
      return {
        ...base(
          event,
          "sentinel",
          typeof data.content === "string" ? data.content : JSON.stringify(data.content, null, 2),
        ),
        tool: data.sentinelId,
      };
    case "sentinel.error":
      return { ...base(event, "bad", data.message), tool: data.sentinelId };
    case "rollback.completed":
      return base(event, "travel", travelled(data, data.report));
    case "checkpoint.rollback":
      // Without a report, `rollback.completed` follows and says it all.
      return data.report === null ? null : base(event, "travel", travelled(data, data.report));
    case "rollback.told":
      return base(event, "note", `The agent was told: ${data.text}`);
    case "permission.resolved":
      return data.by === "policy"
        ? null
        : base(
            event,
            "note",
            `${data.toolName} was ${data.decision === "allow" ? "allowed" : "denied"} (${data.by === "client" ? "by a person" : data.by}).`,
          );
    case "execution.branched":
      return base(event, "travel", `A branch was created: ${data.executionPath}`);
    case "error":
      return base(event, "bad", data.message);
    default:
      return null;
  }
}

function action(event) {
  const { action: kind, content, toolName, toolInput, external } = event.data;
  if (kind === "tool_use") {
    return {
      ...base(event, "tool", ""),
      tool: toolName,
      input: toolInput ?? null,
      result: null,
      external,
    };
  }

  return content.trim() ? base(event, kind === "thinking" ? "thought" : "words", content) : null;
}

function secretsIn({ checkpoint, secrets, total }) {
  const [first] = secrets;
  const others = total > 1 ? ` and ${total - 1} more` : "";
  const sha = checkpoint.checkpointSha.slice(0, 12);
  return `Checkpoint ${sha} holds a secret: ${first.rule} in ${first.path}:${first.line}${others}.`;
}

function ending({ success, skipped, exitStatus, failureReason, condition }) {
  if (success) return "The codon is complete.";
  if (skipped) return condition ? `Skipped: ${condition} does not hold.` : "Skipped.";

  const why = failureReason?.message ?? failureReason?.type ?? exitStatus?.type ?? "unknown";
  return `The codon failed: ${why}`;
}

function burst({ total, created, modified, deleted, folders, source }) {
  const parts = Object.entries({ created, modified, deleted }).filter(([, number]) => number > 0);
  const counts = parts.map(([action, number]) => `${number} ${action}`).join(", ");
  const most = folders[0] ? `, most in ${folders[0].folder || "the top folder"}` : "";
  const by = source.kind === "person" ? " by hand" : "";
  return `${total} files changed at once${by}: ${counts}${most}.`;
}

function travelled({ direction = "back", checkpoint }, report) {
  const verb = {
    back: "Rolled back",
    undo: "Undone",
    redo: "Redone",
    retry: "Reset for a retry",
  };
  const counts = report ? countsOf(report) : null;
  const moved = counts ? counts.added + counts.updated + counts.removed : 0;
  const told = `${verb[direction] ?? direction}: to ${checkpoint.slice(0, 8)}, ${moved} ${moved === 1 ? "file" : "files"} changed.`;
  const people = report?.inWords ? [report.inWords] : [];
  const left = (report?.cannotRestore ?? []).map((each) => each.sentence);
  return [told, ...people, ...left].join(" ");
}
