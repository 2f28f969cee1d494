/** Where an execution stands, what an address names, and lines of edits, without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyState } from "../../server/hankweave_server/transport/web/state.js";
import {
  reasonOf,
  standingOf,
  statusOfStep,
  stepsOf,
  titleOfCodon,
  unanswered,
} from "../../server/hankweave_server/transport/web/standing.js";
import {
  countLines,
  editOf,
  linesBetween,
} from "../../server/hankweave_server/transport/web/parts/lines.js";

const START = "2026-01-01T00:00:00Z";
const entry = (codonId, name, loopId = undefined, iteration = 0) => ({
  codonId,
  codon: { name },
  ...(loopId ? { loopContext: { loopId, iteration } } : {}),
});
const ran = (codonId, status, fields = {}) => ({
  codonId,
  status,
  startTime: START,
  ...(status === "running" ? {} : { endTime: START }),
  ...fields,
});
const PLAN = [
  entry("fetch", "Fetch"),
  entry("review#0", "Review", "rounds", 0),
  entry("review#1", "Review", "rounds", 1),
  entry("report", "Report"),
];

/** A store as far as it matters here. */
function store(codons, { status = "running", permissions = [], ...fields } = {}) {
  const run = { runId: "r", status, codons };
  const state = { ...emptyState(), runs: [run], currentRunId: "r", executionPlan: PLAN };
  return { version: 1, state, permissions: new Map(permissions), rollback: null, isLoaded: true, isIdle: false, retries: new Map(), ...fields };
}

test("a loop is one step, named after its only codon, and counted once", () => {
  const steps = stepsOf(PLAN);
  assert.deepEqual(steps.map(({ name, entries }) => [name, entries.length]), [["Fetch", 1], ["Review", 2], ["Report", 1]]);
  const standing = standingOf(store([ran("fetch", "completed"), ran("review#0", "completed"), ran("review#1", "running")]));
  assert.deepEqual([standing.at, standing.done, standing.total], [2, 1, 3]);
  assert.equal(statusOfStep(steps[1], standing), "running");
  assert.equal(titleOfCodon(store([]).state, "review#1"), "Review, round 2");
});

test("the state in words is what a person needs first", () => {
  const words = (...made) => standingOf(store(...made)).condition.words;
  const failed = ran("fetch", "failed", { failureReason: { type: "unknown", message: "\nexpected 3, got 2.\nat x.py:1" } });
  const asked = [["q", { requestId: "q", codonId: "fetch" }]];
  assert.equal(words([ran("fetch", "running")]), "Running");
  assert.equal(words([ran("fetch", "running")], { permissions: asked }), "Waits for you");
  assert.equal(words([ran("fetch", "running", { wait: { kind: "usage" } })]), "Waits for a usage limit");
  assert.equal(words([failed], { status: "failed" }), "Failed");
  assert.equal(words([failed, ran("review#0", "running")]), "Running", "a failure that was ignored");
  assert.equal(words([ran("fetch", "completed")], { status: "completed" }), "Completed");
  assert.equal(words([ran("fetch", "completed")], { isIdle: true }), "Idle");
  assert.equal(words([failed]), "Between two steps", "the next one may follow by itself");
  assert.equal(words([failed], { isIdle: true }), "Failed");
  assert.equal(words([failed], { isIdle: true, retries: new Map([["fetch", {}]]) }), "Tries again");
  assert.equal(reasonOf(failed), "expected 3, got 2.");
  assert.equal(standingOf(store([failed], { status: "failed" })).followed, "fetch");
});

test("the undo of a rollback to before a failed step shows it as failed again", () => {
  const failed = ran("fetch", "failed", { errorCheckpoint: "e", failureReason: { message: "No." } });
  const from = (runId, source, codons = []) => ({ runId, status: "running", codons, startingConditions: { source } });
  const first = from("r1", undefined, [failed]);
  const back = from("r2", { runId: "r1", checkpointSha: "i" });
  const undone = from("r3", { runId: "r1", afterCodon: "fetch", checkpointSha: "e" });
  const seen = (...runs) => {
    const state = { ...emptyState(), runs, currentRunId: runs[0].runId, executionPlan: PLAN };
    return standingOf({ ...store([]), state, isIdle: true }).condition.words;
  };
  assert.deepEqual([seen(first), seen(back, first), seen(undone, back, first)], ["Failed", "Idle", "Failed"]);
});

test("a question says what becomes of it at its end, if anything does", () => {
  const now = Date.parse(START);
  const expiresAt = new Date(now + 90_000).toISOString();
  const said = (asked, at = now) => unanswered(asked, at);
  assert.equal(said({ expiresAt }), "denied in 1:30");
  assert.equal(said({ expiresAt, onExpiry: "allow" }), "allowed in 1:30");
  assert.equal(said({ expiresAt }, now + 90_000), "denied now: the time is up");
  for (const none of [{ expiresAt, onExpiry: null }, { expiresAt, onExpiry: "wait" }, { expiresAt: null }, {}])
    assert.equal(said(none), "waits until it is answered");
});

test("an edit is told by its lines, with those around it, and numbered", () => {
  const before = Array.from({ length: 9 }, (_, at) => `line ${at + 1}`).join("\n");
  const lines = linesBetween(before, before.replace("line 5", "new\nnewer"));
  assert.deepEqual(
    lines.map(({ kind, number, text }) => `${kind} ${number} ${text}`),
    ["same 3 line 3", "same 4 line 4", "minus 5 line 5", "plus 5 new", "plus 6 newer", "same 7 line 6", "same 8 line 7"],
  );
  assert.deepEqual(countLines(lines), { added: 2, removed: 1 });
  assert.deepEqual(linesBetween("a\n", "a\n"), []);
  assert.equal(countLines(linesBetween("", "a\nb\n")).added, 2);
  const far = linesBetween(before, before.replace("line 1", "x").replace("line 9", "y"));
  assert.deepEqual(far.filter(({ kind }) => kind === "gap").length, 1);
});

test("the edits of a call are known by its arguments, whatever the tool is called", () => {
  const edit = { file_path: "a", old_string: "x", new_string: "y" };
  assert.deepEqual(editOf(edit), { path: "a", parts: [{ before: "x", after: "y" }] });
  assert.deepEqual(editOf({ path: "a", content: "z" }), { path: "a", parts: [{ before: null, after: "z" }] });
  assert.equal(editOf({ file_path: "a", edits: [edit, edit] })?.parts.length, 2);
  for (const none of [null, {}, { file_path: "a" }, { command: "ls", path: 3 }, { file_path: "a", edits: [null] }])
    assert.equal(editOf(none), null);
});
