/** The attempts at a step, as a person compares them on the page. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addressOf, ended, isAccessible, isWithin, launch, open } from "../../browser/browser.mjs";
import { COMMAND, Daemon, codon, says, writes } from "../../browser/daemon.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("attempts are compared at full width, and one is adopted after its preview", async (context) => {
  const hank = () => [
    codon("first", [writes("a.txt", "1\n")], { name: "First" }),
    codon("draft", [writes("draft.md", "one\ntwo\n"), says("Drafted.")], { name: "Draft" }),
  ];
  const daemon = await Daemon.start(context, hank);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  writeFileSync(join(daemon.workTree, "mine.txt"), "mine\n");
  const variants = ["short", "long"].map((name) => {
    const path = join(daemon.folder, `${name}.json`);
    const steps = [writes("draft.md", `${name}\n`), { cost: 0.1 }];
    writeFileSync(path, JSON.stringify({ name, promptText: JSON.stringify({ steps }) }));
    return ["--variant", path];
  });
  const words = ["explore", "--codon", "draft", ...variants.flat(), "--score", "wc -c < draft.md", "-e", daemon.execution];
  execFileSync(COMMAND, words, { stdio: "ignore" });

  await page.getByRole("button", { name: "2 attempts at Draft" }).click();
  assert.match(await addressOf(page), /step=draft&tab=attempts$/);
  const attempts = page.getByRole("region", { name: "Attempts" });
  const row = (name) => attempts.getByRole("row", { name: new RegExp(`^${name}`) });
  await row("short").getByText("best").waitFor();
  const diff = attempts.locator(".diff td", { hasText: "short" }).first();
  await diff.waitFor();
  for (const each of [diff, row("long"), page.getByRole("button", { name: /^Adopt attempt/ }), page.getByRole("button", { name: /^Discard attempt/ })])
    assert.ok(await isWithin(each), "in view without scrolling");
  await isAccessible(page, "attempts");
  await row("short").getByRole("button").focus();
  await page.keyboard.press("ArrowDown");
  await attempts.locator(".diff td", { hasText: "long" }).first().waitFor();
  await attempts.getByLabel("compared with").selectOption({ label: "short" });
  await attempts.locator(".d2h-del", { hasText: "short" }).first().waitFor();

  await page.getByRole("button", { name: /^Discard attempt/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Discard it" }).click();
  await row("long").getByText("discarded").waitFor();
  await row("short").click();
  await page.getByRole("button", { name: /^Adopt attempt/ }).click();
  const dialog = page.getByRole("dialog", { name: /^Adopt attempt/ });
  await dialog.getByRole("button", { name: /^return\s+to\s+earlier\s+content\s+1\s+file/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("Adopted: 1 file changed.").first().waitFor();
  assert.equal(readFileSync(join(daemon.workTree, "draft.md"), "utf-8"), "short\n");
  assert.ok(existsSync(join(daemon.workTree, "mine.txt")));
  await row("short").getByText("adopted").waitFor();
  await page.goBack();
  await attempts.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
});
