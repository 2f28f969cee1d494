/** What the page makes of rollbacks and ends of codons, without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ChangedFiles, movementOf } from "../../server/hankweave_server/transport/web/files.js";
import { nowSha, stateAtEnd } from "../../server/hankweave_server/transport/web/moments.js";
import { emptyState, rolledBackCost, totals } from "../../server/hankweave_server/transport/web/state.js";

function changed(...files) {
  const list = new ChangedFiles();
  for (const [seq, path, action = "created"] of files)
    list.changed({ seq, timestamp: "", data: { path, action, bytes: 1, source: {} } });
  return list;
}

test("files that changed between a rollback's target and the rollback leave the list", () => {
  const list = changed([3, "kept.txt"], [7, "gone.txt"], [8, "notes/gone.md"], [21, "later.txt"]);
  list.wentBack({ seq: 20, target: 5 });
  assert.deepEqual([...list.keys()], ["kept.txt", "later.txt"]);
});

test("a rollback of single paths, and one that keeps edits, leave the other files", () => {
  const list = changed([7, "a.txt"], [8, "notes/b.md"], [9, "notes/c.md"], [10, "notesbook"]);
  list.wentBack({ seq: 20, target: 5, paths: ["notes"], kept: ["notes/c.md"] });
  assert.deepEqual([...list.keys()], ["a.txt", "notes/c.md", "notesbook"]);
});

test("both events of a rollback say where the files went; one without a report says nothing", () => {
  const target = { eventSeq: 5 };
  const files = { type: "checkpoint.rollback", seq: 9, data: { target, paths: ["a"], report: null } };
  assert.deepEqual(movementOf(files), { seq: 9, target: 5, paths: ["a"], kept: [] });
  const report = { target, kept: [{ path: "mine" }] };
  const whole = { type: "rollback.completed", seq: 9, data: { report } };
  assert.deepEqual(movementOf(whole), { seq: 9, target: 5, paths: null, kept: ["mine"] });
  assert.equal(movementOf({ type: "rollback.completed", seq: 9, data: {} }), null);
});

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
  assert.equal(rolledBackCost(state), 0);

  const source = { runId: "r1", afterCodon: "a", checkpointSha: "s1" };
  const second = { runId: "r2", startingConditions: { source }, codons: [codon("b", 2, "s3")] };
  state.runs = [second, first];
  assert.equal(rolledBackCost(state), 0.25);
  assert.equal(totals(state).cost, 3.25);
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
