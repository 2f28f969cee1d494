/** The whole story on the real daemon: watch, look back, preview, roll back, undo, branch, come back. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, thinks, waitsFor, writes } from "./daemon.mjs";
import { emptyState, fold } from "../../server/hankweave_server/transport/web/state.js";
import { Wire } from "./wire.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const loop = (id, iterations, ...codons) => ({
  type: "loop",
  id,
  name: id,
  terminateOn: { type: "iterationLimit", limit: iterations },
  codons,
});

function hank(gate) {
  return [
    codon(
      "research",
      [
        says("I look at the measurements before I write anything."),
        writes("notes/observations.md", "# Observations\n\nNothing yet.\n"),
        writes("notes/sources.md", "- the table of 2024\n- the table of 2025\n"),
        { cost: 0.031 },
      ],
      { name: "Research" },
    ),
    loop(
      "refine",
      2,
      codon(
        "review",
        [
          thinks("Two of the numbers do not agree."),
          { run: "ls notes" },
          {
            append: {
              path: "notes/observations.md",
              text: "Three tremors, one of them doubtful.\n",
            },
          },
          { cost: 0.012 },
        ],
        { name: "Review" },
      ),
    ),
    codon(
      "report",
      [
        says("Now the report."),
        writes("report.md", "# Report\n\nThe doubtful tremor is left out.\n"),
        writes("notes/sources.md", "- the table of 2025\n"),
        writes("draft.txt", "to be thrown away\n"),
        says("I wait for the last table."),
        waitsFor(gate),
        { cost: 0.02 },
      ],
      { name: "Report" },
    ),
  ];
}

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const shown = (page, text) => page.getByText(text).first().waitFor();

async function story(context) {
  const daemon = await Daemon.start(context, (folder) => hank(join(folder, "gate")));
  return { daemon, gate: join(daemon.folder, "gate") };
}

test(
  "a person watches, looks back, rolls two files back, undoes it, branches, loses the connection and comes back",
  async (context) => {
    const { daemon, gate } = await story(context);
    const wire = await Wire.to(daemon.port);
    context.after(() => wire.close());
    const { page, faults } = await open(browser, daemon.page("controller", wire.port));

    // Watch a run.
    await shown(page, "I wait for the last table.");
    await shown(page, "Review ×2");
    assert.match(await page.getByLabel("Current activity").innerText(), /Running/);
    await page.locator(".steps").getByText("Review ×2").click();
    await page.locator(".steps").getByText("round 2").click();
    await page.getByText("ls notes").first().waitFor();
    await shown(page, "observations.md");
    await page.locator(".steps").getByText("Report").click();
    await button(page, /draft\.txt/).waitFor();
    await isAccessible(page, "the live view");

    writeFileSync(gate, "");
    await ended(page);

    // Look back, from the list of all checkpoints.
    await page.keyboard.press("4");
    await button(page, "All").click();
    const research = page.getByRole("option", { name: /codon completed.*Research/ });
    const past = page.getByRole("region", { name: "The past" });
    await research.click();
    await past.getByText("Research").waitFor();
    await isAccessible(page, "all checkpoints");
    await page.keyboard.press("3");
    await page.getByRole("listbox", { name: "Files of this moment" }).waitFor();
    await page.getByRole("option", { name: /observations\.md/ }).click();
    await shown(page, "Nothing yet.");
    await isAccessible(page, "the files of a moment");

    await page.keyboard.press("v");
    await page.getByRole("heading", { name: "Comparison" }).waitFor();
    await page
      .getByRole("group", { name: /Difference of notes\/observations/ })
      .getByText("Three tremors")
      .first()
      .waitFor();
    await isAccessible(page, "a difference");
    await page.keyboard.press("Escape");
    await button(page, "state…").click();
    await page.getByRole("dialog").getByText("completed", { exact: true }).first().waitFor();
    await isAccessible(page, "the state of a moment");
    await page.keyboard.press("Escape");
    await page.keyboard.press("5");
    await page.getByRole("listbox", { name: "Events" }).getByRole("option").first().waitFor();
    await isAccessible(page, "the events of a moment");

    // On the axis, by the keyboard alone.
    const strip = page.getByRole("slider", { name: "Time" });
    await strip.focus();
    await page.keyboard.press("ArrowLeft");
    assert.match(await strip.getAttribute("aria-valuetext"), /after a (tool call|message)/);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await past.getByText("Research").waitFor();

    // A person edits; then a preview that shows it, and two files go back.
    writeFileSync(join(daemon.workTree, "notes/sources.md"), "- my own table\n");
    await page.keyboard.press("g");
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: /^your own edits, kept\s+1 file/ }).waitFor();
    await dialog.getByRole("button", { name: /^go away\s+2 files/ }).waitFor();
    await dialog.getByLabel("Keep edits made by people").uncheck();
    await dialog.getByRole("button", { name: /^your own edits, overwritten\s+1 file/ }).click();
    await dialog.getByRole("button", { name: /the difference of notes\/sources\.md/ }).click();
    await dialog.getByText("- my own table").first().waitFor();
    await isAccessible(page, "the preview of a rollback");
    await dialog.getByRole("button", { name: "Only some files…" }).click();
    await dialog.getByRole("checkbox", { name: /draft\.txt/ }).check();
    await dialog.getByRole("checkbox", { name: /notes\/sources\.md/ }).check();
    await dialog.getByRole("button", { name: "Take 2 files back" }).click();
    await shown(page, "Rolled back: 2 files changed.");
    const read = (path) => readFileSync(join(daemon.workTree, path), "utf-8");
    assert.equal(existsSync(join(daemon.workTree, "draft.txt")), false);
    assert.equal(read("notes/sources.md"), "- the table of 2024\n- the table of 2025\n");
    assert.match(read("notes/observations.md"), /Three tremors/);

    // Undo.
    await page.keyboard.press("u");
    await dialog.getByRole("button", { name: "Undo it" }).click();
    await shown(page, "Undone: 2 files changed.");
    assert.equal(read("draft.txt"), "to be thrown away\n");
    assert.equal(read("notes/sources.md"), "- my own table\n");

    // Whole, with a new run: the tree has two lines then.
    await page.keyboard.press("4");
    await research.click();
    await button(page, "Back to here…").click();
    await dialog.getByText("More", { exact: true }).click();
    await dialog.getByLabel("Continue the plan afterwards").check();
    await dialog.getByRole("button", { name: "Go back" }).click();
    await shown(page, /Rolled back: \d files changed/);
    await ended(page);

    // Pin and name, branch.
    await research.click();
    await page.keyboard.press("p");
    await dialog.getByLabel("Name").fill("before the doubts");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByRole("option", { name: /before the doubts.*pinned/ }).waitFor();
    await page.keyboard.press("b");
    await isAccessible(page, "the dialog of a branch");
    await dialog.getByLabel(/Directory/).fill(join(daemon.folder, "branch"));
    await dialog.getByRole("button", { name: "Create the branch" }).click();
    await dialog.getByText(`hankweave run --execution ${join(daemon.folder, "branch")}`).waitFor();
    assert.equal(
      readFileSync(join(daemon.folder, "branch/agentRoot/notes/observations.md"), "utf-8"),
      "# Observations\n\nNothing yet.\n",
    );
    await dialog.getByRole("button", { name: "Close" }).last().click();

    // The same on a phone, in the dark.
    const phone = await open(browser, daemon.page(), {
      scheme: "dark",
      size: { width: 390, height: 780 },
    });
    await phone.page.locator(".step").first().waitFor();
    await phone.page.keyboard.press("4");
    await phone.page.getByRole("button", { name: "All", exact: true }).click();
    await phone.page.getByRole("listbox", { name: /checkpoints/ }).focus();
    await phone.page.keyboard.press("End");
    await phone.page.getByRole("option", { name: /^before the doubts/ }).click();
    await phone.page.keyboard.press("3");
    await shown(phone.page, "observations.md");
    await phone.page.evaluate(() => scrollTo(0, 0));
    assert.deepEqual(phone.faults, []);
    await phone.context.close();

    // The connection is lost; something happens meanwhile; nothing is missing afterwards.
    wire.cut();
    await shown(page, "The connection is lost.");
    await isAccessible(page, "without a connection");
    await page.keyboard.press("c");
    await shown(page, "There is no connection.");
    assert.equal(await page.getByRole("dialog").count(), 0);
    const other = await open(browser, daemon.page());
    await ended(other.page);
    await other.page.keyboard.press("c");
    await other.page.getByLabel(/Label/).fill("while you were away");
    await other.page.getByRole("button", { name: "Take it" }).click();
    await shown(other.page, /was taken/);
    wire.mend();
    await button(page, "Try now").click();
    await page.getByRole("option", { name: /^while you were away/ }).waitFor();
    const newest = (each) =>
      each.getByRole("option", { name: /Checkpoint.*while you were away/ }).waitFor();
    await page.locator(".step", { hasText: "Report" }).click();
    await page.keyboard.press("5");
    await button(page, "of the whole run").click();
    await other.page.keyboard.press("l");
    await other.page.keyboard.press("5");
    await newest(page);
    await newest(other.page);

    // Search, causes, cost.
    const events = page.getByRole("listbox", { name: "Events" });
    await page.getByRole("searchbox", { name: "Search" }).fill("DOUBTFUL");
    await events
      .getByRole("option", { name: /Message|Thought|Write/ })
      .first()
      .waitFor();
    await isAccessible(page, "the events");
    await page.getByRole("searchbox", { name: "Search" }).fill("");
    await page
      .getByLabel("Type")
      .selectOption({
        label: await page.locator("option", { hasText: "rollback.completed" }).innerText(),
      });
    const found = events.getByRole("option", { name: /Rollback.*Rolled back/ }).first();
    await found.click();
    await dialog.getByRole("region", { name: "What it led to" }).waitFor();
    await dialog.getByText(/because of the command/).waitFor();
    await isAccessible(page, "an event");
    await page.keyboard.press("Escape");
    await page.keyboard.press("$");
    await page.getByRole("img", { name: /Cost rose to/ }).waitFor();
    await isAccessible(page, "the cost");
    assert.deepEqual(faults, []);
    assert.deepEqual(other.faults, []);

    // What the page makes of the journal is what the server makes of it.
    await daemon.stop();
    const lines = readFileSync(join(daemon.execution, ".hankweave/events/events.jsonl"), "utf-8")
      .trim()
      .split("\n");
    const folded = emptyState();
    for (const { type, data } of lines.map((line) => JSON.parse(line))) {
      if (type === "state.transition") fold(folded, data.transition);
    }
    const state = JSON.parse(
      readFileSync(join(daemon.execution, ".hankweave/state.json"), "utf-8"),
    );
    for (const part of [
      "runs",
      "currentRunId",
      "executionPlan",
      "undo",
      "redo",
      "edits",
      "initialCheckpoint",
    ]) {
      assert.deepEqual(folded[part], state[part] ?? emptyState()[part], part);
    }
  },
);

test(
  "an open page goes on after a restart, and asks for the token when that is a new one",
  async (context) => {
    const { daemon, gate } = await story(context);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "I wait for the last table.");
    const address = daemon.page();
    await daemon.kill();
    await shown(page, "The connection is lost.");
    writeFileSync(gate, "");
    await daemon.run();
    assert.equal(daemon.page(), address);
    await ended(page);
    await shown(page, "The step is complete.");
    await daemon.stop();
    await daemon.run(["--new-tokens"]);
    await page
      .getByRole("alert")
      .getByText(/does not hold/)
      .waitFor();
    await isAccessible(page, "the question for a token");
    await page.getByLabel(/Token/).fill(daemon.token());
    await button(page, "Connect").click();
    await ended(page);
    await shown(page, "The step is complete.");
    assert.deepEqual(faults, []);
  },
);

test(
  "a link that may only look shows everything and moves nothing",
  async (context) => {
    const { daemon, gate } = await story(context);
    writeFileSync(gate, "");
    const { page, faults } = await open(browser, daemon.page("viewer"));
    await ended(page);
    await shown(page, "This link is read-only.");
    for (const key of ["n", "r", "z", "c", "u"]) {
      await page.keyboard.press(key);
      await page.locator(".note.shown", { hasText: "read-only" }).waitFor();
      assert.equal(await page.getByRole("dialog").count(), 0, key);
      await page.locator(".note button").click();
    }
    await page.keyboard.press("[");
    await page.getByRole("tab", { name: "Files", exact: true }).click();
    await page.getByRole("option", { name: /report\.md/ }).click();
    await shown(page, "The doubtful tremor is left out.");
    await button(page, "Back to here…").click({ force: true });
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.keyboard.press("g");
    assert.equal(await page.getByRole("dialog").count(), 0);
    await isAccessible(page, "what a viewer sees");
    assert.deepEqual(faults, []);
  },
);

test(
  "a person allows what an agent asks for, and skips a codon",
  async (context) => {
    const daemon = await Daemon.start(context, (folder) => [
      codon("careful", [writes("a.txt", "a"), says("I have leave.")], {
        permissions: { otherwise: "ask" },
      }),
      codon("endless", [says("I wait for nothing."), waitsFor(join(folder, "never"))]),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    const asked = page.getByRole("region", { name: "Permission for Write" });
    await asked.waitFor();
    await isAccessible(page, "a question for permission");
    await asked.getByRole("button", { name: "Allow once" }).click();
    await shown(page, "I wait for nothing.");
    await button(page, "Skip…").click();
    await page.getByRole("dialog").getByRole("button", { name: "Skip it" }).click();
    await shown(page, "The step was skipped.");
    await page.locator(".s-skipped").waitFor();
    assert.deepEqual(faults, []);
  },
);

test("a view that has grown old is refused", async (context) => {
  const { daemon } = await story(context);
  const { page, faults } = await open(browser, daemon.page());
  await shown(page, "I wait for the last table.");
  await page.getByRole("slider", { name: "Time" }).focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await button(page, "Back to here…").click();
  const go = page.getByRole("dialog").getByRole("button", { name: "Go back" });
  await go.waitFor();
  const other = await open(browser, daemon.page());
  await shown(other.page, "I wait for the last table.");
  await button(other.page, "Stop…").click();
  await other.page.getByRole("button", { name: "Stop it" }).click();
  await other.page.getByRole("button", { name: "Retry", disabled: false }).waitFor();
  await other.page.keyboard.press("r");
  await other.page.getByLabel("On the files as they are").check();
  await other.page.keyboard.press("Enter");
  await shown(other.page, "Report runs again.");
  await go.click();
  await page.getByRole("dialog").getByText("The execution has moved on").waitFor();
  assert.deepEqual(faults, []);
});
