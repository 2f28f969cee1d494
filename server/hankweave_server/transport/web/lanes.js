/**
 * Where in the picture of time each run lies: a lane for each, freed when the run has ended.
 *
 * Rows are checkpoints, oldest first. A run's line begins where it left the run it went on from,
 * and ends at its newest checkpoint.
 */

/**
 * @typedef {{runId: string, lane: number, first: number, last: number, from: number | null,
 *   fromLane: number, mainUntil: number}} Line
 *   `from`: the row that the line leaves; up to `mainUntil` it leads to now (-1: nowhere).
 */

/**
 * @param {any[]} rows
 * @param {any[]} runs newest first, as in the state
 * @returns {{lines: Line[], width: number, laneOf: Map<string, number>}}
 */
export function layOut(rows, runs) {
  const spans = spansOf(rows);
  const byId = new Map(runs.map((run) => [run.runId, run]));
  const main = mainLine(runs, byId);
  /** @type {Line[]} */
  const lines = [];
  const laneOf = new Map();
  /** @type {number[]} the row up to which each lane is taken */
  const taken = [];
  for (const [runId, { first, last }] of spans) {
    const from = leftAt(rows, first, byId.get(runId));
    const begin = from ?? first;
    let lane = taken.findIndex((until) => until < begin);
    if (lane < 0) lane = taken.length;
    taken[lane] = last;
    laneOf.set(runId, lane);
    const fromLane = from === null ? lane : (laneOf.get(rows[from].runId) ?? lane);
    lines.push({
      runId,
      lane,
      first,
      last,
      from,
      fromLane,
      mainUntil: main.has(runId) ? last : -1,
    });
  }
  cutMain(rows, lines);
  return { lines, width: Math.max(1, taken.length), laneOf };
}

/** The row that a row came from, on its own line or the one that was left. @param {any[]} rows @param {Line[]} lines @param {number} row */
export function rowBefore(rows, lines, row) {
  for (let at = row - 1; at >= 0; at -= 1) if (rows[at].runId === rows[row].runId) return at;
  return lines.find((line) => line.runId === rows[row]?.runId)?.from ?? null;
}

/** Which lines show in a row. @param {Line[]} lines @param {number} row */
export function linesAt(lines, row) {
  return lines.filter((line) => (line.from ?? line.first) <= row && row <= line.last);
}

/** Where the line to now goes on with another run, the rest of the run it leaves leads nowhere. */
function cutMain(rows, lines) {
  const byRun = new Map(lines.map((line) => [line.runId, line]));
  for (const { from, mainUntil } of lines) {
    const left = from === null || mainUntil < 0 ? undefined : byRun.get(rows[from].runId);
    if (left !== undefined && left.mainUntil >= 0)
      left.mainUntil = Math.min(left.mainUntil, from ?? 0);
  }
}

function spansOf(rows) {
  const spans = new Map();
  for (let at = 0; at < rows.length; at += 1) {
    const span = spans.get(rows[at].runId);
    if (span === undefined) spans.set(rows[at].runId, { first: at, last: at });
    else span.last = at;
  }
  return spans;
}

/** The row a run went on from; the newest shown before it where that one is not shown. */
function leftAt(rows, first, run) {
  const source = run?.startingConditions?.source;
  if (source === undefined || first === 0) return null;

  /** @type {number | null} */
  let best = null;
  for (let at = first - 1; at >= 0; at -= 1) {
    if (source.checkpointSha && rows[at].sha === source.checkpointSha) return at;
    if (best === null && rows[at].runId === source.runId && isBefore(rows[at], source)) best = at;
  }
  return best;
}

const isBefore = (row, source) => row.codonId === source.afterCodon || source.afterCodon === null;

function mainLine(runs, byId) {
  const main = new Set();
  for (let run = runs[0]; run !== undefined && !main.has(run.runId);) {
    main.add(run.runId);
    run = byId.get(run.startingConditions?.source?.runId);
  }
  return main;
}
