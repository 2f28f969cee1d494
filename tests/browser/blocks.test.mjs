/** What the page makes of events: blocks of a transcript, sentences, colours; without a page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { colouredParts } from "../../server/hankweave_server/transport/web/ansi.js";
import {
  SHOWN,
  blocksOf,
  foldedWords,
  isShown,
  stateOf,
} from "../../server/hankweave_server/transport/web/blocks.js";
import { countsOf } from "../../server/hankweave_server/transport/web/files.js";
import { paired, sentenceOf } from "../../server/hankweave_server/transport/web/sentences.js";
import { Transcript } from "../../server/hankweave_server/transport/web/transcript.js";

const event = (seq, type, data) => ({
  seq,
  type,
  data: { codonId: "one", ...data },
  timestamp: "",
});
const call = (seq, toolName, toolInput = {}, toolUseId = `t${seq}`) =>
  event(seq, "assistant.action", { action: "tool_use", content: "", toolName, toolInput, toolUseId });
const result = (seq, toolUseId, fields = {}) =>
  event(seq, "tool.result", { toolUseId, result: "fine", executionTimeMs: 500, isError: false, ...fields });
const says = (seq, content, action = "message") => event(seq, "assistant.action", { action, content });
const kinds = (events) => blocksOf(events).map(({ kind }) => kind);
const noted = (each) => blocksOf([each])[0].text;

test("reads and searches are one line, until something else comes between", () => {
  const events = [
    says(1, "I look."),
    call(2, "Read", { file_path: "a" }),
    result(3, "t2"),
    says(4, "Hm.", "thinking"),
    call(5, "Read", { file_path: "b" }),
    call(6, "Grep", { pattern: "x" }),
    call(7, "Glob", { pattern: "*" }),
    result(8, "t6"),
    call(9, "Bash", { command: "ls" }),
    call(10, "Read", { file_path: "c" }),
  ];
  const blocks = blocksOf(events);
  assert.deepEqual(blocks.map(({ kind }) => kind), ["words", "folded", "call", "folded"]);
  assert.equal(foldedWords(blocks[1]), "Read 2 files and searched twice");
  assert.equal(foldedWords(blocks[3]), "Read 1 file");
  assert.deepEqual(kinds([call(1, "Read", { file_path: "chart.PNG" })]), ["call"]);
});

test("a result settles the last open call of its id, and none that is not there", () => {
  const events = [
    result(1, "t2"),
    call(2, "Bash", { command: "one" }),
    result(3, "t2", { isError: true }),
    call(4, "Bash", { command: "two" }, "t2"),
  ];
  const [one, two, ...others] = blocksOf(events);
  assert.equal(others.length, 0);
  assert.equal(stateOf(one.call, true), "failed");
  assert.equal(stateOf(two.call, true), "running");
  assert.equal(stateOf(two.call, false), "lost");
});

test("a question for permission stands at its call, and says what became of it", () => {
  const asked = event(2, "permission.requested", { requestId: "r", toolName: "Write", toolInput: { a: 1 } });
  const answer = event(3, "permission.resolved", { requestId: "r", toolName: "Write", decision: "deny", by: "client" });
  const before = [call(1, "Write", { a: 1 }), asked];
  assert.equal(stateOf(blocksOf(before)[0].call, true), "waiting");
  assert.deepEqual(kinds(before), ["call"]);
  assert.equal(stateOf(blocksOf([...before, answer])[0].call, true), "failed");
  assert.deepEqual(kinds([asked, answer]), ["call"], "an agent that asks before it tells of the call");
});

test("a block that has not changed stays the same object, one that has does not", () => {
  const events = [says(1, "One."), call(2, "Bash", { command: "ls" })];
  const before = blocksOf(events);
  const known = new Map(before.map((block) => [block.key, block]));
  const after = blocksOf([...events, result(3, "t2")], known);
  assert.equal(after[0], before[0]);
  assert.notEqual(after[1], before[1]);
});

test("what is around the agent is told in words, and what went wrong stands out", () => {
  const warning = event(1, "codon.warning", { kind: "tools-refused", message: "Refused." });
  const [block] = blocksOf([warning]);
  assert.deepEqual([block.role, block.text], ["bad", "Warning: Refused."]);
  const lists = { added: [], updated: [], removed: [], kept: [], conflicts: [], skipped: [] };
  const report = { ...lists, inWords: "Kept 1 edit by people: a.txt." };
  const data = { checkpoint: "6dc2daae6dc2daae", direction: "retry", report };
  assert.equal(
    noted(event(1, "checkpoint.rollback", data)),
    "Reset for a retry: to 6dc2daae, 0 files changed. Kept 1 edit by people: a.txt.",
  );
  const secrets = [{ path: ".env", rule: "github-token", line: 3 }];
  const secret = { checkpoint: { checkpointSha: "6dc2daae6dc2daae" }, secrets, total: 2 };
  assert.equal(
    noted(event(1, "checkpoint.secret", secret)),
    "Checkpoint 6dc2daae6dc2 holds a secret: github-token in .env:3 and 1 more.",
  );
  assert.ok(["codon.warning", "checkpoint.secret", "files.changed"].every((each) => SHOWN.includes(each)));
  const edit = { path: "a.txt", action: "modified", source: { kind: "person" } };
  assert.ok(isShown(event(1, "file.updated", edit)));
  assert.equal(noted(event(1, "file.updated", edit)), "a.txt was modified by hand.");
});

test("events are sentences in one line, a call with its result", () => {
  const rows = paired([
    result(4, "t3", { toolName: "Bash", result: "c.txt\nd.txt" }),
    call(3, "Bash", { command: "ls\n-l" }),
    says(2, "Two\nlines."),
  ]);
  assert.deepEqual(
    rows.map((row) => sentenceOf(row)),
    [
      { what: "Bash", words: "ls -l · done in 0.5 s · c.txt d.txt", role: "" },
      { what: "Message", words: "Two lines.", role: "" },
    ],
  );
});

test("colours of a terminal have names, and what it would overwrite is overwritten", () => {
  assert.deepEqual(colouredParts("a\u001b[31mb\u001b[0m\u001b[1;38;5;46mc\u001b[0m"), [
    { text: "a", look: "" },
    { text: "b", look: "of-red" },
    { text: "c", look: "of-green bold" },
  ]);
  assert.deepEqual(colouredParts("10 %\r50 %\r100 %\r\nend"), [{ text: "100 %\nend", look: "" }]);
  assert.deepEqual(colouredParts("\u001b]0;title\u0007x\u202ey"), [{ text: "x\\u202ey", look: "" }]);
});

/** A journal of that many messages, and how many pages of it were asked for. */
function journal(count, each = (seq) => says(seq, `word ${seq}`)) {
  const asked = [];
  const ask = async (_type, { since, until, limit }) => {
    asked.push(since);
    const events = [];
    for (let seq = since + 1; seq <= until && events.length < limit; seq += 1) events.push(each(seq));
    return { events: events.filter(isShown), rows: [] };
  };
  return { ask, asked, range: { since: 0, until: count, isOpen: true } };
}

const rest = () => new Promise((resolve) => setImmediate(resolve));

test("of a million events only the pages that are looked at are asked for and kept", async () => {
  const { ask, asked, range } = journal(1_000_000);
  const transcript = new Transcript(ask, range, () => undefined);
  for (let page = 0; page < transcript.count; page += 50) {
    transcript.want(page, page + 1);
    for (let turn = 0; turn < 10; turn += 1) await rest();
    assert.notEqual(transcript.at(page), undefined, `${page}`);
    assert.ok(transcript.pages.size <= 30);
  }
  assert.equal(asked.length, 2 * Math.ceil(transcript.count / 50));
});

test("what happens now is added to the last page, and a result to the page of its call", async () => {
  const { ask, range } = journal(399, (seq) => (seq === 399 ? call(seq, "Bash", { command: "ls" }) : says(seq, "x")));
  const transcript = new Transcript(ask, range, () => undefined);
  transcript.listen(399);
  transcript.want(0, 0);
  for (let turn = 0; turn < 10; turn += 1) await rest();
  transcript.add(event(400, "token.usage", {}));
  transcript.add(says(401, "now"));
  transcript.add(says(402, "of another step"), false);
  transcript.add(result(403, "t399"));
  assert.equal(transcript.at(0)?.at(-1)?.call?.result?.seq, 403);
  assert.deepEqual(transcript.at(1)?.map(({ text }) => text), ["now"]);
});

test("many files that changed at once are one note, and the listed ones are in the list of files", () => {
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
  assert.equal(
    noted(event(1, "files.changed", data)),
    "20000 files changed at once: 19990 created, 10 modified, most in modules.",
  );
});

test("a report with incomplete lists is counted by its totals", () => {
  const lists = { added: [], updated: [{}], removed: [], kept: [], conflicts: [], skipped: [] };
  assert.equal(countsOf(lists).updated, 1);
  const totals = { added: 0, updated: 500, removed: 0, kept: 0, conflicts: 0, skipped: 0, bytes: 9 };
  assert.equal(countsOf({ ...lists, totals }).updated, 500);
});
