/** The composed views in each of their states, without a server: what `gallery.html` shows of them. */
import { blocksOf } from "./blocks.js";
import { html, useState } from "./dom.js";
import { Consequence, Decision } from "./parts/decision.js";
import { at } from "./places.js";
import { Store } from "./store.js";
import { Banners } from "./views/banners.js";
import { Consequences, Exceptions } from "./views/consequences.js";
import { FilesOfStep } from "./views/files-of-step.js";
import { Header } from "./views/header.js";
import { RetryCard } from "./views/retry.js";
import { RollbackCard, RollbackReport } from "./views/rollback.js";
import { Block } from "./views/step/block.js";
import { Steps } from "./views/steps.js";

const OPENED = Date.now();
export const MINUTE = 60_000;
const ago = (/** @type {number} */ minutes) => new Date(OPENED - minutes * MINUTE).toISOString();
const never = () => new Promise(() => undefined);
const nothing = () => undefined;

/** @typedef {Partial<Record<keyof import("hankweave").Commands, any>>} Answers by type; others never come */

// --- an execution ---------------------------------------------------------------------------------

const entry = (/** @type {string} */ codonId, /** @type {string} */ name, round = -1) => ({
  codonId,
  codon: { name, onFailure: "abort" },
  ...(round < 0 ? {} : { loopContext: { loopId: "rounds", iteration: round } }),
});
const PLAN = [
  entry("fetch", "Fetch the orders"),
  ...[0, 1, 2].map((round) => entry(`review#${round}`, "Review", round)),
  entry("check", "Check every row"),
  entry("report", "Write the report, with a name that is much too long for a column of steps"),
];

/** One codon that began and ended so many minutes ago. @param {object} [more] */
const ran = (/** @type {string} */ codonId, /** @type {number} */ from, /** @type {number | null} */ to, status = "completed", more = {}) => ({
  codonId,
  status,
  attempt: 1,
  startTime: ago(from),
  finalCost: 0.18,
  ...(to === null ? {} : { endTime: ago(to), completionCheckpoint: `${codonId}-end` }),
  ...more,
});
const DONE = [ran("fetch", 42, 40), ran("review#0", 40, 31), ran("review#1", 31, 22), ran("review#2", 22, 12)];
const REASON = { type: "unknown", message: "expected 1,707 rows, got 1,632.\n1 failed, 41 passed in 6.2 s" };
const RUNS = ran("check", 12, null, "running");
const FAILED = ran("check", 12, 1, "failed", { failureReason: REASON, errorCheckpoint: "check-end", attempt: 2 });
const WAITS = { ...RUNS, wait: { kind: "usage", since: ago(2), until: ago(-30), message: "5-hour limit reached." } };
const REST = [ran("check", 12, 6), ran("report", 6, 1)];
const FIGURES = {
  totalCost: 0.9,
  budgetUsd: 5,
  hankName: "Orders to model",
  forecast: { remainingMs: 4 * MINUTE, costAtEnd: 1.3, basis: "from 3 earlier runs of a step", steps: [{ codonId: "report", ms: 130_000, cost: 0.4 }] },
};
const EDIT = { file_path: "/tree/src/records.py", old_string: "    return float(row)", new_string: "    raw = row.strip()\n    return float(raw) if raw else None" };
const question = (/** @type {object} */ fields = {}) => {
  const asked = { requestId: "q", codonId: "check", toolName: "Edit", toolInput: EDIT, reason: "No rule covers it.", expiresAt: ago(-14), suggestion: "Edit(src/**)", ...fields };
  return { codons: [...DONE, RUNS], permissions: new Map([["q", asked]]) };
};
export const CHECKPOINT = { sha: "6dc2daae", kind: "tool", runId: "r1", codonId: "review#1", codonState: "running", seq: 40, timestamp: ago(25), summary: "Edit src/records.py +2 −1" };

/**
 * A session as far as views look at it.
 * @param {{codons?: any[], status?: string, past?: any[], explorations?: any[], looks?: any, answers?: Answers, obstacle?: string | null, [field: string]: any}} [how]
 *   `codons`: of its newest run; other fields are those of its store
 * @returns {any}
 */
export function sessionOf({ codons = [...DONE, RUNS], status = "running", past = [], explorations = [], looks = {}, answers = {}, obstacle = null, ...fields } = {}) {
  const ask = (/** @type {string} */ type) => (type in answers ? Promise.resolve(answers[type]) : never());
  const store = new Store(/** @type {any} */ (ask));
  const state = { ...store.state, runs: [{ runId: "r1", status, codons }, ...past], currentRunId: "r1", executionPlan: PLAN, explorations };
  Object.assign(store, {
    isLoaded: true,
    connection: { phase: "open", mode: "readandwrite", retryAt: null, reason: "" },
    server: { executionPath: "/home/ann/runs/orders-to-model-2026-01-04", agentRootPath: "/tree" },
    figures: FIGURES,
    checkpoints: [CHECKPOINT],
    bySha: new Map([[CHECKPOINT.sha, CHECKPOINT]]),
    state,
    ...fields,
  });
  const session = { store, ask, obstacle, guard: {}, listeners: new Set(), client: { retryNow: nothing }, look: nothing, say: nothing, act: nothing, try: nothing };
  return { ...session, looks: { step: null, tab: "transcript", moment: null, compare: null, dialog: null, report: null, ...looks } };
}

/** @type {Record<string, Parameters<typeof sessionOf>[0]>} */
const CONDITIONS = {
  running: {},
  "waits for you": question(),
  "waits for a limit": { codons: [...DONE, WAITS] },
  failed: { codons: [...DONE, FAILED], status: "failed" },
  completed: { codons: [...DONE, ...REST], status: "completed" },
  idle: { codons: DONE, isIdle: true },
  "going back": { rollback: { step: 1, of: 4, message: "Rolling back" } },
  "tries again": { codons: [...DONE, FAILED], isIdle: true, retries: new Map([["check", { codonId: "check", at: OPENED + MINUTE }]]) },
  "not started": { codons: [], status: "completed", figures: { ...FIGURES, forecast: null, budgetUsd: null } },
  reading: { isLoaded: false, codons: [] },
  "near its budget, some of it rolled back": { figures: { ...FIGURES, budgetUsd: 1 }, past: [{ runId: "r0", status: "completed", codons: [ran("fetch", 60, 50)] }] },
  "over its budget, a long name": { figures: { ...FIGURES, budgetUsd: 0.5, hankName: "Orders of all the regions to a model that their offices trust" } },
  "may only look": { connection: { phase: "open", mode: "readonly", retryAt: null, reason: "" }, obstacle: "This link is read-only." },
};

const lost = (/** @type {string} */ phase) => ({ connection: { phase, mode: "readandwrite", retryAt: OPENED + 8_000, reason: "" }, obstacle: "There is no connection." });
const work = (/** @type {number | null} */ total) => ({
  progress: new Map([["o", { operationId: "o", commandId: "c", operation: "restore", phase: "writing", done: 1_200, total, unit: "files", ended: false }]]),
});

/** @type {Record<string, Parameters<typeof sessionOf>[0]>} */
const NOTICES = {
  "a question, as a difference": question(),
  "a command, allowed at its end": question({ toolName: "Bash", toolInput: { command: "git push\ngit push --tags" }, suggestion: null, onExpiry: "allow" }),
  "any other call, without an end": question({ toolName: "mcp__tickets__close", toolInput: { ticket: 17 }, suggestion: null, onExpiry: null }),
  "a failure": { codons: [...DONE, FAILED], status: "failed" },
  "a limit": { codons: [...DONE, WAITS] },
  "the past": { looks: { moment: { sha: CHECKPOINT.sha } }, answers: { "checkpoint.diff": { stats: { files: 2 } } } },
  "a moment that was pruned": { looks: { moment: { sha: "0123456789" } }, pruned: new Map([["0123456789", 3]]) },
  "a lost connection": lost("waiting"),
  "a new try": lost("connecting"),
  "a link that may only look": CONDITIONS["may only look"],
  "a problem of the server": { problems: new Map([["INSUFFICIENT_SPACE", { code: "INSUFFICIENT_SPACE", message: "Only 3 MB are free on the disk.", since: ago(3) }]]) },
  "an error": { errors: [{ seq: 9, timestamp: ago(1), message: "The sentinel could not be loaded." }] },
  "a rollback": { rollback: { step: 2, of: 4, message: "Rolling back through Check every row" } },
  "long work, with its end in sight": work(4_800),
  "long work, without": work(null),
};

// --- going back -----------------------------------------------------------------------------------

const file = (/** @type {string} */ path, bytes = 1_204) => ({ path, bytes });
const NONE = { target: { checkpointSha: "6dc2daae" }, added: [], updated: [], removed: [], kept: [], conflicts: [], skipped: [], warnings: [] };
const ALL = {
  ...NONE,
  added: [file("out/old.csv")],
  updated: [file("src/records.py"), file("src/parse.py")],
  removed: [file("out/check.json")],
  kept: [{ path: "notes.md", reason: "edited" }],
  conflicts: [{ path: "notes.md", reason: "edited" }],
  skipped: [{ path: "socket", reason: "not a regular file" }],
  cannotRestore: [{ path: "src/locked.py", sentence: "src/locked.py: the folder cannot be written." }],
  warnings: [{ kind: "open", path: "data.db", sentence: "another program has it open." }, { kind: "conversation", sentence: "" }],
  externalEffects: ["git push origin main", "curl -X POST https://example.org"],
  runsAgain: { codonIds: ["check", "report"], total: 2, estimatedCost: 0.58, estimatedMs: 5 * MINUTE },
  note: "The checkpoint was taken from an earlier run.",
};
const TAKEN = { ...ALL, kept: [] };
const DIFFS = new Map([["src/records.py", { path: "src/records.py", added: 1, removed: 1, patch: "--- a/src/records.py\n+++ b/src/records.py\n@@ -1,1 +1,1 @@\n-    return float(row)\n+    return float(row.strip())\n" }]]);
const preview = (/** @type {any} */ report) => ({ report, error: null, diffs: DIFFS, want: nothing });
const FAILED_RUN = { codons: [...DONE, FAILED], status: "failed", answers: { "rollback.preview": ALL } };
const BEFORE = { codonId: "check", checkpointType: "start" };
const DECISIONS = { "going back": BEFORE, "undoing": { direction: "undo" }, "adopting": { sha: "6dc2daae", attemptId: "e-1" } };

// --- a step ---------------------------------------------------------------------------------------

/** Numbered as they come. @returns {any} */
const event = (/** @type {number} */ seq, /** @type {string} */ type, /** @type {object} */ data) => ({ seq, type, data, timestamp: ago(12 - seq / 10) });
const call = (/** @type {number} */ seq, /** @type {string} */ toolName, /** @type {object} */ toolInput) =>
  event(seq, "assistant.action", { action: "tool_use", content: "", toolName, toolInput, toolUseId: `t${seq}` });
const result = (/** @type {number} */ seq, /** @type {number} */ of, text = "fine", isError = false) =>
  event(seq, "tool.result", { toolUseId: `t${of}`, result: text, isError, executionTimeMs: 6_400 });
const says = (/** @type {number} */ seq, /** @type {string} */ content, action = "message") => event(seq, "assistant.action", { action, content });
const asks = (/** @type {number} */ seq, /** @type {string} */ requestId, /** @type {object} */ toolInput, toolName = "Bash") =>
  event(seq, "permission.requested", { requestId, toolName, toolInput, reason: "No rule covers it." });
const answers = (/** @type {number} */ seq, /** @type {string} */ requestId, /** @type {object} */ fields) =>
  event(seq, "permission.resolved", { requestId, toolName: "Bash", by: "client", decision: "allow", ...fields });
const PUSH = { command: "git push" };
const TODOS = [["Read the schema", "completed"], ["Check every row", "in_progress"], ["Write the summary", "pending"]].map(([content, status]) => ({ content, status }));
const TALK = [
  says(1, "I check **every row** against `schema.json`:\n\n1. read it,\n2. compare."),
  says(2, "A row may be empty.", "thinking"),
  call(3, "Read", { file_path: "/tree/src/records.py" }), result(4, 3),
  call(5, "Grep", { pattern: "depth" }), result(6, 5),
  call(7, "Edit", EDIT), result(8, 7),
  call(9, "Bash", { command: "python3 -m pytest -q", description: "Run the tests" }), result(10, 9, "\u001b[32m41 passed\u001b[0m\nFAILED test_rows.py\nAssertionError: 1632", true),
  call(11, "TodoWrite", { todos: TODOS }), result(12, 11),
  call(13, "mcp__tickets__close", { ticket: 17, words: "It is done. ".repeat(20) }), result(14, 13, '{"closed":true}'),
  event(15, "rig.output", { line: "pip install" }), event(16, "agent.output", { line: "warming up" }),
  event(17, "sentinel.output", { sentinelId: "watch", content: "All is *well*." }),
  call(18, "Bash", PUSH), asks(19, "p", PUSH), answers(20, "p", { decision: "deny", message: "Not yet." }),
  call(21, "Bash", { command: "make" }), asks(22, "m", { command: "make" }), answers(23, "m", { by: "timeout" }), result(24, 21, "made"),
  event(25, "file.updated", { path: "notes.md", action: "modified", source: { kind: "person" } }),
  event(26, "codon.warning", { kind: "tools-refused", message: "Two calls were refused." }),
  event(27, "codon.resumed", {}),
  call(28, "Write", { file_path: "/tree/out/summary.md", content: "# Summary\n" }), asks(29, "w", { file_path: "/tree/out/summary.md", content: "# Summary\n" }, "Write"),
  call(30, "Bash", { command: "sleep 60" }),
];

export const DIFF = {
  from: "a", to: "b",
  stats: { files: 2, added: 14, removed: 3 },
  files: [{ path: "src/records.py", status: "modified", added: 12, removed: 3 }, { path: "out/check.json", status: "created", added: 2, removed: 0 }],
};
/** @param {{scheme: string}} props */
export function Views({ scheme }) {
  const [opened, open] = useState(/** @type {string | null} */ (null));
  const close = () => open(null);
  const sample = (/** @type {string} */ title, /** @type {any} */ children) => html`<div class="sample"><h3>${title}</h3>${children}</div>`;
  const each = (/** @type {Record<string, any>} */ states, /** @type {(how: any, name: string) => any} */ draw) =>
    Object.entries(states).map(([name, how]) => html`<div class="state-of" key=${name}><p class="hint">${name}</p>${draw(how, name)}</div>`);
  const going = sessionOf(FAILED_RUN);
  const blocks = blocksOf(TALK);
  return html`<section class=${`scheme views scheme-${scheme}`} aria-label=${`Views, ${scheme}`}>
    <h2>Views, ${scheme}</h2>
    ${sample("Banners", each(NOTICES, (how) => html`<${Banners} session=${sessionOf(how)} />`))}
    ${sample("Steps", each({ running: {}, failed: FAILED_RUN, "a question": question(), "no plan": { codons: [], state: new Store(never).state } }, (how) => {
      const session = sessionOf(how);
      return html`<div class="steps"><${Steps} session=${session} looks=${session.looks} /></div>`;
    }))}
    ${sample("Consequence", html`<ul class="consequences">
      <${Consequence} icon="undo" role="good" title="return to earlier content" value="2 files">src/records.py<//>
      <${Consequence} icon="minus" role="bad" title="go away" value="none" isNone=${true} />
    </ul>`)}
    ${sample("Consequences", each({ "of each kind": [ALL, true], "edits overwritten": [TAKEN, false], none: [NONE, true] }, ([report, keeps]) =>
      html`<${Consequences} session=${going} preview=${preview(report)} keepEdits=${keeps} onKeepEdits=${nothing} />
        <${Exceptions} report=${report} rewinds=${false} />`))}
    ${sample("Decision", html`
      <${Decision} title="Back to before Check every row" isSheet=${false} isReport=${true} onClose=${nothing}>
        <p class="hint">Everything is saved first; undo takes it back.</p>
        <footer><button class="primary">Go back</button><button>Only some files…</button></footer>
      <//>
      ${Object.keys(DECISIONS).concat("retrying").map((name) => html`<button key=${name} onClick=${() => open(name)}>Open: ${name}</button>`)}
      ${opened === "retrying" && html`<${RetryCard} session=${going} codonId="check" isSheet=${true} onClose=${close} />`}
      ${opened !== null && opened !== "retrying" && html`<${RollbackCard} key=${opened} session=${going} target=${DECISIONS[opened]} isSheet=${true} onClose=${close} />`}`)}
    ${sample("RollbackReport", each({ "as asked": { ...NONE, updated: ALL.updated, inWords: "Kept 1 edit by people: notes.md.", safety: { checkpointSha: "0123456789" } }, "with exceptions": ALL }, (done) =>
      html`<${RollbackReport} session=${going} report=${{ target: BEFORE, done }} isSheet=${false} onClose=${nothing} />`))}
    ${sample("FilesOfStep", each({ "two files": { answers: { "checkpoint.diff": DIFF } }, "not yet": { looks: { step: "report" } } }, (how) => {
      const session = sessionOf(how);
      return html`<${FilesOfStep} session=${session} looks=${session.looks} />`;
    }))}
    ${at("samples").map(([title, draw]) => sample(title, draw()))}
    ${sample("Block", html`<div class="blocks">
      ${blocks.map((block) => html`<${Block} key=${block.key} session=${going} block=${block} runs=${true} isFound=${block.kind === "folded"} isLast=${block === blocks.at(-1)} />`)}
      ${blocksOf([call(40, "Bash", { command: "never answered" })]).map((block) => html`<${Block} key="lost" session=${going} block=${block} runs=${false} isFound=${false} isLast=${false} />`)}
    </div>`)}
    ${sample("Header", each(CONDITIONS, (how) => html`<${Header} session=${sessionOf(how)} isOpen=${false} />`))}
  </section>`;
}
