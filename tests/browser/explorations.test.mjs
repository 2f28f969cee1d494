/** Explorations in the page's state: folded as the server does, the best and the adopted attempt. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  adoptedOf,
  bestOf,
  emptyState,
  fold,
  thread,
} from "../../server/hankweave_server/transport/web/state.js";

const codon = (codonId, sha) => ({ codonId, status: "completed", completionCheckpoint: sha });

const run = (runId, codons, source = undefined) => ({
  runId,
  status: "completed",
  codons,
  startingConditions: source ? { type: "continuation", source } : { type: "fresh" },
});

/** A plan that has run, and an attempt at its second codon. */
function explored() {
  const state = emptyState();
  fold(state, { type: "RunStarted", data: { run: run("first", [codon("one", "a"), codon("two", "b")]) } });
  const exploration = {
    explorationId: "e",
    codonId: "two",
    attempts: [{ attemptId: "e-1", runId: "try", status: "running" }],
  };
  fold(state, { type: "ExplorationSet", data: { exploration } });
  const source = { runId: "first", afterCodon: "one", checkpointSha: "a" };
  fold(state, { type: "RunImported", data: { run: run("try", [codon("two", "c")], source) } });
  return state;
}

test("an imported run is listed behind the newest one, and the thread stays", () => {
  const state = explored();
  assert.deepEqual(state.runs.map(({ runId }) => runId), ["first", "try"]);
  assert.deepEqual(thread(state).map(endOf), ["a", "b"]);
  assert.equal(adoptedOf(state, state.explorations[0]), undefined);
});

const endOf = (ran) => ran.completionCheckpoint;

test("an attempt is adopted while its run is on the thread", () => {
  const state = explored();
  const source = { runId: "try", afterCodon: "two", checkpointSha: "c" };
  fold(state, { type: "RunStarted", data: { run: run("next", [], source) } });
  assert.deepEqual(thread(state).map(endOf), ["a", "c"]);
  assert.equal(adoptedOf(state, state.explorations[0])?.attemptId, "e-1");
});

test("a record is replaced as a whole, in its place", () => {
  const state = explored();
  fold(state, { type: "ExplorationSet", data: { exploration: { explorationId: "f", attempts: [] } } });
  const changed = { explorationId: "e", attempts: [], endedAt: "now" };
  fold(state, { type: "ExplorationSet", data: { exploration: changed } });
  assert.deepEqual(state.explorations.map(({ explorationId }) => explorationId), ["e", "f"]);
  assert.equal(state.explorations[0].endedAt, "now");
});

test("the best has the highest score, then the judge's place, the lowest cost and time", () => {
  const done = (attemptId, values) => ({ attemptId, status: "completed", ...values });
  const named = (attempts, rest = {}) => bestOf({ attempts, ...rest })?.attemptId;
  const scored = { score: "pytest" };
  const judgement = { order: [["b"], ["a"]] };
  assert.equal(named([done("a", { score: 1 }), done("b", { score: 2 }), done("c", {})], scored), "b");
  assert.equal(named([done("a", {}), done("b", { score: -5 })], scored), "b");
  assert.equal(named([done("a", {})], scored), undefined);
  assert.equal(named([done("a", { cost: 2 }), done("b", { cost: 1 })]), "b");
  assert.equal(named([done("a", { durationMs: 9 }), done("b", { durationMs: 8 })]), "b");
  assert.equal(named([done("a", { cost: 1 }), done("b", { cost: 2 })], { judgement }), "b");
  assert.equal(named([{ attemptId: "a", status: "failed", score: 9 }]), undefined);
});
