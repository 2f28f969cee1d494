/** What the page keeps of what an agent says, without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FEED_TYPES, Feed } from "../../server/hankweave_server/transport/web/feed.js";
import { ChangedFiles, countsOf } from "../../server/hankweave_server/transport/web/files.js";

const event = (seq, type, data) => ({
  seq,
  type,
  data: { codonId: "one", ...data },
  timestamp: "",
});
const call = (seq, content) =>
  event(seq, "assistant.action", {
    action: "tool_use",
    toolName: "Write",
    toolUseId: `t${seq}`,
    toolInput: { content },
  });

/** Characters that entries hold. */
const held = (feed) => JSON.stringify(feed.entries).length;

test("a long stream of long texts is kept within bounds, the newest of it", () => {
  const feed = new Feed();
  const long = "x".repeat(100_000);
  for (let seq = 1; seq <= 2_000; seq += 5) {
    feed.add(call(seq, long));
    feed.add(event(seq + 1, "tool.result", { toolUseId: `t${seq}`, result: long }));
    feed.add(event(seq + 2, "assistant.action", { action: "message", content: long }));
    feed.add(event(seq + 3, "tool.result", { toolUseId: "unknown", result: long }));
    feed.add(event(seq + 4, "agent.output", { line: "y".repeat(3_000) }));
    assert.ok(held(feed) < 9_000_000, `${held(feed)} after ${seq}`);
  }
  assert.equal(feed.entries.at(-1).key, 2_000);
  assert.ok(feed.entries.length > 50);
});

test("many short entries are kept within bounds, and what is dropped gives its room back", () => {
  const feed = new Feed();
  for (let seq = 1; seq <= 20_000; seq += 1)
    feed.add(event(seq, "assistant.action", { action: "message", content: `word ${seq}` }));
  assert.ok(feed.entries.length <= 3_500);
  assert.ok(feed.size <= held(feed));
});

test("a codon's warning is an entry that stands out, with its message", () => {
  const feed = new Feed();
  assert.ok(FEED_TYPES.includes("codon.warning"));
  feed.add(event(1, "codon.warning", { kind: "tools-refused", message: "Refused." }));
  const [entry] = feed.entries;
  assert.deepEqual([entry.kind, entry.codonId, entry.text], ["bad", "one", "Warning: Refused."]);
});

test("a restore before a retry says which edits by people it kept", () => {
  const feed = new Feed();
  const lists = { added: [], updated: [], removed: [], kept: [], conflicts: [], skipped: [] };
  const report = { ...lists, inWords: "Kept 1 edit by people: a.txt." };
  const checkpoint = "6dc2daae6dc2daae";
  feed.add(event(1, "checkpoint.rollback", { checkpoint, direction: "retry", report }));
  const text = "Reset for a retry: to 6dc2daae, 0 files changed. Kept 1 edit by people: a.txt.";
  assert.equal(feed.entries[0].text, text);
});

test("a secret in a checkpoint is an entry that stands out, without its value", () => {
  const feed = new Feed();
  assert.ok(FEED_TYPES.includes("checkpoint.secret"));
  const checkpoint = { checkpointSha: "6dc2daae6dc2daae" };
  const secrets = [{ path: ".env", rule: "github-token", line: 3 }];
  feed.add(event(1, "checkpoint.secret", { checkpoint, secrets, total: 2 }));
  const [entry] = feed.entries;
  assert.equal(entry.kind, "bad");
  assert.equal(
    entry.text,
    "Checkpoint 6dc2daae6dc2 holds a secret: github-token in .env:3 and 1 more.",
  );
});

test("many files that changed at once are one entry, and the listed ones are in the list of files", () => {
  const data = {
    total: 20_000,
    created: 19_990,
    modified: 10,
    deleted: 0,
    folders: [{ folder: "modules", files: 150 }],
    otherFolders: 400,
    inOtherFolders: 19_850,
    paths: [{ path: "a.txt", action: "created" }],
    source: { kind: "tool_use" },
  };
  const feed = new Feed();
  feed.add(event(1, "files.changed", data));
  assert.equal(
    feed.entries.at(-1).text,
    "20000 files changed at once: 19990 created, 10 modified, most in modules.",
  );
  assert.ok(FEED_TYPES.includes("files.changed"));
  const files = new ChangedFiles();
  files.burst({ data, seq: 1, timestamp: "" });
  assert.deepEqual([...files.keys()], ["a.txt"]);
});

test("a report with incomplete lists is counted by its totals", () => {
  const lists = { added: [], updated: [{}], removed: [], kept: [], conflicts: [], skipped: [] };
  assert.equal(countsOf(lists).updated, 1);
  const totals = { added: 0, updated: 500, removed: 0, kept: 0, conflicts: 0, skipped: 0, bytes: 9 };
  assert.equal(countsOf({ ...lists, totals }).updated, 500);
});
