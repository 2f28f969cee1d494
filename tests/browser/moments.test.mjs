/** What the page makes of moments and ends of codons, without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { nowSha, stateAtEnd } from "../../server/hankweave_server/transport/web/moments.js";
import { emptyState, totals, unusedCosts } from "../../server/hankweave_server/transport/web/state.js";

test("the state of a codon's end is the one right after it ended", async () => {
  const moved = (seq, runId, status) => ({
    seq,
    data: { transition: { type: "CodonTransitioned", data: { runId, codon: { codonId: "a", status } } } },
  });
  const asked = [];
  const ask = async (type, data) => {
    asked.push([type, data]);
    if (type === "replay.view") return { state: { at: data.seq } };
    return { events: [moved(11, "r1", "completing-sentinels"), moved(12, "r0", "completed"), moved(13, "r1", "completed")] };
  };
  const record = { kind: "completed", codonId: "a", runId: "r1", seq: 10 };
  assert.deepEqual(await stateAtEnd(ask, record), { at: 13 });
  assert.equal(asked[0][1].since, 10);
  for (const kind of ["tool", "turn", "manual", "safety"])
    assert.equal(await stateAtEnd(ask, { ...record, kind }), null);
  assert.equal(await stateAtEnd(async () => ({ events: [] }), record), null);
  assert.equal(await stateAtEnd(ask, undefined), null);
});

test("what a rollback left behind is counted as rolled back, and stays in the total", () => {
  const codon = (codonId, finalCost, completionCheckpoint) => ({
    codonId,
    status: "completed",
    finalCost,
    completionCheckpoint,
  });
  const first = { runId: "r1", codons: [codon("a", 1, "s1"), codon("b", 0.25, "s2")] };
  const state = { ...emptyState(), runs: [first] };
  assert.deepEqual(unusedCosts(state), { rolledBack: 0, attempts: 0 });

  const source = { runId: "r1", afterCodon: "a", checkpointSha: "s1" };
  const second = { runId: "r2", startingConditions: { source }, codons: [codon("b", 2, "s3")] };
  state.runs = [second, first];
  assert.deepEqual(unusedCosts(state), { rolledBack: 0.25, attempts: 0 });
  assert.equal(totals(state).cost, 3.25);
});

test("attempts that were not adopted are counted apart, and a failed try is not rolled back", () => {
  const codon = (codonId, status, finalCost, sha) => ({ codonId, status, finalCost, completionCheckpoint: sha });
  const after = (runId, afterCodon, checkpointSha) => ({ source: { runId, afterCodon, checkpointSha } });
  const first = { runId: "r1", codons: [codon("a", "completed", 1, "s1")] };
  const tries = ["t1", "t2"].map((runId, at) => ({
    runId,
    startingConditions: after("r1", "a", "s1"),
    codons: [codon("b", "failed", 0.125), codon("b", "completed", 0.25 + at, runId)],
  }));
  const attempts = tries.map(({ runId }) => ({ attemptId: `e-${runId}`, runId }));
  const explorations = [{ attempts }];
  const failed = { runId: "r2", startingConditions: after("r1", "a", "s1"), codons: [codon("b", "failed", 2)] };
  const state = { ...emptyState(), explorations, runs: [{ runId: "r3", codons: [], startingConditions: after("r1", "a", "s1") }, failed, ...tries, first] };
  assert.deepEqual(unusedCosts(state), { rolledBack: 0, attempts: 1.75 });

  const adopted = { runId: "r4", codons: [], startingConditions: after("t1", "b", "t1") };
  assert.deepEqual(unusedCosts({ ...state, runs: [adopted, ...state.runs] }), { rolledBack: 0, attempts: 1.375 });
});

test("now is the newest checkpoint of the newest run, or where that run began", () => {
  const rows = [
    { sha: "1", runId: "r1", kind: "completed" },
    { sha: "2", runId: "r1", kind: "completed" },
    { sha: "3", runId: "r2", kind: "safety" },
  ];
  const began = { startingConditions: { source: { checkpointSha: "1" } } };
  assert.equal(nowSha({ state: { runs: [{ runId: "r1" }] } }, rows.slice(0, 2)), "2");
  assert.equal(nowSha({ state: { runs: [{ runId: "r2", ...began }] } }, rows), "1");
  assert.equal(nowSha({ state: { runs: [] } }, []), null);
});
