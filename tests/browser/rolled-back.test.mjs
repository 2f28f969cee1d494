/** On the real server: the files, the cost and the moments that are shown once one has gone back. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ended, launch, open } from "./browser.mjs";
import { COMMAND, Daemon, codon, says, waitsFor, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const hank = (gate) => [
  codon("first", [writes("kept.txt", "kept\n"), { cost: 3.2 }], { name: "First" }),
  codon("second", [
    ...Array.from({ length: 5 }, (_, at) => writes(`gone-${at}.txt`, "gone\n")),
    says("All of it."),
    { cost: 1.1 },
  ]),
  codon("third", [waitsFor(gate)]),
];

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const live = (page) => page.locator("aside .path");

test("what was rolled back is not shown as if it were there, nor is its cost silent", async (context) => {
  const daemon = await Daemon.start(context, (folder) => hank(join(folder, "gate")));
  const { page, faults } = await open(browser, daemon.page());
  context.after(() => page.close());
  await page.locator(".step.s-running", { hasText: "Codon third" }).waitFor();
  await page.locator(".step", { hasText: "Codon second" }).click();
  await page.locator("aside .path", { hasText: "gone-4.txt" }).waitFor();

  // `[` goes one step back from now, from any view, with nothing chosen before.
  await page.keyboard.press("[");
  await button(page, "Previous checkpoint").waitFor();
  const newest = await page.getByRole("slider", { name: "Time" }).getAttribute("aria-valuenow");
  await page.keyboard.press("[");
  await page.waitForFunction(
    (before) => document.querySelector("[role=slider]")?.getAttribute("aria-valuenow") !== before,
    newest,
  );

  // A click on a live file shows that file, as the first checkpoint after the change has it.
  await page.keyboard.press("Escape");
  await page.locator(".step", { hasText: "Codon second" }).click();
  await page.locator("aside button", { hasText: "gone-3.txt" }).click();
  await button(page, "Show it in its checkpoint").click();
  await page.locator("#content").getByText("gone", { exact: true }).waitFor();
  assert.match(await page.locator("#content .tree").innerText(), /gone-3\.txt/);

  // At "codon completed" the codon is completed.
  await page.getByRole("tab", { name: "Checkpoints" }).click();
  await button(page, "All").click();
  await page.getByRole("option", { name: /codon completed.*First/ }).click();
  await button(page, "state…").click();
  const first = page.locator(".then li.codon", { hasText: "first" });
  await first.getByText("completed", { exact: true }).waitFor();
  assert.equal(await page.locator(".then li[aria-current=step]").count(), 0);
  await page.keyboard.press("Escape");
  await page.keyboard.press("l");

  // The rollback takes the files from the list, and says what they cost.
  writeFileSync(join(daemon.folder, "gate"), "");
  await ended(page);
  await page.locator(".step", { hasText: "Codon second" }).click();
  await page.waitForFunction(() => document.querySelectorAll("aside .path").length === 5);
  await page.keyboard.press("l");
  const back = ["rollback", "--codon", "first", "--type", "completed", "--yes", "-e", daemon.execution];
  execFileSync(COMMAND, back, { stdio: "ignore" });
  await page.waitForFunction(() => document.querySelectorAll("aside .path").length === 1);
  assert.deepEqual(await live(page).allInnerTexts(), ["kept.txt"]);
  await page.locator("header.top").getByText("$1.10 rolled back").waitFor();

  // A page that is opened afterwards shows the same.
  const { page: later } = await open(browser, daemon.page());
  context.after(() => later.close());
  await later.locator("header.top").getByText("$1.10 rolled back").waitFor();
  await later.getByText("kept.txt").first().waitFor();
  assert.deepEqual(await live(later).allInnerTexts(), ["kept.txt"]);
  await later.keyboard.press("$");
  await later.getByText("Of this, rolled back").waitFor();
  assert.deepEqual(faults, []);
});
