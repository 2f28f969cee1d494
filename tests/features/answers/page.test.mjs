/** Who wrote a line, which call broke something, and when a text came, as a person finds it on the page. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, watch, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { isAccessible, launch, open } from "../../browser/browser.mjs";
import { Daemon, codon, says, writes } from "../../browser/daemon.mjs";
import { Hand } from "../../browser/hand.mjs";

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

const noticeOf = (page) => page.getByRole("region", { name: "Search for the first failure of " });

test("a search that another client has begun is shown with its result", async (context) => {
  const { daemon, page, faults } = await broken(context);
  const other = await open(browser, daemon.page());
  context.after(() => other.page.close());
  const gate = join(daemon.folder, "gate");
  const command = `while [ ! -e ${gate} ]; do sleep 0.05; done; grep -q 1707 out.py`;
  await other.page.getByRole("button", { name: "Find what broke it" }).click();
  const asking = other.page.getByRole("dialog", { name: "Find what broke it" });
  await asking.getByLabel("Command").fill(command);
  await asking.getByRole("button", { name: "Find it" }).click();
  const notice = noticeOf(page);
  await notice.getByText("Searching for the first failure of").waitFor();
  await notice.getByRole("button", { name: "Stop the search" }).waitFor();
  writeFileSync(gate, "");
  await notice.getByText("It first failed after Write out.py").waitFor();
  assert.equal(await notice.getByRole("button", { name: "Stop the search" }).count(), 0);
  await notice.getByRole("button", { name: "Show the search" }).click();
  const dialog = page.getByRole("dialog", { name: "Find what broke it" });
  await dialog.getByText("The last search was for the first failure of").waitFor();
  await dialog.getByRole("list", { name: "Results" }).getByText("fails").first().waitFor();
  await dialog.getByRole("region", { name: "What broke it" }).getByText("rows = 1632").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await notice.count(), 0, "what was looked at is not announced again");
  assert.deepEqual([...faults, ...other.faults], []);
});

test("a search of a check that began before the page was opened is shown, and stopped from there", async (context) => {
  const daemon = await Daemon.start(context, (folder) => [
    codon("tidy", [writes("out.py", GOOD), writes("out.py", BROKEN)], {
      checks: [{ run: "grep -q 1707 out.py", onFailure: { bisect: `touch ${join(folder, "began")}; sleep 600` } }],
    }),
  ]);
  await appears(join(daemon.folder, "began"));
  const { page, faults } = await open(browser, daemon.page());
  context.after(() => page.close());
  const notice = noticeOf(page);
  await notice.getByText("Searching for the first failure of").waitFor();
  await isAccessible(page, "a search that runs");
  await notice.getByRole("button", { name: "Show the search" }).click();
  const dialog = page.getByRole("dialog", { name: "Find what broke it" });
  await dialog.getByText("A search is running for the first failure of").waitFor();
  await dialog.getByRole("button", { name: "Stop", exact: true }).click();
  await dialog.getByText("It was stopped.").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("region", { name: "The step that failed" }).waitFor();
  assert.deepEqual(faults, []);
});

/** Waits until there is a file. */
async function appears(path) {
  const watcher = watch(dirname(path));
  try {
    while (!existsSync(path)) await once(watcher, "change");
  } finally {
    watcher.close();
  }
}

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
