/** What the page keeps of what an agent says, without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FEED_TYPES, Feed } from "../../server/hankweave_server/transport/web/feed.js";

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
