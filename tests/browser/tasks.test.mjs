/**
 * What a supervisor wants to know or to do on a run of 25 steps: with two clicks or one key where it
 * is a usual task, and without scrolling at 1280x800. What each took is printed.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { addressOf, launch, open } from "./browser.mjs";
import { Daemon, codon, says } from "./daemon.mjs";
import { Hand } from "./hand.mjs";
import { FAILURE, NAME, Supervised } from "./supervised.mjs";

const EDITS = 16; // Of each step: more than 400 checkpoints in all.

let browser;
let run;
let desk; // Of one person, who has opened the page before.
before(async () => {
  browser = await launch();
  run = await Supervised.start(browser, EDITS);
  const { page, context } = await open(browser, run.daemon.page());
  await page.locator(".step").first().waitFor();
  await page.close();
  desk = context;
});
after(async () => {
  await run?.stop();
  await browser.close();
});

/**
 * A task, and how much it may take; `enough` compares what it took up to there, for one with parts.
 * @param {string} name @param {{clicks?: number, keys?: number, texts?: number}} most
 * @param {(hand: Hand, context: any) => Promise<void>} work
 */
function task(name, most, work) {
  test(name, async (context) => {
    const { page, faults } = await open(browser, run.daemon.page(), { within: desk });
    context.after(() => page.close());
    await page.locator(".step").first().waitFor();
    const hand = new Hand(page);
    const enough = (what = name) => {
      const { clicks, keys, texts } = hand.done;
      hand.done = { clicks: 0, keys: 0, texts: 0 };
      context.diagnostic(`${what}: ${clicks} clicks, ${keys} keys${texts ? `, ${texts} text typed` : ""}`);
      for (const [kind, number] of Object.entries({ clicks, keys, texts }))
        assert.ok(number <= (most[kind] ?? 0), `${what}: ${number} ${kind} of ${most[kind] ?? 0}`);
    };
    await work(hand, { page, enough });
    enough();
    assert.deepEqual(faults, []);
  });
}

/** What the hand finds on the page. */
const step = ({ page }, name) => page.locator(".step", { hasText: name });
const banner = ({ page }) => page.getByRole("region", { name: "The step that failed" });
const log = ({ page }) => page.getByRole("log", { name: "Transcript" });
const file = ({ page }, name) => page.getByRole("list", { name: "Files of this step" }).getByRole("button", { name });
const heading = ({ page }, name) => page.locator("#content").getByRole("heading", { name, exact: true });
const top = ({ page }) => page.locator("header.top");
const TWO_CLICKS = { clicks: 2 };
const ONE_KEY = { keys: 1 };
const inTree = (path) => join(run.daemon.workTree, path);

test("the run is as long as it is said to be", async () => {
  const { executionPlan } = await run.send("state.get");
  const loops = new Set(executionPlan.map((each) => each.loopContext?.loopId ?? each.codonId));
  assert.equal(loops.size, 25);
  assert.ok((await run.checkpoints()).length >= 400);
});

test("the page, its list, ls and status say alike how far it is", async (context) => {
  const { page } = await open(browser, run.daemon.page(), { within: desk });
  context.after(() => page.close());
  await page.locator(".advance").getByText("19 of 25").waitFor();
  await page.getByRole("button", { name: "Executions" }).click();
  await page.getByRole("button", { name: new RegExp(NAME) }).getByText("19 of 25").waitFor();
  for (const words of [["ls"], ["status", "-e", run.daemon.execution]])
    assert.match((await run.daemon.command(...words)).stdout, /Orders to model.*19 of 25/, words[0]);
});

describe("while an agent asks", () => {
  task("see from a notification what is asked, and what it would change", {}, async (hand) => {
    const question = hand.page.getByRole("region", { name: "Permission for Write" });
    await hand.sees(question.getByText("out/summary.md"));
    await hand.sees(log(hand).getByText("All rows fit."));
    await hand.sees(question.getByRole("button", { name: "Allow once" }));
    assert.equal(await hand.page.title(), `(!) approve: ${NAME}`);
  });

  task("see which run it is, how far, in what state, and what it waits for", {}, async (hand) => {
    await hand.sees(top(hand).getByText(NAME));
    await hand.sees(top(hand).getByText("19 of 25"));
    await hand.sees(top(hand).getByText("Waits for you"));
    await hand.sees(step(hand, "Export the summary"));
  });

  task("answer a permission by the keyboard", ONE_KEY, async (hand) => {
    await hand.sees(hand.page.getByRole("button", { name: "Allow once" }));
    await hand.press("a");
    await run.until("the summary", () => existsSync(inTree("out/summary.md")));
  });
});

describe("while a step waits for a limit", () => {
  before(() => run.reach("waits"));

  task("let a step go on that waits for a limit", { clicks: 1 }, async (hand) => {
    await hand.sees(hand.page.getByText(/waits for the end of a usage limit, in \d+:\d\d/));
    await hand.click(hand.page.getByRole("button", { name: "Continue now" }));
    await run.until("the step to go on", async () => !(await run.newest()).wait);
  });
});

describe("while a step works", () => {
  before(() => run.reach("runs"));

  task("see what it has cost, and what it will", {}, async (hand) => {
    const spent = top(hand).getByRole("button", { name: /^\$\d+\.\d\d of \$25\.00 · about \$\d+\.\d\d at the end/ });
    await hand.sees(spent);
    await hand.sees(top(hand).getByText(/, about .* left$/));
    await hand.sees(step(hand, "Write the report").getByText(/^~\$/));
  });
});

describe("after a failure", () => {
  before(() => run.reach("failed"));

  task("learn why the step failed", TWO_CLICKS, async (hand) => {
    await hand.sees(banner(hand).getByText(FAILURE));
    await hand.click(banner(hand).getByRole("button", { name: "Show" }));
    await hand.sees(log(hand).getByLabel("Output").filter({ hasText: "1 failed, 41 passed in 6.2 s" }));
  });

  task("see what a step changed in a file", TWO_CLICKS, async (hand) => {
    await hand.click(step(hand, "Index by day"));
    await hand.click(file(hand, /src\/index\.py/));
    await hand.sees(hand.page.getByRole("group", { name: /Difference of src\/index\.py/ }).getByText("def index_0(row):"));
  });

  task("see what a tool was called with in the past, and what it answered", TWO_CLICKS, async (hand) => {
    await hand.click(hand.page.getByRole("slider", { name: "Time" }), { across: 0.3, down: 0.4 });
    await hand.sees(hand.page.getByText(/^You see /).first());
    await hand.sees(log(hand).locator(".block.found :is(.tool-name, p, button)").first());
  });

  task("see by a link how a step ended", {}, async (hand, { page }) => {
    const { runs } = await run.send("state.get");
    const { completionCheckpoint } = runs.flatMap((each) => each.codons).find((each) => each.codonId === "tax");
    await page.goto("about:blank");
    await page.goto(`${run.daemon.page()}&checkpoint=${completionCheckpoint}`);
    await hand.sees(log(hand).locator(".block.found").getByText("every row fits now."));
  });

  task("compare two checkpoints", TWO_CLICKS, async (hand) => {
    const axis = hand.page.getByRole("slider", { name: "Time" });
    await hand.click(axis, { across: 0.2, down: 0.4 });
    await hand.click(axis, { across: 0.6, down: 0.4, held: "Shift" });
    await hand.sees(heading(hand, "Comparison"));
    await hand.sees(hand.page.locator(".comparison .d2h-ins").first());
    assert.match(await addressOf(hand.page), /&compare=[0-9a-f]+\.\.[0-9a-f]+/);
  });

  task("compare two checkpoints without a key", TWO_CLICKS, async (hand, { enough }) => {
    const axis = hand.page.getByRole("slider", { name: "Time" });
    await hand.drag(axis, { from: 0.2, to: 0.6, down: 0.4 });
    await hand.sees(heading(hand, "Comparison"));
    enough("by a stretch of time");
    await hand.page.keyboard.press("l");
    await hand.click(axis, { across: 0.2, down: 0.4 });
    await hand.sees(hand.page.getByText(/^You see /).first());
    hand.done.clicks = 0; // From a moment that one looks at.
    await hand.click(hand.page.getByRole("button", { name: /^Compare with…/ }));
    await hand.click(axis, { across: 0.6, down: 0.4 });
    await hand.sees(heading(hand, "Comparison"));
  });

  task("find a call among all of the run by its words", { clicks: 1, keys: 2, texts: 1 }, async (hand) => {
    await hand.press("4");
    await hand.page.getByRole("option").first().waitFor();
    await hand.press("/");
    await hand.type("write parse");
    await hand.click(hand.page.getByRole("option", { name: /src\/parse\.py/ }).first());
    await hand.sees(hand.page.getByText(/^You see /).first());
  });

  task("read what one step said, from its beginning", TWO_CLICKS, async (hand) => {
    await hand.click(step(hand, "Fill in the gaps"));
    await hand.sees(heading(hand, "Fill in the gaps"));
    await hand.sees(log(hand).getByText("I read the schema first"));
  });

  task("see which step costs most", ONE_KEY, async (hand) => {
    await hand.press("$");
    const first = hand.page.getByRole("region", { name: /^By/ }).locator("tbody tr").first();
    await hand.sees(first.getByText("Generate the model"));
    await hand.sees(hand.page.getByText(/ paid of \$25.* at the end/));
  });

  task("see what a person edited", { clicks: 1 }, async (hand) => {
    await hand.click(file(hand, /notes\.md.*yours/));
    await hand.sees(hand.page.getByRole("group", { name: /Difference of notes\.md/ }).getByText("ask Ann"));
  });

  task("read the prompt of a step", TWO_CLICKS, async (hand) => {
    await hand.click(step(hand, "Apply the taxes"));
    await hand.click(hand.page.getByRole("button", { name: "prompt" }));
    await hand.sees(hand.page.getByRole("region", { name: "Prompt" }).filter({ hasText: "I read the schema first" }));
  });

  task("find a word in a transcript", { clicks: 1, keys: 1, texts: 1 }, async (hand) => {
    await hand.click(step(hand, "Apply the taxes"));
    await heading(hand, "Apply the taxes").waitFor();
    await hand.sees(hand.page.getByRole("searchbox", { name: "Find in this step" }));
    await hand.press("/");
    await hand.type("def tax_1(");
    await hand.sees(hand.page.getByRole("search").getByText("1 of 1"));
    await hand.sees(log(hand).getByText("def tax_1(row):"));
  });

  task("open a file as it was when a step ended", { clicks: 2, keys: 1 }, async (hand) => {
    await hand.click(step(hand, "Index by day"));
    await heading(hand, "Index by day").waitFor();
    await hand.press("3");
    await hand.click(hand.page.getByRole("option", { name: /parse\.py/ }));
    await hand.sees(hand.page.getByText('depth = float(row["depth"])'));
  });

  task("see what was done outside of the work tree", { clicks: 1, keys: 1 }, async (hand) => {
    await hand.press("z");
    const dialog = hand.page.getByRole("dialog");
    await hand.click(dialog.locator("summary", { hasText: /outside the work tree/ }));
    await hand.sees(dialog.locator("li", { hasText: /push/ }));
  });

  task("copy the address of a step, and come back by it", { clicks: 1 }, async (hand) => {
    await hand.click(step(hand, "Link the invoices"));
    await heading(hand, "Link the invoices").waitFor();
    const { page, context } = await open(browser, await addressOf(hand.page));
    await new Hand(page).sees(heading({ page }, "Link the invoices"));
    await context.close();
  });

  task("find an execution by its name", { clicks: 2, keys: 1, texts: 1 }, async (hand, { page }) => {
    const other = await Daemon.start(run.context, () => [codon("guide", [says("I rewrite the guide.")])], [], {
      name: "Docs refresh",
      state: join(run.daemon.folder, "state"),
    });
    await hand.click(page.getByRole("button", { name: "Executions" }));
    await page.locator(".executions li").first().waitFor();
    await hand.press("/");
    await hand.type("docs ref");
    await page.getByText("1 here").waitFor();
    await hand.click(page.getByRole("button", { name: /Docs refresh/ }));
    await hand.sees(page.getByText("I rewrite the guide."));
    await other.stop();
  });

  task("go back to before the failed step, and keep one's own edit", TWO_CLICKS, async (hand, { page }) => {
    await hand.click(banner(hand).getByRole("button", { name: "Back to before it" }));
    const card = page.getByRole("dialog", { name: "Back to before Check every row" });
    for (const follows of ["return to earlier content", "go away", "your own edits, kept"])
      await hand.sees(card.getByText(follows));
    await hand.click(card.getByRole("button", { name: /^Go back/ }));
    await run.until("the rollback", () => !existsSync(inTree("out/check.json")));
    assert.match(readFileSync(inTree("notes.md"), "utf-8"), /ask Ann/);
    await page.getByText(/^Rolled back/).first().waitFor();
    await run.send("rollback.undo");
    await run.send("codon.next");
    await run.until("the step to run again", async () => (await run.newest()).codonId === "check");
    await run.reach("failed");
  });

  task("see what an undo would do", ONE_KEY, async (hand) => {
    await run.goBack();
    await hand.sees(top(hand).getByText("Idle"));
    await hand.press("u");
    const dialog = hand.page.getByRole("dialog");
    await hand.sees(dialog.getByText("return to earlier content"));
    await hand.sees(dialog.getByRole("button", { name: /^Undo/ }));
  });

  task("let a run that stands still go on", ONE_KEY, async (hand) => {
    await hand.sees(top(hand).getByRole("button", { name: "Start the next step" }));
    await hand.press("n");
    await run.until("the step to run", async () => (await run.newest()).codonId === "check");
    await run.reach("failed");
  });

  task("choose the best of four attempts", TWO_CLICKS, async (hand, { page }) => {
    await run.explore();
    await hand.click(page.getByRole("button", { name: "4 attempts at Check every row" }));
    await hand.sees(page.getByRole("row", { name: /take the mean of the neighbours.*best/ }));
    await hand.sees(page.locator(".attempt .d2h-ins").first());
    await hand.click(page.getByRole("button", { name: /^Adopt/ }));
    await hand.sees(page.getByRole("dialog").getByText("return to earlier content"));
  });

  task("stop, skip and retry a step", TWO_CLICKS, async (hand, { page, enough }) => {
    unlinkSync(join(run.daemon.folder, "checked")); // It stands still there once more.
    const dialog = page.getByRole("dialog");
    for (const what of ["stop", "skip"]) {
      await hand.click(banner(hand).getByRole("button", { name: "Retry" }));
      await hand.click(dialog.getByRole("button", { name: /^Retry/ }));
      enough("retry");
      await run.until("the step that runs again", async () => (await run.newest()).status === "running");
      if (what === "skip") continue;
      await hand.click(page.getByRole("button", { name: /^Stop…/ }));
      await hand.click(dialog.getByRole("button", { name: "Stop it" }));
      enough("stop");
      await run.until("the end of the step", async () => (await run.newest()).status === "failed");
    }
    await hand.click(page.getByRole("button", { name: /^Skip…/ }));
    await hand.click(dialog.getByRole("button", { name: "Skip it" }));
    enough("skip");
    await hand.sees(top(hand).getByText("Completed"));
  });
});
