/** The picture of time, without a page: which run gets which lane, and which line leads to now. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { layOut, linesAt } from "../../server/hankweave_server/transport/web/lanes.js";

/** A past from the lengths of its runs, and the rows that they went on from. */
function past(...made) {
  const rows = [];
  const runs = [];
  made.forEach(([length, from = null], at) => {
    const source =
      from === null
        ? undefined
        : { runId: rows[from].runId, checkpointSha: rows[from].sha, afterCodon: null };
    runs.unshift({ runId: `run ${at}`, startingConditions: { source } });
    for (let n = 0; n < length; n += 1)
      rows.push({ sha: `${rows.length}`, runId: `run ${at}`, codonId: null });
  });
  return { rows, runs };
}

/** No two lines are ever in one place, and each is where its run's checkpoints are. */
function isDrawable({ rows, runs }) {
  const picture = layOut(rows, runs);
  rows.forEach((row, at) => {
    const lanes = linesAt(picture.lines, at).map((line) => line.lane);
    assert.equal(new Set(lanes).size, lanes.length, `two lines in one lane at row ${at}`);
    assert.ok(lanes.includes(picture.laneOf.get(row.runId)), `row ${at} lies on its line`);
  });
  for (const line of picture.lines) {
    if (line.from === null) continue;
    const there = linesAt(picture.lines, line.begin).map((each) => each.lane);
    assert.ok(there.includes(line.fromLane), `${line.runId} leaves a line that is there`);
  }
  return picture;
}

const onMain = ({ lines }, row) => linesAt(lines, row).some((line) => row <= line.mainUntil);

test("each run has a lane of its own while it and what left it are drawn", () => {
  const { lines, width } = isDrawable(past([4], [3, 1], [2, 5], [1, 0]));
  assert.equal(width, 3);
  assert.deepEqual(
    lines.map(({ from, begin }) => [from, begin]),
    [
      [null, 0],
      [1, 1],
      [5, 5],
      [0, 0],
    ],
  );
});

test("a hundred returns to one checkpoint take four lanes, not a hundred", () => {
  const returns = Array.from({ length: 100 }, () => [3, 1]);
  const picture = isDrawable(past([5], ...returns));
  assert.ok(picture.width <= 4, `${picture.width} lanes`);
  // The way to now: to the checkpoint, along the shared way, and on the newest run.
  for (let row = 0; row < 305; row += 1) assert.ok(onMain(picture, row), `row ${row}`);
  const dead = picture.lines.filter((line) => line.mainUntil < 0).length;
  assert.equal(dead, 99);
});

test("the way to now leads over a run that is not the newest of its siblings", () => {
  const { rows, runs } = past([3], [2, 1], [2, 1], [2, 3]);
  const picture = isDrawable({ rows, runs });
  const until = Object.fromEntries(picture.lines.map((line) => [line.runId, line.mainUntil]));
  assert.deepEqual(until, { "run 0": 1, "run 1": 3, "run 2": 2, "run 3": 8 });
});

test("what a run without a checkpoint left behind does not lead to now", () => {
  const { rows, runs } = past([6]);
  const source = { runId: "run 0", checkpointSha: "2", afterCodon: null };
  runs.unshift({ runId: "run 1", startingConditions: { source } });
  assert.equal(layOut(rows, runs).lines[0].mainUntil, 2);
});

test("pasts of any shape can be drawn", () => {
  let seed = 7;
  const random = (below) => (seed = (seed * 16_807) % 2_147_483_647) % below;
  for (let round = 0; round < 200; round += 1) {
    const made = [[1 + random(5)]];
    for (let count = random(30), rows = made[0][0]; count > 0; count -= 1) {
      const length = 1 + random(4);
      made.push(random(8) === 0 ? [length] : [length, random(rows)]);
      rows += length;
    }
    isDrawable(past(...made));
  }
});

test("ten thousand checkpoints of two thousand runs are laid out within a second", () => {
  const made = [[5]];
  for (let at = 1; at < 2_000; at += 1) made.push([5, (at * 7_919) % (5 * at)]);
  const { rows, runs } = past(...made);
  const begun = performance.now();
  layOut(rows, runs);
  assert.ok(performance.now() - begun < 1_000);
});
