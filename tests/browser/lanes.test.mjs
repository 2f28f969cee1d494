/** Time as an axis, without a page: which lane a step gets, what is to scale, which ticks are drawn. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyState } from "../../server/hankweave_server/transport/web/state.js";
import {
  clustersOf,
  labelsOf,
  nearest,
  placed,
  pointsOf,
  scaleOf,
  workOf,
} from "../../server/hankweave_server/transport/web/lanes.js";

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const stamp = (at) => new Date(at).toISOString();
const none = () => undefined;

/** A codon that worked from one second to another. */
const ran = (codonId, from, to, fields = {}) => ({
  codonId,
  status: "completed",
  startTime: stamp(from * SECOND),
  endTime: stamp(to * SECOND),
  completionCheckpoint: `${codonId}-${to}`,
  ...fields,
});
const run = (runId, codons, source = undefined) => ({ runId, codons, startingConditions: { source } });
const after = (runId, afterCodon, checkpointSha) => ({ runId, afterCodon, checkpointSha });

/** Runs oldest first, as they were begun. */
const stateOf = (...runs) => ({ ...emptyState(), runs: runs.toReversed() });
const lanesOf = ({ bars }) => bars.map(({ codon, runId, lane }) => `${runId} ${codon.codonId} ${lane}`);

test("what leads to now lies in the first lane, what a rollback left behind below it, from where it left", () => {
  const work = workOf(
    stateOf(
      run("r1", [ran("a", 0, 10), ran("b", 10, 30)]),
      run("r2", [ran("b", 40, 50), ran("c", 50, 60)], after("r1", "a", "a-10")),
      run("r3", [ran("c", 70, 90)], after("r2", "b", "b-50")),
    ),
    0,
    none,
  );
  assert.deepEqual(lanesOf(work), ["r1 a 0", "r1 b 1", "r2 b 0", "r2 c 1", "r3 c 0"]);
  assert.deepEqual(
    work.sides.map(({ runId, from, to, fork }) => [runId, from / SECOND, to / SECOND, fork / SECOND]),
    [
      ["r1", 10, 30, 10],
      ["r2", 50, 60, 50],
    ],
  );
  assert.equal(work.lanes, 1, "a lane is free again when what lies in it ends");
});

test("branches that work at the same time get lanes of their own, as many as there is room for", () => {
  const attempts = (n) =>
    Array.from({ length: n }, (_, at) => run(`try ${at}`, [ran("b", 10 + at, 50)], after("r1", "a", "a-10")));
  const state = (n) => {
    const made = stateOf(run("r1", [ran("a", 0, 10)]), ...attempts(n), run("now", [ran("c", 60, 70)], after("r1", "a", "a-10")));
    return workOf(made, 0, (sha) => (sha === "a-10" ? 10 * SECOND : undefined));
  };
  assert.deepEqual(state(3).sides.map(({ lane }) => lane), [1, 2, 3]);
  assert.deepEqual(state(3).sides.map(({ fork }) => fork / SECOND), [10, 10, 10]);
  assert.equal(state(9).lanes, 4);
  assert.ok(state(9).sides.every(({ lane }) => lane >= 1 && lane <= 4));
});

test("a step that works lasts until now, and one whose server crashed until its run ended", () => {
  const works = { codonId: "a", status: "running", startTime: stamp(0) };
  const [bar] = workOf(stateOf(run("r", [works])), 5 * SECOND, none).bars;
  assert.equal(bar.to, 5 * SECOND);
  const crashed = { ...run("r", [works]), endTime: stamp(3 * SECOND) };
  assert.equal(workOf(stateOf(crashed), 9 * HOUR, none).bars[0].to, 3 * SECOND);
});

test("work is to scale, and a night between two days is cut", () => {
  const busy = [
    { from: 0, to: HOUR },
    { from: 9 * HOUR, to: 11 * HOUR },
  ];
  const { x, cuts, stretches, pace } = scaleOf(busy, { begin: 0, end: 11 * HOUR, left: 0, right: 1_000 });
  assert.equal(x(0), 0);
  assert.equal(Math.round(x(11 * HOUR)), 1_000);
  const first = x(HOUR) - x(0);
  assert.ok(Math.abs(x(11 * HOUR) - x(9 * HOUR) - 2 * first) < 0.01, "twice the time is twice as wide");
  assert.ok(x(9 * HOUR) - x(HOUR) < 40);
  assert.ok(x(5 * HOUR) > x(HOUR) && x(5 * HOUR) < x(9 * HOUR), "what was done in the night lies in it");
  assert.equal(cuts.length, 1);
  assert.deepEqual(stretches, [[0, HOUR], [9 * HOUR, 11 * HOUR]]);
  assert.ok(Math.abs(first - HOUR * pace) < 0.01);
  for (let at = -HOUR; at < 12 * HOUR; at += HOUR / 7) assert.ok(x(at) <= x(at + HOUR / 7), "no step back");
});

test("times are written far enough from each other, and where work goes on after a pause", () => {
  const busy = [{ from: 0, to: HOUR }, { from: 9 * HOUR, to: 11 * HOUR }];
  const scale = scaleOf(busy, { begin: 0, end: 11 * HOUR, left: 0, right: 1_000 });
  const labels = labelsOf(scale, { right: 1_000, apart: 140 });
  assert.ok(labels.length >= 4);
  assert.deepEqual(labels.filter(({ isFirst }) => isFirst).map(({ at }) => at), [0, 9 * HOUR]);
  labels.slice(1).forEach(({ x }, at) => assert.ok(x - labels[at].x >= 64));
  assert.ok(labels.every(({ isFine }) => !isFine));
  const quick = scaleOf([{ from: 0, to: 8 * SECOND }], { begin: 0, end: 8 * SECOND, left: 0, right: 1_000 });
  assert.ok(labelsOf(quick, { right: 1_000, apart: 140 }).every(({ isFine }) => isFine));
});

test("no work at all, and all at one instant, can be drawn", () => {
  for (const end of [0, 5]) {
    const { x, stretches } = scaleOf([], { begin: 0, end, left: 16, right: 100 });
    assert.ok(Number.isFinite(x(0)) && Number.isFinite(x(end)));
    assert.equal(stretches.length, 1);
  }
});

/** So many checkpoints of so many runs, each left for the next after half of its steps. */
function past(checkpoints, count) {
  const rows = [];
  const runs = [];
  const each = checkpoints / count;
  for (let at = 0; at < count; at += 1) {
    const from = at * each;
    const codons = [ran("a", from, from + each / 2, { completionCheckpoint: `a ${at}` }), ran("b", from + each / 2, from + each)];
    const source = at === 0 ? undefined : after(`run ${at - 1}`, "a", `a ${at - 1}`);
    runs.push(run(`run ${at}`, codons, source));
    for (let n = 0; n < each; n += 1)
      rows.push({ sha: `${rows.length}`, runId: `run ${at}`, codonId: n < each / 2 ? "a" : "b", time: (from + n + 0.5) * SECOND });
  }
  return { rows, state: stateOf(...runs), end: checkpoints * SECOND };
}

function pictured({ rows, state, end }, width = 1_248) {
  const work = workOf(state, end, none);
  const scale = scaleOf(work.bars, { begin: 0, end, left: 16, right: 16 + width });
  const times = Float64Array.from(rows, ({ time }) => time);
  const points = pointsOf(rows, times, work, scale, ({ rank = 0 }) => rank);
  return { work, points, clusters: clustersOf(points, 4) };
}

test("a checkpoint lies below its own step, in the lane of that", () => {
  const { rows, state, end } = past(40, 2);
  const { points } = pictured({ rows, state, end });
  const lanes = rows.map(({ runId, codonId }, at) => `${runId} ${codonId} ${points.lanes[at]}`);
  assert.deepEqual([...new Set(lanes)], ["run 0 a 0", "run 0 b 1", "run 1 a 0", "run 1 b 0"]);
  assert.ok(points.xs.every((x, at) => at === 0 || x >= points.xs[at - 1]));
});

test("ticks that cannot be told apart are one, and what matters most is seen", () => {
  const points = { xs: Float64Array.of(1, 2, 3, 9, 2), lanes: Uint8Array.of(0, 0, 0, 0, 1), ranks: Uint8Array.of(0, 2, 1, 0, 0) };
  assert.deepEqual(
    clustersOf(points, 4).map(({ lane, rank, count }) => [lane, rank, count]),
    [[0, 2, 3], [0, 0, 1], [1, 0, 1]],
  );
});

test("the nearest checkpoint is meant, in the lane that is pointed at if one is near there", () => {
  const points = { xs: Float64Array.of(10, 20, 20, 200), lanes: Uint8Array.of(0, 0, 1, 1), ranks: new Uint8Array(4) };
  assert.equal(nearest(points, 19, 0), 1);
  assert.equal(nearest(points, 19, 1), 2);
  assert.equal(nearest(points, 199, 0), 3);
  assert.equal(nearest({ ...points, xs: new Float64Array(0) }, 5, 0), -1);
});

test("marks keep their words while there is room, and no mark lies upon another", () => {
  const mark = (x, rank, word) => ({ x, rank, word });
  const found = placed([mark(100, 1, "allowed"), mark(110, 3, "failed"), mark(250, 1, "denied"), mark(398, 1, "allowed")], { left: 16, right: 400 });
  const told = Object.fromEntries(found.map(({ x, isTold }) => [x, isTold]));
  assert.deepEqual(told, { 110: true, 250: true, 398: true });
  for (const one of found) {
    assert.ok(one.from >= 16 && one.to <= 400);
    for (const other of found) assert.ok(one === other || one.to < other.from || other.to < one.from);
  }
});

test("ten thousand checkpoints of two thousand runs are a few hundred ticks, drawn within a second", () => {
  const made = past(10_000, 2_000);
  pictured(made); // Compiled.
  const begun = performance.now();
  const { points, clusters } = pictured(made);
  const took = performance.now() - begun;
  assert.equal(points.xs.length, 10_000);
  assert.ok(clusters.length < 2 * (1_248 / 4 + 1), `${clusters.length} ticks`);
  assert.equal(clusters.reduce((sum, { count }) => sum + count, 0), 10_000);
  assert.ok(took < 1_000, `${took} ms`);
});
