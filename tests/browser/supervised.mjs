/**
 * The run of a supervisor, made once for all tests of a file: 25 steps and hundreds of checkpoints,
 * work that was rolled back, a question, a wait, a failure, a person's edit, and four attempts.
 */
import { existsSync, appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { PATIENCE, open } from "./browser.mjs";
import { Daemon, codon, says, thinks, waitsFor, writes } from "./daemon.mjs";

/** Where the run stands still, in this order: for a question, a limit, a gate, and after a failure. */
export const STOPS = ["asks", "waits", "runs", "failed"];
export const NAME = "Orders to model";
export const FAILURE = "expected 1,707 rows, got 1,632.";
const BUDGET = 25;

const edit = (path, text) => ({ append: { path, text } });
const RULE = (id, at) => `\n\ndef ${id}_${at}(row):\n    return row.get("${id}", ${at})\n`;

/** Steps that only work: their ids, their names, and what they cost. */
const WORK = {
  fetch: ["Fetch the orders", 0.07],
  profile: ["Profile the columns", 0.11],
  infer: ["Infer the schema", 0.31],
  normalise: ["Normalise units", 0.22],
  enrich: ["Enrich with rates", 0.52],
  join: ["Join customers", 0.35],
  generate: ["Generate the model", 1.02],
  review: ["Review", 0.31],
  split: ["Split by region", 0.12],
  currency: ["Convert currencies", 0.19],
  tax: ["Apply the taxes", 0.24],
  returns: ["Book the returns", 0.16],
  dedupe: ["Remove duplicates", 0.09],
  link: ["Link the invoices", 0.27],
  backfill: ["Fill in the gaps", 0.33],
  index: ["Index by day", 0.14],
  partition: ["Partition by month", 0.13],
  summarise: ["Summarise", 0.21],
  totals: ["Compare the totals", 0.15],
};

/** One of them, with so many edits of two files, and with other steps before its end. */
function works(id, calls, end = []) {
  const [name, cost] = WORK[id];
  const edits = Array.from({ length: calls }, (_, at) => edit(at % 5 === 4 ? "src/records.py" : `src/${id}.py`, RULE(id, at)));
  return codon(
    id,
    [
      says(`**${name}.** I read the schema first, and then change \`src/${id}.py\`, one rule at a time.`),
      thinks(`Which of the rows have no ${id}?`),
      { run: "ls src" },
      writes(`src/${id}.py`, `"""${name}."""\n`),
      ...edits,
      ...end,
      says(`${name}: every row fits now.`),
      { cost },
    ],
    { name },
  );
}

const RECORDS = 'def parse(row):\n    depth = float(row["depth"])\n    return depth\n';
const BETTER = 'def parse(row):\n    raw = row["depth"].strip()\n    return float(raw) if raw else None\n';

const checks = (text, ...end) => [
  says("The schema allows an empty `depth`. I check every row against it, and fix the parser where one does not fit."),
  writes("src/parse.py", text),
  edit("notes.md", "- every row was checked\n"),
  ...end,
];
const fails = [
  { run: "printf '\\033[31mFAILED\\033[0m tests/test_rows.py:12  AssertionError\\n1 failed, 41 passed in 6.2 s\\n'; exit 1" },
  { cost: 0.18 },
  { fail: { message: `${FAILURE}\nat tests/test_rows.py:12` } },
];
const attempt = (name, text, ...end) => ({
  name,
  promptText: JSON.stringify({ steps: [...checks(text), writes("out/check.txt", `${name}\n`), ...end] }),
});

/** Four attempts at the step that fails, of which one fails, too. */
const VARIANTS = [
  attempt("strip the blanks", BETTER, { cost: 0.21 }),
  attempt("skip empty rows", `${RECORDS}\n# Rows without a depth are left out.\n`, { cost: 0.16 }),
  attempt("take the mean of the neighbours", `${BETTER}\nfrom statistics import mean\n`, { cost: 0.34 }),
  attempt("read the source again", RECORDS, ...fails),
];

function plan(folder, calls) {
  const work = (...ids) => ids.map((id) => works(id, calls));
  const rounds = { type: "iterationLimit", limit: 3 };
  return [
    first(calls),
    ...work("profile", "infer", "normalise", "enrich"),
    works("join", calls, [writes("out/joined.csv", "id,customer\n"), waitsFor(join(folder, "joined"))]),
    ...work("generate"),
    { type: "loop", id: "rounds", name: "Rounds", terminateOn: rounds, codons: work("review") },
    ...work("split", "currency", "tax", "returns", "dedupe", "link", "backfill", "index", "partition", "summarise"),
    codon(
      "export",
      [says("The summary belongs into a folder of its own."), writes("out/summary.md", "# Summary\n\nAll rows fit.\n"), { cost: 0.08 }],
      { name: "Export the summary", permissions: { otherwise: "ask" } },
    ),
    codon("reconcile", [says("I compare the books."), { limit: { resetsIn: 3_000 } }, says("On again."), { cost: 0.06 }], {
      name: "Reconcile the books",
    }),
    ...work("totals"),
    codon(
      "check",
      [
        ...checks(BETTER, writes("out/check.json", '{"rows": 1632}\n'), { run: "git push origin main 2>&1; true" }),
        waitsFor(join(folder, "checked")),
        ...fails,
      ],
      { name: "Check every row" },
    ),
    ...Object.entries({ report: "Write the report", charts: "Draw the charts", publish: "Publish" }).map(([id, name]) =>
      codon(id, [says(`${name}: done.`), { cost: 0.05 }], { name }),
    ),
  ];
}

/** The first step makes what the others extend. */
const first = (calls) =>
  codon(
    "fetch",
    [
      says("I fetch the orders."),
      writes("src/records.py", RECORDS),
      writes("src/parse.py", RECORDS),
      writes("notes.md", "# Notes\n\n- the orders of 2025\n"),
      ...Array.from({ length: calls }, (_, at) => edit("src/records.py", RULE("fetch", at))),
      { cost: WORK.fetch[1] },
    ],
    { name: WORK.fetch[0] },
  );

export class Supervised {
  /** @param {number} calls the edits of each step that only works */
  static async start(browser, calls) {
    const ends = [];
    const context = { after: (end) => ends.push(end) };
    const place = { name: NAME, overrides: { budget: { maxDollars: BUDGET } }, inMemory: true };
    const run = new Supervised(context, ends);
    try {
      run.daemon = await Daemon.start(context, (folder) => plan(folder, calls), [], place);
      await run.#steer(browser);
      await run.#goBackOnce();
      await run.reach("asks");
      return run;
    } catch (error) {
      await run.stop();
      throw error;
    }
  }

  constructor(context, ends) {
    this.context = context; // For whatever ends with it.
    this.ends = ends;
  }

  async stop() {
    for (const end of this.ends.reverse()) await end();
  }

  /** A page that sends commands and follows the state: the real one without what is seen. */
  async #steer(browser) {
    const { page, context } = await open(browser, `http://127.0.0.1:${this.daemon.port}/tokens.css`);
    this.ends.push(() => context.close());
    this.hand = page;
    await page.evaluate(async (token) => {
      const [{ Client }, { Store }] = await Promise.all([import("./client.js"), import("./store.js")]);
      const store = new Store((type, data) => client.ask(type, data));
      const client = new Client(`ws://${location.host}/ws`, {
        token,
        onEvent: (event) => store.event(event),
        onFrame: (frame) => store.frame(frame),
        onConnection: (connection) => {
          store.connected(connection);
          if (connection.phase === "open") store.load();
        },
      });
      client.open();
      Object.assign(globalThis, { client, store });
    }, this.daemon.token());
  }

  /** Sends a command, and returns the data of its answer. */
  send(type, data = {}) {
    return this.hand.evaluate(([type, data]) => globalThis.client.ask(type, data), [type, data]);
  }

  /** Waits for it; the limit guards against hanging, and begins anew with each step of the run. */
  async until(what, holds) {
    let seen = "";
    for (let end = Date.now() + PATIENCE; Date.now() < end; await pause(100)) {
      const found = await holds();
      if (found) return found;
      const { codonId, startTime } = await this.newest();
      if (seen !== `${codonId} ${startTime}`) end = Date.now() + PATIENCE;
      seen = `${codonId} ${startTime}`;
    }
    throw new Error(`${what} did not come within ${PATIENCE} ms of the last step`);
  }

  /** The codon that was started last. */
  newest() {
    return this.hand.evaluate(() => globalThis.store.state.runs[0]?.codons.at(-1) ?? {});
  }

  /** Goes on to one of the stops, past all before it, as a person would. */
  async reach(stop) {
    for (let left = ""; ; ) {
      const at = await this.until(`the stop after "${left}"`, async () => {
        const now = await this.#at();
        return now !== left && now;
      });
      if (STOPS.indexOf(at) >= STOPS.indexOf(stop)) return;
      await this.#leave(at);
      left = at;
    }
  }

  /** The stop at which it stands; "" while it works. */
  async #at() {
    const { codonId, status, wait } = await this.newest();
    if (codonId === "export" && status === "running") return "asks";
    if (codonId === "reconcile" && wait) return "waits";
    if (codonId === "check" && status === "running") return "runs";
    return codonId === "check" && status === "failed" ? "failed" : "";
  }

  async #leave(stop) {
    if (stop === "asks") {
      const asked = await this.until("a question", async () => {
        if ((await this.#at()) !== stop) return "answered"; // By a test.
        return this.hand.evaluate(() => [...globalThis.store.permissions.keys()][0]);
      });
      if (asked !== "answered") await this.send("permission.answer", { requestId: asked, decision: "allow" });
    } else if (stop === "waits") {
      await this.send("codon.start", { codonId: "reconcile" });
    } else {
      writeFileSync(join(this.daemon.folder, "checked"), "");
      await this.until("the failure", async () => (await this.#at()) === "failed");
      appendFileSync(join(this.daemon.workTree, "notes.md"), "- ask Ann about the empty depths\n");
    }
  }

  /** Two steps are run again, with other rates: what they did first is rolled back. */
  async #goBackOnce() {
    const { folder, workTree } = this.daemon;
    await this.until("the joined file", () => existsSync(join(workTree, "out/joined.csv")));
    await this.send("rollback.toCodon", {
      codonId: "enrich",
      checkpointType: "start",
      onRunning: "stop",
      autoRestart: true,
      reason: "The rates were those of last year.",
    });
    writeFileSync(join(folder, "joined"), "");
  }

  /** Back to before the step that has failed; a person's edit is kept. */
  goBack() {
    return this.send("rollback.toCodon", { codonId: "check", checkpointType: "start", keepEdits: true });
  }

  /** Four attempts at the step that has failed. */
  async explore() {
    await this.reach("failed");
    await this.send("exploration.start", { codonId: "check", variants: VARIANTS, score: "wc -c < src/parse.py", parallel: 2 });
    await this.until("the end of the attempts", () =>
      this.hand.evaluate(() => Boolean(globalThis.store.state.explorations.at(-1)?.endedAt)),
    );
  }

  /** The checkpoints, oldest first. */
  async checkpoints() {
    const all = [];
    for (let cursor; cursor !== null; ) {
      const page = await this.send("checkpoint.list", { limit: 500, ...(cursor ? { cursor } : {}) });
      all.push(...page.checkpoints);
      cursor = page.cursor ?? null;
    }
    return all.reverse();
  }
}
