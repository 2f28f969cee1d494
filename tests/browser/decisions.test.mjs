/** Decisions: what follows from each is said before it is made, and each can be taken back. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addressOf, isAccessible, isWithin, launch, open } from "./browser.mjs";
import { Daemon, codon, says, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const failed = (page) => page.getByLabel("Current activity").getByText("Failed", { exact: true }).waitFor();
const shown = (page, text) => page.getByText(text).first().waitFor();
const line = (dialog, words) => dialog.getByRole("button", { name: new RegExp(`^${words}`.replaceAll(" ", "\\s+")) });
const journal = (daemon) =>
  readFileSync(join(daemon.execution, ".hankweave/events/events.jsonl"), "utf-8").trim().split("\n").map((each) => JSON.parse(each));
const countOf = (daemon, type) => journal(daemon).filter((each) => each.type === type).length;

/** A step that failed after it wrote three files, one of which a person has edited since. */
const halfDone = () => [
  codon("first", [writes("kept.txt", "kept\n"), writes("rows.txt", "1\n"), { cost: 0.5 }], { name: "First" }),
  codon("check", [
    writes("rows.txt", "1\n2\n"),
    writes("new.txt", "new\n"),
    writes("notes.md", "theirs\n"),
    { run: "echo out >/dev/null" },
    { cost: 0.18 },
    { fail: { message: "No." } },
  ], { name: "Check every row" }),
  codon("last", [says("late")], { name: "Last" }),
];

test("going back says what returns, goes, is kept and runs again, and undo takes it back", async (context) => {
  const daemon = await Daemon.start(context, halfDone);
  const { page, faults } = await open(browser, daemon.page());
  const read = (path) => readFileSync(join(daemon.workTree, path), "utf-8");
  const has = (path) => existsSync(join(daemon.workTree, path));
  await failed(page);
  writeFileSync(join(daemon.workTree, "notes.md"), "theirs\nmine\n");

  // The same from each place; it stands beside the step, and Escape leaves it.
  const dialog = page.getByRole("dialog", { name: "Back to before Check every row" });
  const row = page.locator(".list-of-steps li", { hasText: "Check every row" });
  const places = [
    () => page.keyboard.press("z"),
    () => page.getByRole("button", { name: "Back to before it" }).click(),
    () => page.getByRole("button", { name: "back to before this step" }).click(),
    async () => {
      await row.hover();
      await page.getByRole("button", { name: "Actions for Check every row" }).click();
      await page.getByRole("menuitem", { name: "Back to before Check every row…" }).click();
    },
    async () => {
      await row.click({ button: "right" });
      await isAccessible(page, "the menu of a step");
      await page.keyboard.press("Enter");
    },
  ];
  for (const place of places) {
    await place();
    await line(dialog, "return to earlier content 1 file").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  assert.equal(countOf(daemon, "rollback.started"), 0, "a preview changes nothing");

  await page.keyboard.press("z");
  await line(dialog, "go away 1 file").click();
  await dialog.getByText("new.txt", { exact: true }).waitFor();
  await line(dialog, "your own edits, kept 1 file").waitFor();
  await dialog.getByLabel("Keep edits made by people").uncheck();
  await line(dialog, "your own edits, overwritten 1 file").waitFor();
  await dialog.getByLabel("Keep edits made by people").check();
  await line(dialog, "your own edits, kept 1 file").waitFor();
  await line(dialog, "run again 1 step, ~\\$0.18, ").click();
  await dialog.getByText(/^Done outside the work tree, not undone: \d/).waitFor();
  const go = dialog.getByRole("button", { name: "Go back" });
  assert.ok(await isWithin(go), "without scrolling");
  await isAccessible(page, "going back");
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("Rolled back: 2 files changed.").waitFor();
  assert.deepEqual([read("rows.txt"), has("new.txt"), read("notes.md")], ["1\n", false, "theirs\nmine\n"]);
  await isAccessible(page, "what was done");

  // The report and the palette lead to the same preview of what an undo would do.
  await page.getByRole("button", { name: "Undo…" }).click();
  const undo = page.getByRole("dialog", { name: "Undo the last rollback" });
  await line(undo, "return to earlier content 2 files").waitFor();
  await page.keyboard.press("Enter");
  await shown(page, "Undone: 2 files changed.");
  assert.deepEqual([read("rows.txt"), read("new.txt"), read("notes.md")], ["1\n2\n", "new\n", "theirs\nmine\n"]);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("redo");
  await page.keyboard.press("Enter");
  await line(page.getByRole("dialog", { name: "Redo what was undone" }), "go away 1 file").waitFor();
  await page.keyboard.press("Enter");
  await shown(page, "Redone: 2 files changed.");
  await page.keyboard.press("u");
  await undo.getByRole("button", { name: "Undo it", disabled: false }).click();
  await shown(page, "Undone: 2 files changed.");

  // From a moment of the past it leads to the present, and nothing of the past is shown any more.
  await page.keyboard.press("[");
  await page.getByRole("button", { name: "Previous checkpoint" }).click();
  await page.keyboard.press("g");
  await page.getByRole("dialog", { name: /^Back to / }).getByRole("button", { name: "Go back", disabled: false }).click();
  await page.getByRole("status").getByText(/^Rolled back/).waitFor();
  assert.equal(await page.getByRole("region", { name: "The past" }).count(), 0);
  assert.doesNotMatch(await addressOf(page), /&(checkpoint|at|compare)=/);
  assert.deepEqual(faults, []);
});

test("a retry asks where it begins, and nothing that changes files starts without its question", async (context) => {
  const daemon = await Daemon.start(context, halfDone);
  const { page, faults } = await open(browser, daemon.page());
  await failed(page);
  const before = countOf(daemon, "codon.started");
  const dialog = page.getByRole("dialog", { name: "Retry Check every row" });
  // The next step is the failed one again.
  for (const key of ["r", "n"]) {
    await page.keyboard.press(key);
    await line(dialog, "go away 2 files").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  assert.equal(countOf(daemon, "codon.started"), before);

  await page.keyboard.press("r");
  await line(dialog, "go away 2 files").waitFor();
  await isAccessible(page, "a retry");
  assert.ok(await isWithin(dialog.getByRole("button", { name: "Retry" })));
  await dialog.getByLabel("On the files as they are").check();
  await dialog.getByText("go away none").waitFor();
  await line(dialog, "run again 1 step").waitFor();
  await page.keyboard.press("Enter");
  await shown(page, "Check every row runs again.");
  await page.waitForFunction(() => /attempt 2/.test(document.querySelector(".of-step")?.textContent ?? ""));
  await failed(page);
  assert.equal(countOf(daemon, "rollback.started"), 0);

  writeFileSync(join(daemon.workTree, "notes.md"), "mine\n");
  await page.keyboard.press("r");
  await line(dialog, "your own edits, kept 1 file").waitFor();
  await page.keyboard.press("Enter");
  await shown(page, /^Rolled back: \d files? changed/);
  await failed(page);
  assert.equal(countOf(daemon, "rollback.completed"), 1);

  // An earlier one can only begin where it began.
  await page.locator(".step", { hasText: "First" }).click({ button: "right" });
  await page.getByRole("menuitem", { name: "Retry First…" }).click();
  const earlier = page.getByRole("dialog", { name: "Retry First" });
  assert.ok(await earlier.getByLabel("On the files as they are").isDisabled());
  await line(earlier, "run again 2 steps").waitFor();
  assert.deepEqual(faults, []);
});

test("on a phone a decision is a sheet over the page, and edits go where that is chosen", async (context) => {
  const daemon = await Daemon.start(context, halfDone);
  const { page, faults } = await open(browser, daemon.page(), { scheme: "dark", size: { width: 360, height: 780 } });
  const back = page.getByRole("button", { name: "Back to before it" });
  await back.waitFor();
  writeFileSync(join(daemon.workTree, "notes.md"), "theirs\nmine\n");
  await back.click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Keep edits made by people").uncheck();
  await line(dialog, "your own edits, overwritten 1 file").waitFor();
  const go = dialog.getByRole("button", { name: "Go back", disabled: false });
  await go.waitFor();
  assert.ok(await isWithin(go));
  await isAccessible(page, "going back, on a phone");
  await go.click();
  await shown(page, "Rolled back: 3 files changed.");
  assert.equal(existsSync(join(daemon.workTree, "notes.md")), false);
  await isAccessible(page, "what was done, on a phone");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
});
