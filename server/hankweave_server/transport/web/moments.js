/** What the state was at a moment, as people mean it. */
import { isActive } from "./state.js";

const ENDS = new Set(["completed", "error", "skipped"]);
const PAGE = 100;

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
    where: [
      { field: "type", op: "eq", value: "state.transition" },
      { field: "data.transition.type", op: "eq", value: "CodonTransitioned" },
      { field: "data.transition.data.codon.codonId", op: "eq", value: record.codonId },
    ],
    since: record.seq,
    limit: PAGE,
  });
  const end = events.find((/** @type {any} */ event) => {
    const { runId, codon } = event.data.transition.data;
    return runId === record.runId && !isActive(codon);
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
