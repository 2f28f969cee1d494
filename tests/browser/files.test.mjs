/** The files of the selected step, and that they are right whatever became of them. */
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

test("the files of a step are right after a rollback, an undo and a reload", async (context) => {
  const daemon = await Daemon.start(context, () => [
    codon("first", [writes("kept.txt", "one\n"), writes("gone.txt", "1\n")], { name: "First" }),
    codon("second", [writes("kept.txt", "one\ntwo\n"), writes("new.txt", "new\n")], { name: "Second" }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  const files = page.getByRole("list", { name: "Files of this step" });
  const are = async (...paths) => {
    const wanted = JSON.stringify(paths);
    await page.waitForFunction(
      (wanted) => JSON.stringify([...document.querySelectorAll("aside .change .path")].map((each) => each.textContent)) === wanted,
      wanted,
    );
  };
  await are("kept.txt", "new.txt");
  writeFileSync(join(daemon.workTree, "notes.md"), "mine\n");
  await page.evaluate(() => dispatchEvent(new Event("focus"))); // As coming back to the window does.
  await are("kept.txt", "new.txt", "notes.md");
  await files.getByRole("button", { name: /notes\.md.*yours/ }).waitFor();
  await files.getByRole("button", { name: /kept\.txt/ }).click();
  await files.getByText("two").first().waitFor();
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await isAccessible(page, `the files of a step, ${scheme}`);
  }

  // One of an earlier step goes up to that step's end.
  await page.locator(".step", { hasText: "First" }).click();
  await are("gone.txt", "kept.txt");
  await page.locator(".step", { hasText: "Second" }).click();
  await are("kept.txt", "new.txt", "notes.md");

  await page.keyboard.press("z");
  await page.getByRole("button", { name: "Go back", disabled: false }).click();
  await page.getByText(/^Rolled back/).first().waitFor();
  assert.ok(!existsSync(join(daemon.workTree, "new.txt")));
  await page.locator(".step", { hasText: "First" }).click();
  await are("gone.txt", "kept.txt", "notes.md"); // A person's edit stays.
  await page.keyboard.press("u");
  await page.getByRole("button", { name: "Undo it" }).click();
  await page.getByText(/^Undone/).first().waitFor();
  await page.locator(".step", { hasText: "Second" }).click();
  await are("kept.txt", "new.txt", "notes.md");
  await page.reload();
  await are("kept.txt", "new.txt", "notes.md");
  assert.deepEqual(faults, []);
});
