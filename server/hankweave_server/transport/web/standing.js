/**
 * Where the execution stands: how far, in what state, what it waits for. Computed once for each
 * change of the store, for everything that shows a part of it.
 */
import { callText, clockSpan } from "./format.js";
import { activeCodon, attemptRuns, costOf, isActive, thread, totals, unusedCosts } from "./state.js";

/**
 * @typedef {{codonId: string, codon?: any, loopContext?: {loopId: string, iteration: number}}} Entry
 *   of the plan
 * @typedef {{key: string, name: string, isLoop: boolean, entries: Entry[]}} Step a codon, or a loop
 * @typedef {{role: string, icon: string, words: string, detail?: string}} Condition `detail`: what
 *   is asked for, or why it failed
 * @typedef {{
 *   version: number, steps: Step[], ran: Map<string, any>, active: any, failed: any, asked: any,
 *   followed: string | null, at: number, done: number, total: number, cost: number,
 *   unused: {rolledBack: number, attempts: number}, runs: number,
 *   condition: Condition,
 * }} Standing
 *   `followed`: the codon that a reader who has chosen none wants to see; `at`: the step that runs or
 *   has failed, from 1, or else the number of those that are done, as the server counts; `runs`:
 *   without those of attempts.
 */

/** @type {WeakMap<import("./store.js").Store, Standing>} */
const known = new WeakMap();

/** @param {import("./store.js").Store} store @returns {Standing} */
export function standingOf(store) {
  const before = known.get(store);
  if (before?.version === store.version) return before;

  const standing = computed(store);
  known.set(store, standing);
  return standing;
}

/** @param {import("./store.js").Store} store @returns {Standing} */
function computed(store) {
  const { state, version } = store;
  const line = thread(state);
  const tried = attemptRuns(state);
  const ran = new Map(line.map((codon) => [codon.codonId, codon]));
  const steps = stepsOf(state.executionPlan);
  const active = activeCodon(state);
  const last = line.at(-1);
  const failed = active === null && last?.status === "failed" && isOver(store, last) ? last : null;
  const [asked = null] = store.permissions.values();
  const next = state.executionPlan.find((/** @type {Entry} */ entry) => !isDone(ran.get(entry.codonId)));
  const followed = (active ?? failed ?? last ?? next)?.codonId ?? null;
  const done = steps.filter((step) => step.entries.every((each) => hasPassed(each, ran.get(each.codonId))));
  const here = steps.findIndex((step) => step.entries.some((each) => each.codonId === last?.codonId));
  const entry = steps[here]?.entries.find((each) => each.codonId === last.codonId);
  const isWithin = entry !== undefined && !hasPassed(entry, last);
  return {
    version,
    steps,
    ran,
    active,
    failed,
    asked,
    followed,
    at: isWithin ? here + 1 : done.length,
    done: done.length,
    total: steps.length,
    cost: totals(state).cost,
    unused: unusedCosts(state),
    runs: state.runs.filter((/** @type {any} */ { runId }) => !tried.has(runId)).length,
    condition: conditionOf(store, active, failed, asked),
  };
}

/** Whether nothing follows by itself: no retry, and no next step after a failure that is ignored. */
function isOver(
  /** @type {import("./store.js").Store} */ { state, isIdle, retries },
  /** @type {any} */ { codonId },
) {
  const run = state.runs[0];
  const hasEnded = run.status !== "running" || state.currentRunId !== run.runId;
  return hasEnded || (isIdle && !retries.has(codonId));
}

/** Iterations of a loop are one step of its rounds. @type {WeakMap<Entry[], Step[]>} */
const stepsOfPlan = new WeakMap();

/** @param {Entry[]} plan @returns {Step[]} */
export function stepsOf(plan) {
  const before = stepsOfPlan.get(plan);
  if (before !== undefined) return before;

  /** @type {Step[]} */
  const steps = [];
  for (const entry of plan) {
    const loopId = entry.loopContext?.loopId;
    const last = steps.at(-1);
    if (loopId !== undefined && last?.key === `loop ${loopId}`) last.entries.push(entry);
    else if (loopId === undefined)
      steps.push({ key: entry.codonId, name: nameOf(entry), isLoop: false, entries: [entry] });
    else steps.push({ key: `loop ${loopId}`, name: loopId, isLoop: true, entries: [entry] });
  }
  for (const step of steps) {
    const names = new Set(step.entries.map(nameOf));
    if (step.isLoop && names.size === 1) [step.name] = names; // Its one codon says more than its id.
  }
  stepsOfPlan.set(plan, steps);
  return steps;
}

/** @param {Entry} entry */
export const nameOf = (entry) => entry.codon?.name ?? entry.codonId;

/** The name of a codon, by its id in the plan. @param {any} state @param {string} codonId */
export function titleOfCodon(state, codonId) {
  const entry = state.executionPlan.find((/** @type {Entry} */ each) => each.codonId === codonId);
  if (entry === undefined) return codonId;

  const round = entry.loopContext ? `, round ${entry.loopContext.iteration + 1}` : "";
  return `${nameOf(entry)}${round}`;
}

/** The state of a codon, as the name of an icon. @param {any} codon @param {any} [asked] */
export function statusOf(codon, asked = null) {
  if (codon === undefined) return "todo";
  if (codon.status === "completed") return "done";
  if (codon.status === "failed" || codon.status === "skipped") return codon.status;
  return codon.wait || asked?.codonId === codon.codonId ? "waiting" : "running";
}

/** The state of a step of one or more codons. @param {Step} step @param {Standing} standing */
export function statusOfStep(step, { ran, asked }) {
  const all = step.entries.map((entry) => statusOf(ran.get(entry.codonId), asked));
  for (const found of ["waiting", "running"]) if (all.includes(found)) return found;
  const begun = all.filter((each) => each !== "todo");
  if (begun.at(-1) === "failed") return "failed";
  if (begun.length < all.length) return "todo";
  return all.every((each) => each === "skipped") ? "skipped" : "done";
}

/** How long a codon has worked, in milliseconds, without its waits. @param {any} codon @param {number} now */
export function took(codon, now) {
  const end = codon.endTime ? Date.parse(codon.endTime) : now;
  const waits = codon.wait ? now - Date.parse(codon.wait.since) : 0;
  return end - Date.parse(codon.startTime) - (codon.waitedMs ?? 0) - Math.max(0, waits);
}

/** @param {Standing} standing @param {number} now */
export function workedFor({ ran }, now) {
  return [...ran.values()].reduce((sum, codon) => sum + took(codon, now), 0);
}

/** @param {any[]} codons */
export const costOfAll = (codons) => codons.reduce((sum, codon) => sum + costOf(codon), 0);

const isDone = (/** @type {any} */ codon) => codon !== undefined && !isActive(codon);

/** Whether the plan goes on after it. @param {Entry} entry @param {any} codon */
const hasPassed = (entry, codon) =>
  codon?.status === "completed" ||
  codon?.status === "skipped" ||
  (codon?.status === "failed" && entry.codon?.onFailure === "ignore");

/** The call that waits for permission: "Write out/summary.md". @param {any} asked @param {any} server */
export const callInWords = ({ toolName, toolInput }, server) =>
  `${toolName} ${callText(toolInput, server?.agentRootPath)}`.trim();

/** @type {Record<string, string>} */
const EXPIRED = { deny: "denied", allow: "allowed" };

/**
 * What becomes of a question that nobody answers, and when.
 * @param {{expiresAt?: string | null, onExpiry?: string | null}} asked @param {number} now
 */
export function unanswered({ expiresAt, onExpiry = "deny" }, now) {
  const end = EXPIRED[onExpiry ?? ""];
  if (end === undefined || !expiresAt) return "waits until it is answered";
  const left = Date.parse(expiresAt) - now;
  return left > 0 ? `${end} in ${clockSpan(left)}` : `${end} now: the time is up`;
}

/** Why a codon failed, in one sentence. @param {any} codon */
export function reasonOf(codon) {
  const [first] = linesOfReason(codon);
  return first ?? REASONS[codon.failureReason?.type] ?? "It gave no reason.";
}

/** What it says after that sentence, in one line. @param {any} codon */
export const moreOfReason = (codon) => linesOfReason(codon)[1] ?? "";

/** @param {any} codon @returns {string[]} */
function linesOfReason({ failureReason }) {
  const lines = (failureReason?.message ?? "").split("\n");
  return lines.map((/** @type {string} */ line) => line.trim()).filter(Boolean);
}

/** @type {Record<string, string>} */
const REASONS = {
  timeout: "It took too long.",
  "rate-limit": "The provider limits the number of requests.",
  "api-error": "The provider reported an error.",
  "sentinel-load-failure": "A sentinel could not be loaded.",
  "check-failed": "A check failed.",
};

/** @returns {Condition} */
function conditionOf(
  /** @type {import("./store.js").Store} */ store,
  /** @type {any} */ active,
  /** @type {any} */ failed,
  /** @type {any} */ asked,
) {
  const { state, server, rollback, isLoaded, isIdle, retries } = store;
  if (!isLoaded) return { role: "plain", icon: "todo", words: "Reading" };
  if (rollback !== null) return { role: "accent", icon: "undo", words: "Going back" };
  if (asked !== null) return { role: "wait", icon: "waiting", words: "Waits for you", detail: callInWords(asked, server) };
  if (active?.wait) return { role: "wait", icon: "waiting", words: `Waits for a ${active.wait.kind} limit` };
  if (active !== null) return { role: "accent", icon: "running", words: "Running" };
  if (failed !== null) return { role: "bad", icon: "failed", words: "Failed", detail: reasonOf(failed) };

  const [newest] = state.runs;
  if (newest === undefined) return { role: "plain", icon: "todo", words: "Not started" };
  const current = state.runs.find((/** @type {any} */ run) => run.runId === state.currentRunId);
  if (current?.status === "running" && retries.size > 0)
    return { role: "accent", icon: "again", words: "Tries again" };
  if (current?.status === "running")
    return isIdle
      ? { role: "plain", icon: "pause", words: "Idle" }
      : { role: "accent", icon: "running", words: "Between two steps" };
  return ENDS[newest.status] ?? { role: "plain", icon: "pause", words: "Idle" };
}

/** @type {Record<string, Condition>} */
const ENDS = {
  completed: { role: "good", icon: "done", words: "Completed" },
  failed: { role: "bad", icon: "failed", words: "Failed" },
  crashed: { role: "bad", icon: "failed", words: "Crashed" },
};

/** What the execution is called: its hank, or else its directory. @param {import("./store.js").Store} store */
export function nameOfExecution({ figures, server }) {
  return figures.hankName ?? folderOf(server?.executionPath) ?? "Hankweave";
}

/** @param {string | undefined} path */
export const folderOf = (path) => path?.split("/").filter(Boolean).at(-1);
