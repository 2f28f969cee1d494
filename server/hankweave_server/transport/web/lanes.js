/**
 * Time as an axis: where each step lies on it and in which lane, and where each checkpoint.
 *
 * The first lane leads to now. What a rollback left behind, and attempts that were not adopted, lie
 * in the lanes below it, which are free again when they end. Work is to scale. Time in which nothing
 * worked is cut: a night would leave no room for the days before and after it.
 */
import { isActive, thread } from "./state.js";

const MOST_LANES = 4; // Below the first; what does not fit beside others shares the last one.
const PAUSE = 0.03; // Of all work: the most that a pause takes.
const PAUSES = 0.3; // And the most that all of them take.
const APART = 64; // Pixels from the beginning of a label to the next.
const FAR = 40; // Pixels that a checkpoint of another lane has to be nearer.
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const STEPS = [
  ...[1, 2, 5, 10, 20, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 20, 30].map((n) => n * MINUTE),
  ...[1, 2, 4, 8, 12, 24, 48, 96, 192].map((n) => n * HOUR),
];

/**
 * @typedef {{codon: any, runId: string, from: number, to: number, lane: number}} Bar
 * @typedef {{runId: string, from: number, to: number, fork: number, lane: number}} Side
 *   `fork`: when it left the line that it began on
 * @typedef {{bars: Bar[], sides: Side[], lanes: number}} Work `lanes`: those below the first
 * @typedef {{x: (at: number) => number, cuts: number[], stretches: [number, number][], pace: number}} Scale
 *   `cuts`: where pauses are cut, in pixels; `stretches`: the times between them; `pace`: pixels of a
 *   millisecond
 * @typedef {{xs: Float64Array, lanes: Uint8Array, ranks: Uint8Array}} Points one for each checkpoint
 */

/**
 * @param {any} state @param {number} now
 * @param {(sha: string | null | undefined) => number | undefined} timeOf when a checkpoint was taken
 * @returns {Work}
 */
export function workOf(state, now, timeOf) {
  const kept = new Set(thread(state));
  /** @type {Bar[]} */
  const bars = [];
  /** @type {Side[]} */
  const sides = [];
  /** @type {Map<string, Bar[]>} */
  const left = new Map();
  for (const run of state.runs.toReversed()) {
    const own = run.codons.map((/** @type {any} */ codon) => {
      const from = Date.parse(codon.startTime);
      return { codon, runId: run.runId, from, to: Math.max(from, endOf(codon, run, now)), lane: 0 };
    });
    bars.push(...own);
    const behind = own.filter((/** @type {Bar} */ { codon }) => !kept.has(codon));
    if (behind.length === 0) continue;

    const [{ from }] = behind;
    const began = timeOf(run.startingConditions?.source?.checkpointSha);
    const fork = behind.length < own.length ? own[own.length - behind.length - 1].to : began;
    const to = Math.max(...behind.map((/** @type {Bar} */ each) => each.to));
    sides.push({ runId: run.runId, from, to, fork: Math.min(from, fork ?? from), lane: 0 });
    left.set(run.runId, behind);
  }
  const lanes = giveLanes(sides);
  for (const { runId, lane } of sides) for (const bar of left.get(runId) ?? []) bar.lane = lane;
  return { bars, sides, lanes };
}

function endOf(codon, run, now) {
  if (codon.endTime) return Date.parse(codon.endTime);
  return isActive(codon) && !run.endTime ? now : Date.parse(run.endTime ?? codon.startTime);
}

/** Each into the first lane that is free when it begins; how many there are. @param {Side[]} sides */
function giveLanes(sides) {
  /** @type {number[]} when each lane is free again */
  const taken = [];
  for (const side of sides.toSorted((one, other) => one.from - other.from)) {
    let lane = taken.findIndex((until) => until <= side.from);
    if (lane < 0) lane = Math.min(taken.length, MOST_LANES - 1);
    taken[lane] = Math.max(taken[lane] ?? 0, side.to);
    side.lane = lane + 1;
  }
  return taken.length;
}

/**
 * @param {{from: number, to: number}[]} busy when something worked
 * @param {{begin: number, end: number, left: number, right: number}} extent
 * @returns {Scale}
 */
export function scaleOf(busy, { begin, end, left, right }) {
  const edges = edgesOf(busy, begin, end); // Pauses at even places, work between them.
  const lengths = edges.slice(1).map((to, at) => to - edges[at]);
  const works = lengths.filter((_, at) => at % 2 === 1).reduce((sum, each) => sum + each, 0);
  const pauses = lengths.filter((each, at) => at % 2 === 0 && each > 0).length;
  const most = works > 0 ? Math.min(PAUSE, PAUSES / Math.max(1, pauses)) * works : Infinity;
  const places = [0];
  /** @type {number[]} */
  const cut = [];
  lengths.forEach((length, at) => {
    const isCut = at % 2 === 0 && length > most;
    if (isCut) cut.push(at);
    places.push(places[at] + (isCut ? most : length));
  });
  const pace = (right - left) / Math.max(places[places.length - 1], 1);
  const x = (/** @type {number} */ time) => {
    let [low, high] = [0, edges.length - 2];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (edges[middle] <= time) low = middle;
      else high = middle - 1;
    }
    const part = lengths[low] > 0 ? (time - edges[low]) / lengths[low] : 0;
    const within = Math.min(1, Math.max(0, part)) * (places[low + 1] - places[low]);
    return left + (places[low] + within) * pace;
  };
  /** @type {[number, number][]} */
  const stretches = [];
  let from = begin;
  for (const at of cut) {
    if (edges[at] > from || at > 0) stretches.push([from, edges[at]]);
    from = edges[at + 1];
  }
  stretches.push([from, end]);
  const cuts = cut.map((at) => left + ((places[at] + places[at + 1]) / 2) * pace);
  return { x, cuts, stretches, pace };
}

/** Where work begins and ends, in turn, between the beginning and the end of all. */
function edgesOf(busy, begin, end) {
  const edges = [begin];
  for (const { from, to } of busy.toSorted((one, other) => one.from - other.from)) {
    const last = edges.length - 1;
    if (last > 0 && from <= edges[last]) edges[last] = Math.max(edges[last], to);
    else edges.push(from, to);
  }
  return [...edges, Math.max(end, edges[edges.length - 1])];
}

/**
 * The times that are written above the axis.
 * @param {Scale} scale @param {{right: number, apart: number}} room
 * @returns {{x: number, at: number, isFirst: boolean, isFine: boolean}[]} `isFirst`: of a stretch;
 *   `isFine`: one needs its seconds to be told from the next
 */
export function labelsOf({ x, stretches, pace }, { right, apart }) {
  const step = STEPS.find((each) => each * pace >= apart) ?? STEPS[STEPS.length - 1];
  /** @type {{x: number, at: number, isFirst: boolean, isFine: boolean}[]} */
  const labels = [];
  let free = -Infinity;
  for (const [from, to] of stretches) {
    for (let at = from; at <= to; at += step) {
      const place = x(at);
      // Where work goes on after a pause is told rather than what lies just before it.
      if (place < free && at === from && labels.at(-1)?.isFirst === false) labels.pop();
      else if (place < free) continue;
      if (place + APART > right) continue;
      labels.push({ x: place, at, isFirst: at === from, isFine: step < MINUTE });
      free = place + APART;
    }
  }
  return labels;
}

/**
 * Where each checkpoint lies: below the bar of its step, which may have been left behind.
 * @param {any[]} rows @param {Float64Array} times @param {Work} work @param {Scale} scale
 * @param {(row: any) => number} rankOf @returns {Points}
 */
export function pointsOf(rows, times, { bars, sides }, { x }, rankOf) {
  /** @type {Map<string, Map<string, Bar[]>>} */
  const byRun = new Map();
  for (const bar of bars) {
    const own = byRun.get(bar.runId) ?? new Map();
    byRun.set(bar.runId, own);
    own.set(bar.codon.codonId, [...(own.get(bar.codon.codonId) ?? []), bar]);
  }
  const sideOf = new Map(sides.map((side) => [side.runId, side]));
  const laneOf = (/** @type {any} */ { runId, codonId }, /** @type {number} */ time) => {
    const own = byRun.get(runId)?.get(codonId);
    if (own !== undefined) return (own.findLast(({ from }) => from <= time) ?? own[0]).lane;
    const side = sideOf.get(runId);
    return side !== undefined && time >= side.from ? side.lane : 0;
  };
  const points = {
    xs: new Float64Array(rows.length),
    lanes: new Uint8Array(rows.length),
    ranks: new Uint8Array(rows.length),
  };
  rows.forEach((row, at) => {
    points.xs[at] = x(times[at]);
    points.lanes[at] = laneOf(row, times[at]);
    points.ranks[at] = rankOf(row);
  });
  return points;
}

/**
 * Those that cannot be told apart as one, which counts as its highest rank.
 * @param {Points} points @param {number} apart pixels
 * @returns {{x: number, lane: number, rank: number, count: number}[]}
 */
export function clustersOf({ xs, lanes, ranks }, apart) {
  const bins = new Map();
  for (let at = 0; at < xs.length; at += 1) {
    const cell = Math.floor(xs[at] / apart);
    const key = cell * (MOST_LANES + 1) + lanes[at];
    const bin = bins.get(key);
    if (bin === undefined)
      bins.set(key, { x: (cell + 0.5) * apart, lane: lanes[at], rank: ranks[at], count: 1 });
    else {
      bin.count += 1;
      bin.rank = Math.max(bin.rank, ranks[at]);
    }
  }
  return [...bins.values()];
}

/** The checkpoint that is meant by a place; -1 where there is none. @param {Points} points @param {number} x @param {number} lane */
export function nearest({ xs, lanes }, x, lane) {
  let found = -1;
  let least = Infinity;
  for (let at = 0; at < xs.length; at += 1) {
    const far = Math.abs(xs[at] - x) + (lanes[at] === lane ? 0 : FAR);
    if (far > least) continue;
    found = at; // Of two in one place, the later one.
    least = far;
  }
  return found;
}

/**
 * Marks with their words as far as there is room; what matters most is placed first, and what would
 * lie upon another one is left out.
 * @template {{x: number, rank: number, word: string}} Mark
 * @param {Mark[]} marks @param {{left: number, right: number}} room
 * @returns {(Mark & {from: number, to: number, isTold: boolean})[]}
 */
export function placed(marks, { left, right }) {
  /** @type {(Mark & {from: number, to: number, isTold: boolean})[]} */
  const found = [];
  const order = marks.toSorted((one, other) => other.rank - one.rank || other.x - one.x);
  for (const mark of order) {
    for (const isTold of [true, false]) {
      const wide = ICON + (isTold ? mark.word.length * LETTER + 6 : 0);
      const from = Math.max(left, Math.min(mark.x - ICON / 2, right - wide));
      const to = from + wide;
      if (found.some((each) => from < each.to + 2 && each.from < to + 2)) continue;
      found.push({ ...mark, from, to, isTold });
      break;
    }
  }
  return found;
}

const ICON = 14;
const LETTER = 6; // About the width of one at 11 pixels.
