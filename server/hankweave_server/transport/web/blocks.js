/**
 * What an agent says and does, as blocks that can be read: words, calls with their results, reads
 * folded into one line, lines of programs, and what happened around them. Pure: events in, blocks
 * out.
 */
import { countsOf } from "./files.js";
import { recently } from "./format.js";

/** Types of events that are shown; those of other types change no transcript. */
export const SHOWN = [
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
  "permission.requested",
  "permission.resolved",
  "execution.branched",
  "error",
];

/** The types that the journal is asked for: those, and the changed files. */
export const ASKED = [...SHOWN, "file.updated"];

const TYPES = new Set(SHOWN);

/** @param {any} event */
export const isShown = ({ type, data }) =>
  TYPES.has(type) || (type === "file.updated" && data.source?.kind === "person");

/** What only reads is folded. */
const READS = new Map([
  ["Read", "read"],
  ["NotebookRead", "read"],
  ["Grep", "search"],
  ["Glob", "search"],
  ["LS", "list"],
  ["WebSearch", "websearch"],
  ["WebFetch", "fetch"],
]);

const PICTURE = /\.(png|jpe?g|gif|webp)$/i; // Who reads one wants to see it.

/**
 * @typedef {{event: any, result: any, permission: any, answer: any}} Call
 *   The events: of the call, its result, the question for permission and its answer; null until
 *   they come.
 * @typedef {{kind: string, key: number, stamp: number, timestamp: string, text: string, role?: string,
 *   call?: Call, parts?: (Call | any)[], name?: string, content?: any, lines?: string[],
 *   seqs: number[]}} Block
 *   `key`: the first event's seq; `stamp`: the last one's. `parts`: of folded reads, the calls, and
 *   the events of thoughts between them.
 */

/**
 * @param {any[]} events in the order of the journal; a result whose call is not among them is left
 *   out: it belongs to the page that has the call
 * @param {Map<number, Block>} [before] blocks by their keys; one that is still the same is kept
 * @returns {Block[]}
 */
export function blocksOf(events, before = new Map()) {
  const folder = new Folder();
  for (const event of events) folder.add(event);
  return folder.blocks.map((block) => {
    const old = before.get(block.key);
    return old?.stamp === block.stamp && old.kind === block.kind ? old : block;
  });
}

class Folder {
  constructor() {
    /** @type {Block[]} */
    this.blocks = [];
    /** @type {Map<string, {call: Call, block: Block}>} calls without a result, by their ids */
    this.open = new Map();
    /** @type {Map<string, {call: Call, block: Block}>} by the ids of requests */
    this.asked = new Map();
  }

  add(event) {
    switch (event.type) {
      case "assistant.action":
        return this.#act(event);
      case "tool.result":
        return this.#settle(event);
      case "permission.requested":
        return this.#ask(event);
      case "permission.resolved":
        return this.#answer(event);
      case "agent.output":
      case "rig.output":
        return this.#print(event);
      case "sentinel.output":
        return this.#push(event, "sentinel", {
          name: event.data.sentinelId,
          content: event.data.content,
        });
      default: {
        const [role, text] = noteOf(event);
        if (text !== "") this.#push(event, "note", { role, text });
      }
    }
  }

  #push(event, kind, fields) {
    /** @type {Block} */
    const block = {
      kind,
      key: event.seq,
      stamp: event.seq,
      timestamp: event.timestamp,
      text: "",
      seqs: [event.seq],
      ...fields,
    };
    this.blocks.push(block);
    return block;
  }

  /** @param {Block} block @param {any} event */
  #touch(block, event) {
    block.stamp = event.seq;
    block.seqs.push(event.seq);
  }

  #act(event) {
    const { action, content, toolName, toolUseId } = event.data;
    if (action === "message") {
      if (content.trim()) this.#push(event, "words", { text: content });
    } else if (action === "thinking") {
      if (content.trim()) this.#fold(event, event);
    } else {
      /** @type {Call} */
      const call = { event, result: null, permission: null, answer: null };
      const block = READS.has(toolName) && !PICTURE.test(event.data.toolInput?.file_path ?? "")
        ? this.#fold(event, call)
        : this.#push(event, "call", { call });
      this.open.set(toolUseId, { call, block });
    }
  }

  /** Adds to the folded line before, where nothing has come between. @param {any} part */
  #fold(event, part) {
    const last = this.blocks.at(-1);
    if (last?.kind !== "folded") return this.#push(event, "folded", { parts: [part] });

    last.parts?.push(part);
    this.#touch(last, event);
    return last;
  }

  #settle(event) {
    const found = this.open.get(event.data.toolUseId);
    if (found === undefined) return;

    this.open.delete(event.data.toolUseId);
    found.call.result = event;
    this.#touch(found.block, event);
  }

  #ask(event) {
    const { toolName, toolInput, requestId } = event.data;
    const wanted = JSON.stringify(toolInput);
    const found = [...this.open.values()].find(
      ({ call }) =>
        call.event.data.toolName === toolName &&
        call.permission === null &&
        JSON.stringify(call.event.data.toolInput) === wanted,
    );
    if (found !== undefined) {
      found.call.permission = event;
      this.#touch(found.block, event);
      this.asked.set(requestId, found);
      return;
    }
    const call = { event, result: null, permission: event, answer: null };
    this.asked.set(requestId, { call, block: this.#push(event, "call", { call }) });
  }

  #answer(event) {
    const found = this.asked.get(event.data.requestId);
    if (found !== undefined) {
      found.call.answer = event;
      this.#touch(found.block, event);
    } else if (event.data.by !== "policy" || event.data.decision === "deny") {
      const role = event.data.decision === "deny" ? "bad" : "";
      this.#push(event, "note", { role, text: answered(event.data) });
    }
  }

  /** A program's output is one block, not a hundred. */
  #print(event) {
    const kind = event.type === "rig.output" ? "rig" : "output";
    const last = this.blocks.at(-1);
    if (last?.kind !== kind) {
      this.#push(event, kind, { lines: [event.data.line] });
      return;
    }
    last.lines?.push(event.data.line);
    this.#touch(last, event);
  }
}

/** @param {Call | any} part */
export const isThought = (part) => part.type === "assistant.action";

const TIMES = ["", "once", "twice"];
const times = (/** @type {number} */ n) => TIMES[n] ?? `${n} times`;
const some = (/** @type {number} */ n, /** @type {string} */ one) => `${n} ${one}${n === 1 ? "" : "s"}`;

/** What was folded, in words: "Read 4 files and searched twice". @param {Block} block */
export function foldedWords({ parts = [] }) {
  const counts = { read: new Set(), search: 0, list: 0, websearch: 0, fetch: 0, thought: 0 };
  for (const part of parts) {
    if (isThought(part)) {
      counts.thought += 1;
      continue;
    }
    const { toolName, toolInput } = part.event.data;
    const kind = READS.get(toolName) ?? "read";
    if (kind === "read") counts.read.add(toolInput?.file_path ?? toolInput?.notebook_path ?? part);
    else counts[kind] += 1;
  }
  const words = [
    counts.read.size > 0 && `read ${some(counts.read.size, "file")}`,
    counts.list > 0 && `listed ${some(counts.list, "folder")}`,
    counts.search > 0 && `searched ${times(counts.search)}`,
    counts.fetch > 0 && `fetched ${some(counts.fetch, "page")}`,
    counts.websearch > 0 && `searched the web ${times(counts.websearch)}`,
  ].filter((each) => typeof each === "string");
  if (words.length === 0) return "Thought";

  const text =
    words.length === 1 ? words[0] : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Milliseconds that the results report. @param {Block} block */
export const foldedTime = ({ parts = [] }) =>
  parts.reduce((sum, part) => sum + (part.result?.data.executionTimeMs ?? 0), 0);

/** What became of a call. @param {Call} call @param {boolean} runs whether its step still runs */
export function stateOf({ result, permission, answer }, runs) {
  if (result !== null) return result.data.isError ? "failed" : "done";
  if (permission !== null && answer === null && runs) return "waiting";
  if (answer?.data.decision === "deny") return "failed";
  return runs ? "running" : "lost";
}

/** Who has answered, and what holds from now on. @param {any} data of `permission.resolved` */
export function ruled({ decision, by, rule, message, always }) {
  const who = {
    client: "by a person",
    policy: rule === "otherwise" ? "as no rule covers it" : `by the rule ${rule}`,
    timeout: "as nobody answered",
  }[by];
  const further = always ? `, and each ${always} from now on` : "";
  const why = message ? ` ${message}` : "";
  return `${decision === "allow" ? "allowed" : "denied"} ${who ?? "as the agent ended"}${further}.${why}`;
}

/** @param {any} data of `permission.resolved` */
export const answered = (data) => `${data.toolName} was ${ruled(data)}`;

/** Role and words of what happened around the agent. @param {any} event @returns {[string, string]} */
function noteOf({ type, data }) {
  switch (type) {
    case "file.updated":
      return ["person", `${data.path} was ${data.action} by hand.`];
    case "files.changed":
      return [data.source?.kind === "person" ? "person" : "", burst(data)];
    case "codon.started":
      return ["", `${data.codonName} started.`];
    case "codon.completed":
      return [data.success ? "good" : data.skipped ? "" : "bad", ending(data)];
    case "codon.retrying":
      return [
        "",
        `Attempt ${data.attempt} of ${data.maxAttempts} starts in ${Math.round(data.delayMs / 1000)} s.`,
      ];
    case "codon.waiting":
      return [
        "wait",
        `Waits for the end of a ${data.reason} limit, until ${recently(data.until)}.`,
      ];
    case "codon.resumed":
      return ["", "The wait is over; the conversation continues."];
    case "codon.warning":
    case "agent.confined":
      return ["bad", `Warning: ${data.message}`];
    case "checkpoint.secret":
      return ["bad", secretsIn(data)];
    case "codon.extended":
      return ["", `The agent was told to continue: ${data.exhaustWithPrompt}`];
    case "loop.iteration.completed":
      return [
        "",
        `Iteration ${data.iteration + 1} of ${data.loopId} ended${data.isFinal ? ", the last one" : ""}.`,
      ];
    case "check.completed":
      return [
        data.passed || data.ignored ? "good" : "bad",
        `Check ${data.passed ? "passed" : "failed"}: ${data.command}${data.message ? `: ${data.message}` : ""}`,
      ];
    case "rig.setup.failed":
      return ["bad", `The rig failed: ${data.message ?? data.failureType}`];
    case "sentinel.error":
      return ["bad", `Sentinel ${data.sentinelId}: ${data.message}`];
    case "rollback.completed":
      return ["travel", travelled(data, data.report)];
    case "checkpoint.rollback":
      // Without a report, `rollback.completed` follows and says it all.
      return ["travel", data.report === null ? "" : travelled(data, data.report)];
    case "rollback.told":
      return ["", `The agent was told: ${data.text}`];
    case "execution.branched":
      return ["travel", `A branch was created: ${data.executionPath}`];
    case "error":
      return ["bad", data.message];
    default:
      return ["", ""];
  }
}

function secretsIn({ checkpoint, secrets, total }) {
  const [first] = secrets;
  const others = total > 1 ? ` and ${total - 1} more` : "";
  const sha = checkpoint.checkpointSha.slice(0, 12);
  return `Checkpoint ${sha} holds a secret: ${first.rule} in ${first.path}:${first.line}${others}.`;
}

/** @param {any} data of `codon.completed` */
export function ending({ success, skipped, exitStatus, failureReason, condition }) {
  if (success) return "The step is complete.";
  if (skipped) return condition ? `Skipped: ${condition} does not hold.` : "Skipped.";

  const why = failureReason?.message ?? failureReason?.type ?? exitStatus?.type ?? "unknown";
  return `The step failed: ${why}`;
}

function burst({ total, created, modified, deleted, folders, source }) {
  const parts = Object.entries({ created, modified, deleted }).filter(([, number]) => number > 0);
  const counts = parts.map(([action, number]) => `${number} ${action}`).join(", ");
  const most = folders[0] ? `, most in ${folders[0].folder || "the top folder"}` : "";
  const by = source.kind === "person" ? " by hand" : "";
  return `${total} files changed at once${by}: ${counts}${most}.`;
}

/** @param {any} data of a rollback @param {any} report */
export function travelled({ direction = "back", checkpoint }, report) {
  const verb = {
    back: "Rolled back",
    undo: "Undone",
    redo: "Redone",
    retry: "Reset for a retry",
  };
  const counts = report ? countsOf(report) : null;
  const moved = counts ? counts.added + counts.updated + counts.removed : 0;
  const told = `${verb[direction] ?? direction}: to ${checkpoint.slice(0, 8)}, ${some(moved, "file")} changed.`;
  const people = report?.inWords ? [report.inWords] : [];
  const left = (report?.cannotRestore ?? []).map((each) => each.sentence);
  return [told, ...people, ...left].join(" ");
}
