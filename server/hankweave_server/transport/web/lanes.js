/**
 * Where in the picture of time each run lies: a lane for each, freed when the run has ended.
 *
 * Rows are checkpoints, oldest first. A run's line begins where it left the run it went on from,
 * and ends at its newest checkpoint. Runs that left the same row share the way there: it is the
 * newest one's, from which the others turn off just before they begin. So their lanes are free again
 * when they end, and going back to one checkpoint a hundred times takes four lanes.
 */

/**
 * @typedef {{runId: string, lane: number, first: number, last: number, from: number | null,
 *   begin: number, fromLane: number, mainUntil: number}} Line
 *   `from`: the row that the run went on from. `begin`: where its line leaves another one, in the
 *   lane `fromLane`. Up to `mainUntil` it leads to now (-1: nowhere).
 */

/**
 * @param {any[]} rows
 * @param {any[]} runs newest first, as in the state
 * @returns {{lines: Line[], width: number, laneOf: Map<string, number>}}
 */
export function layOut(rows, runs) {
  const places = placesOf(rows);
  const byId = new Map(runs.map((run) => [run.runId, run]));
  const main = mainLine(runs, byId);
  /** @type {Line[]} */
  const lines = [];
  for (const [runId, own] of places.byRun) {
    const first = own[0];
    const last = own[own.length - 1];
    const from = leftAt(rows, places, first, byId.get(runId));
    const mainUntil = main.has(runId) ? last : -1;
    lines.push({ runId, lane: 0, first, last, from, begin: from ?? first, fromLane: 0, mainUntil });
  }
  const ways = shareWays(lines);
  const { laneOf, width } = giveLanes(rows, lines, ways);
  const begun = runs
    .filter(({ runId }) => main.has(runId) && !places.byRun.has(runId))
    .map((run) => leftAt(rows, places, rows.length, run));
  const went = lines.filter((line) => line.mainUntil >= 0).map((line) => line.from);
  cutMain(rows, lines, [...went, ...begun]);
  for (const [line, way] of ways) {
    if (line.mainUntil >= 0) way.mainUntil = Math.max(way.mainUntil, line.begin);
  }
  return { lines, width, laneOf };
}

/**
 * The line that a line turns off from, where the row that it went on from is left once more later.
 * @param {Line[]} lines @returns {Map<Line, Line>}
 */
function shareWays(lines) {
  /** @type {Map<number, Line>} */
  const newest = new Map();
  for (const line of lines) if (line.from !== null) newest.set(line.from, line);
  const ways = new Map();
  for (const line of lines) {
    const way = line.from === null ? undefined : newest.get(line.from);
    if (way === undefined || way === line) continue;

    ways.set(line, way);
    line.begin = Math.max(line.from ?? 0, line.first - 1);
  }
  return ways;
}

function giveLanes(rows, lines, ways) {
  const laneOf = new Map();
  /** @type {number[]} the row up to which each lane is taken */
  const taken = [];
  for (const line of lines) {
    let lane = taken.findIndex((until) => until < line.begin);
    if (lane < 0) lane = taken.length;
    taken[lane] = line.last;
    line.lane = lane;
    laneOf.set(line.runId, lane);
  }
  for (const line of lines) {
    const way = ways.get(line);
    const left = line.from === null ? line.lane : laneOf.get(rows[line.from].runId);
    line.fromLane = way !== undefined && line.begin !== line.from ? way.lane : left;
  }
  return { laneOf, width: Math.max(1, taken.length) };
}

/** The row that a row came from, on its own line or the one that was left. @param {any[]} rows @param {Line[]} lines @param {number} row */
export function rowBefore(rows, lines, row) {
  for (let at = row - 1; at >= 0; at -= 1) if (rows[at].runId === rows[row].runId) return at;
  return lines.find((line) => line.runId === rows[row]?.runId)?.from ?? null;
}

const STRETCH = 64; // Rows that are looked for together: of thousands of lines few are in sight.
/** @type {WeakMap<Line[], Map<number, Line[]>>} */
const stretches = new WeakMap();

/** Which lines show in a row. @param {Line[]} lines @param {number} row */
export function linesAt(lines, row) {
  const known = stretches.get(lines) ?? new Map();
  stretches.set(lines, known);
  const from = row - (row % STRETCH);
  const near =
    known.get(from) ?? lines.filter((line) => line.begin < from + STRETCH && from <= line.last);
  known.set(from, near);
  return near.filter((/** @type {Line} */ line) => line.begin <= row && row <= line.last);
}

/**
 * Where the line to now goes on with another run, the rest of the run it leaves leads nowhere.
 * @param {any[]} rows @param {Line[]} lines @param {(number | null)[]} left the rows it leaves
 */
function cutMain(rows, lines, left) {
  const byRun = new Map(lines.map((line) => [line.runId, line]));
  for (const row of left) {
    const line = row === null ? undefined : byRun.get(rows[row].runId);
    if (line !== undefined && line.mainUntil >= 0)
      line.mainUntil = Math.min(line.mainUntil, row ?? 0);
  }
}

/** @returns {{bySha: Map<string, number>, byRun: Map<string, number[]>}} */
function placesOf(rows) {
  const bySha = new Map();
  const byRun = new Map();
  rows.forEach(({ sha, runId }, row) => {
    bySha.set(sha, row);
    const own = byRun.get(runId);
    if (own === undefined) byRun.set(runId, [row]);
    else own.push(row);
  });
  return { bySha, byRun };
}

/** The row a run went on from; the newest shown before it where that one is not shown. */
function leftAt(rows, { bySha, byRun }, first, run) {
  const source = run?.startingConditions?.source;
  if (source === undefined) return null;

  const exact = bySha.get(source.checkpointSha);
  if (exact !== undefined && exact < first) return exact;
  const own = byRun.get(source.runId) ?? [];
  return own.findLast((row) => row < first && isBefore(rows[row], source)) ?? null;
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
