/** The past: the moment that is looked at, and what the state was then, as people mean it. */
import { standingOf } from "./standing.js";
import { isActive, thread } from "./state.js";

const ENDS = new Set(["completed", "error", "skipped"]);
const PAGE = 100;

/**
 * @typedef {{sha: string | null, seq: number | null, record: any, at: number, codonId: string | null,
 *   runId: string | undefined, time: number | null, isPruned: boolean, path: string | null}} Past
 *   `record`: the checkpoint, null where it is not known; `at`: its place among all, or that of the
 *   one before it; `seq`: of the newest event that had happened
 */

/**
 * The moment that is looked at; null for the present.
 * @param {import("./store.js").Store} store @param {import("./session.js").Moment} moment
 * @returns {Past | null}
 */
export function pastOf(store, moment) {
  if (moment === null) return null;

  const { checkpoints, bySha, pruned } = store;
  if ("sha" in moment) {
    const { sha, path = null, call = null } = moment;
    const record = bySha.get(sha) ?? checkpoints.find((each) => each.sha.startsWith(sha)) ?? null;
    if (record !== null) return pastAt(record, checkpoints.indexOf(record), call ?? record.seq, path);
    const seq = pruned.get(sha) ?? null;
    const at = seq === null ? -1 : placeOf(checkpoints, seq);
    return { ...NOWHERE, sha, seq, at, isPruned: pruned.has(sha), path };
  }
  const at = placeOf(checkpoints, moment.seq);
  return at < 0 ? { ...NOWHERE, seq: moment.seq } : pastAt(checkpoints[at], at, moment.seq, null);
}

/** @type {Past} */
const NOWHERE = { sha: null, seq: null, record: null, at: -1, codonId: null, runId: undefined, time: null, isPruned: false, path: null };

/** @returns {Past} */
function pastAt(record, at, seq, path) {
  const { sha, codonId, runId, timestamp } = record;
  return { sha, seq, record, at, codonId: codonId ?? null, runId, time: Date.parse(timestamp), isPruned: false, path };
}

const placeOf = (checkpoints, seq) =>
  checkpoints.findLastIndex((each) => each.seq <= seq && each.kind !== "safety");

/**
 * The step that is looked at: of the moment, which may lie between two, or the chosen one, or the one
 * to follow.
 * @param {import("./store.js").Store} store @param {import("./session.js").Looks} looks
 */
export const stepOf = (store, { moment, step }) =>
  moment === null ? (step ?? standingOf(store).followed) : pastOf(store, moment)?.codonId ?? null;

/**
 * The state right after a codon's end, for the checkpoint that was made of its end. The checkpoint
 * itself is made a moment before: by its own state the codon still runs.
 * @param {import("./client.js").Ask} ask
 * @param {{kind: string, codonId: string | null, runId: string, seq: number} | undefined} record
 * @returns {Promise<any>} null where there is no such state
 */
export async function stateAtEnd(ask, record) {
  if (record === undefined || !ENDS.has(record.kind)) return null;

  const { events = [] } = await ask("events.query", {
    types: ["state.transition"],
    codonId: record.codonId ?? undefined,
    since: record.seq,
    limit: PAGE,
  });
  const end = events.find((/** @type {any} */ event) => {
    const { type, data } = event.data.transition;
    return type === "CodonTransitioned" && data.runId === record.runId && !isActive(data.codon);
  });
  if (end === undefined) return null;

  const view = await ask("replay.view", { seq: end.seq, limit: 0 });
  return view.state;
}

/**
 * The checkpoint that the files now come from.
 * @param {import("./store.js").Store} store @param {any[]} rows checkpoints, oldest first
 */
export function nowSha(store, rows) {
  const run = store.state.runs[0];
  const own = run && rows.findLast((each) => each.runId === run.runId && each.kind !== "safety");
  return own?.sha ?? run?.startingConditions?.source?.checkpointSha ?? rows.at(-1)?.sha ?? null;
}

/**
 * Tells of checkpoints whether they are on the line that leads to now.
 * @param {any} state
 * @returns {(record: {runId: string, timestamp: string}) => boolean}
 */
export function keptIn(state) {
  const until = keptUntil(state);
  return ({ runId, timestamp }) => Date.parse(timestamp) <= (until.get(runId) ?? -Infinity);
}

/** Up to when each run is on that line: where the first step begins that it left behind. */
function keptUntil(state) {
  const line = new Set(thread(state));
  const byId = new Map(state.runs.map((/** @type {any} */ run) => [run.runId, run]));
  const until = new Map();
  for (let run = state.runs[0]; run !== undefined && !until.has(run.runId);) {
    const left = run.codons.find((/** @type {any} */ codon) => !line.has(codon));
    until.set(run.runId, left === undefined ? Infinity : Date.parse(left.startTime) - 1);
    run = byId.get(run.startingConditions?.source?.runId);
  }
  return until;
}
