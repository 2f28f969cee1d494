/** Who wrote a line, which call broke something, and when a text came, as a person finds it on the page. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { Daemon, codon, says, writes } from "./daemon.mjs";
import { Hand } from "./hand.mjs";

const GOOD = "rows = 1707\nname = 'orders'\n";
const BROKEN = "rows = 1632\nname = 'orders'\n";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** A run whose second step breaks what its check wants, and goes on for two more calls. */
async function broken(context) {
  const daemon = await Daemon.start(context, () => [
    codon("fetch", [says("I fetch."), writes("out.py", GOOD)]),
    codon("tidy", [
      says("I begin."),
      writes("notes.md", "First.\n"),
      says("I count anew."),
      writes("out.py", BROKEN),
      writes("notes.md", "First.\nSecond.\n"),
    ], { checks: [{ run: "grep -q 1707 out.py" }] }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  context.after(() => page.close());
  const banner = page.getByRole("region", { name: "The step that failed" });
  await banner.waitFor();
  return { daemon, page, faults, banner, hand: new Hand(page) };
}

test("three clicks lead from a red check to the guilty line's transcript", async (context) => {
  const { page, faults, banner, hand } = await broken(context);
  await hand.click(banner.getByRole("button", { name: "Find what broke it" }));
  const dialog = page.getByRole("dialog", { name: "Find what broke it" });
  assert.equal(await dialog.getByLabel("Command").inputValue(), "grep -q 1707 out.py");
  await hand.click(dialog.getByRole("button", { name: "Find it" }));
  const result = dialog.getByRole("region", { name: "What broke it" });
  await dialog.getByRole("list", { name: "Results" }).getByText("fails").first().waitFor();
  await result.getByText("Write out.py").first().waitFor();
  await result.getByText("rows = 1632").waitFor();
  await hand.click(result.getByRole("button", { name: "Show the call" }));
  await page.getByRole("log", { name: "Transcript" }).getByText("I count anew.").waitFor();
  assert.deepEqual(hand.done, { clicks: 3, keys: 0, texts: 0 });
  assert.equal(await dialog.count(), 0);
  assert.deepEqual(faults, []);
});

test("the result leads back to just before the call", async (context) => {
  const { page, faults, hand } = await broken(context);
  await hand.press("w");
  const dialog = page.getByRole("dialog", { name: "Find what broke it" });
  await dialog.getByRole("button", { name: "Find it" }).click();
  await dialog.getByRole("button", { name: "Back to just before it…" }).click();
  await page.getByRole("button", { name: /^Go back/ }).first().waitFor();
  assert.equal(await dialog.count(), 0);
  assert.deepEqual(faults, []);
});

test("a file shows who wrote each line, and a click opens the call", async (context) => {
  const { page, faults, hand } = await broken(context);
  await hand.press("3");
  await page.getByRole("option", { name: /out\.py/ }).click();
  const who = page.getByRole("group", { name: "Who wrote out.py" });
  await who.getByRole("button", { name: /^Line 1: Codon tidy, Write out\.py/ }).waitFor();
  const first = who.getByRole("button", { name: /^Line 2: Codon fetch, Write out\.py/ });
  const [own, other] = await who.getByRole("button").evaluateAll((all) => all.map((each) => getComputedStyle(each).borderLeftColor));
  assert.notEqual(own, other, "each step has its colour");
  await first.click();
  await page.getByRole("log", { name: "Transcript" }).getByText("I fetch.").waitFor();
  assert.deepEqual(faults, []);
});

test("a text is followed to the calls at which it came and went", async (context) => {
  const { page, faults, hand } = await broken(context);
  await hand.press("o");
  const dialog = page.getByRole("dialog", { name: "Where a text came from" });
  await dialog.getByRole("textbox", { name: "Text" }).fill("1707");
  await dialog.getByRole("button", { name: "Search" }).click();
  const changes = dialog.getByRole("list", { name: "Changes of the text" }).getByRole("listitem");
  await changes.first().waitFor();
  assert.match(await changes.nth(0).innerText(), /Went in out\.py/);
  assert.match(await changes.nth(1).innerText(), /Came in out\.py/);
  await changes.nth(1).getByRole("button").click();
  await page.getByRole("log", { name: "Transcript" }).getByText("I fetch.").waitFor();
  assert.deepEqual(faults, []);
});
