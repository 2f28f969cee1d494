/** The frame: what it says at a glance, its keys, its address, and what calls a person. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addressOf, ended, isAccessible, launch, open } from "./browser.mjs";
import { COMMAND, Daemon, codon, says, waitsFor, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shown = (page, text) => page.getByText(text).first().waitFor();
const many = (n) => Array.from({ length: n }, (_, at) => codon(`part-${at}`, [writes(`f${at}.txt`, `${at}\n`), { cost: 0.25 }], { name: `Part ${at}` }));
const loop = (...codons) => ({ type: "loop", id: "rounds", name: "Rounds", terminateOn: { type: "iterationLimit", limit: 3 }, codons });
const isInSight = (locator) =>
  locator.evaluate((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight && document.elementFromPoint(200, (top + bottom) / 2) !== null;
  });

test("the failed step is first: in the title, the icon, a banner with its ways out, and in sight", async (context) => {
  const daemon = await Daemon.start(context, () => [
    ...many(22),
    codon("check", [writes("half.txt", "half\n"), { fail: { message: "expected 1,707 rows, got 1,632.\nat test_rows.py:12" } }], { name: "Check every row" }),
    ...Array.from({ length: 20 }, (_, at) => codon(`late-${at}`, [says("late")])),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  const banner = page.getByRole("region", { name: "The step that failed" });
  await banner.getByText("expected 1,707 rows, got 1,632.").waitFor();
  assert.match(await page.title(), /^\(!\) failed: /);
  assert.equal(await page.locator("link[rel=icon]").getAttribute("href"), "favicon-failed.svg");
  assert.match(await page.locator(".advance").innerText(), /^23 of 43/);
  assert.ok(await isInSight(page.locator(".step.s-failed")), "the failed step is in sight");
  await isAccessible(page, "a failure");

  // The keys on the banner do what it says, whatever is selected.
  await page.locator(".step", { hasText: "Part 21" }).click();
  await page.keyboard.press("z");
  await page.getByRole("dialog", { name: "Back to before Check every row" }).getByRole("button", { name: /^go away\s+1 file/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("r");
  await page.getByRole("dialog", { name: "Retry Check every row" }).waitFor();
  assert.ok(existsSync(join(daemon.workTree, "half.txt")), "nothing starts without its dialog");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Check every row" }).waitFor();

  // One that has not begun has changed nothing.
  await page.getByRole("tab", { name: "Changes 1" }).waitFor();
  await page.locator(".step", { hasText: "Codon late-0" }).first().click();
  await page.getByText("This step has not begun yet.").waitFor();
  await page.getByRole("tab", { name: "Changes", exact: true }).waitFor();
  assert.deepEqual(faults, []);
});

test("Back returns to the step that was looked at before, and a link opens its place", async (context) => {
  const daemon = await Daemon.start(context, () => [...many(2), loop(codon("review", [says("Good.")], { name: "Review" }))]);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  const entries = () => page.evaluate(() => history.length);
  const first = await entries();
  const heading = (name) => page.locator("#content").getByRole("heading", { name, exact: true });
  await page.locator(".step", { hasText: "Part 0" }).click();
  await heading("Part 0").waitFor();
  await page.locator(".step", { hasText: "Part 1" }).click();
  await page.keyboard.press("5");
  await page.getByRole("tab", { name: "Events", selected: true }).waitFor();
  assert.match(await addressOf(page), /#token=[^&]+&step=part-1&tab=events$/);
  assert.equal(await entries(), first + 3);
  await page.goBack();
  await page.getByRole("tab", { name: "Transcript", selected: true }).waitFor();
  await page.goBack();
  await heading("Part 0").waitFor();

  // However late the browser paints: the connection may be open by then.
  const late = await browser.newContext();
  context.after(() => late.close());
  await late.addInitScript(() => {
    const { requestAnimationFrame: draw, setTimeout: wait } = globalThis;
    globalThis.requestAnimationFrame = (act) => wait(() => draw(act), 1_000);
    globalThis.setTimeout = (act, ms = 0, ...rest) => wait(act, ms + 1_000, ...rest);
  });
  const link = `${daemon.page()}&step=review%231`;
  const { page: other } = await open(browser, link, { within: late });
  await other.locator("#content").getByRole("heading", { name: "Review, round 2" }).waitFor();
  assert.ok(other.url().endsWith("&step=review%231"));
  assert.deepEqual(faults, []);
});

test("a loop is one line until it is unfolded, and the field filters the steps", async (context) => {
  const daemon = await Daemon.start(context, () => [...many(2), loop(codon("review", [says("Good.")], { name: "Review" })), codon("last", [says("Done.")])]);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  const names = () => page.locator(".step .name").allInnerTexts();
  assert.deepEqual(await names(), ["Part 0", "Part 1", "Review ×3", "round 3, passed", "Codon last"]);
  await page.locator(".step", { hasText: "Review ×3" }).click();
  await page.locator(".step", { hasText: "round 1, passed" }).waitFor();
  await page.locator(".step", { hasText: "Review ×3" }).focus();
  await page.keyboard.press("f");
  await page.getByRole("searchbox", { name: "Filter the steps" }).fill("part");
  await page.waitForFunction(() => document.querySelectorAll(".step").length === 2);
  await page.getByRole("searchbox", { name: "Filter the steps" }).fill("");
  await page.locator(".step", { hasText: "Part 0" }).click();
  await page.keyboard.press("ArrowDown");
  await page.locator("#content").getByRole("heading", { name: "Part 1" }).waitFor();
  assert.deepEqual(faults, []);
});

test("a permission is answered by one key, after its difference was seen", async (context) => {
  const ask = { permissions: { otherwise: "ask" } };
  const daemon = await Daemon.start(context, (folder) => [
    codon("first", [writes("a.txt", "one\ntwo\n")]),
    codon("second", [writes("a.txt", "one\n2\n"), writes("b.txt", "b\n"), says("I go on."), waitsFor(join(folder, "gate"))], { name: "Second", ...ask }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  const asked = page.getByRole("region", { name: "Permission for Write" });
  await asked.getByText("a.txt", { exact: true }).waitFor();
  await page.getByRole("log", { name: "Transcript" }).locator(".of-minus", { hasText: "two" }).waitFor();
  assert.match(await page.title(), /^\(!\) approve: /);
  assert.equal(await page.locator("link[rel=icon]").getAttribute("href"), "favicon-waiting.svg");
  await page.locator(".step.s-waiting", { hasText: "Second" }).waitFor();
  await page.keyboard.press("a");
  await asked.getByText("b.txt", { exact: true }).waitFor();
  assert.equal(readFileSync(join(daemon.workTree, "a.txt"), "utf-8"), "one\n2\n");
  await page.keyboard.press("d");
  await page.getByLabel(/Reason/).fill("Not this one.");
  await page.keyboard.press("Enter");
  await asked.waitFor({ state: "detached" });
  assert.ok(!existsSync(join(daemon.workTree, "b.txt")));
  await page.waitForFunction(() => !document.title.startsWith("(!)"));
  await page.keyboard.press("5");
  await page.getByRole("searchbox", { name: "Search" }).fill("Not this one.");
  await page.getByRole("listbox", { name: "Events" }).getByRole("option", { name: /Write was denied by a person\. Not this one\./ }).first().waitFor();
  writeFileSync(join(daemon.folder, "gate"), "");
  assert.deepEqual(faults, []);
});

test("the palette finds commands and steps, and the colours can be chosen", async (context) => {
  const daemon = await Daemon.start(context, () => many(3));
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const white = await back();
  for (const _ of ["light", "dark"]) {
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").fill("colours");
    await page.keyboard.press("Enter");
  }
  assert.notEqual(await back(), white);
  await page.reload();
  await ended(page);
  assert.notEqual(await back(), white, "they are kept");
  await isAccessible(page, "the dark scheme, chosen");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("show part 2");
  await page.getByRole("option", { name: "Show Part 2" }).click();
  await page.locator("#content").getByRole("heading", { name: "Part 2" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("option", { name: /Skip…/ }).waitFor({ state: "detached" });
  await page.getByRole("combobox").fill("skip");
  await page.getByRole("option", { name: /Skip….*No step is running/ }).waitFor();
  await isAccessible(page, "the palette");
  assert.deepEqual(faults, []);
});

test("on a phone the question and the steps come first, and a step opens over them", async (context) => {
  const daemon = await Daemon.start(context, () => [...many(2), codon("careful", [writes("a.txt", "a\n")], { name: "Careful", permissions: { otherwise: "ask" } })]);
  const { page, faults } = await open(browser, daemon.page(), { scheme: "dark", size: { width: 360, height: 740 } });
  const allow = page.getByRole("button", { name: "Allow once" });
  await allow.waitFor();
  assert.ok(await isInSight(allow));
  assert.ok(await isInSight(page.locator(".step.s-waiting")));
  const { height } = await page.locator(".step").first().boundingBox();
  assert.equal(height, 44);
  await page.locator(".step", { hasText: "Part 1" }).click();
  await page.getByRole("heading", { name: "Part 1" }).waitFor();
  assert.equal(await page.locator(".step").first().isVisible(), false);
  await page.getByRole("button", { name: "Back to the steps" }).click();
  await page.locator(".step").first().waitFor();
  await allow.click();
  await ended(page);
  assert.deepEqual(faults, []);
});

/** A page whose server says this in its answers, as newer ones do; `sent` are the commands. */
async function told(context, hank, { status = {}, asked = {} }, options = {}) {
  const daemon = await Daemon.start(context, hank);
  const own = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.after(() => own.close());
  const page = await own.newPage();
  const sent = [];
  await page.routeWebSocket(/\/ws$/, (near) => {
    const far = near.connectToServer();
    const statuses = new Set();
    near.onMessage((text) => {
      const frame = JSON.parse(text);
      sent.push(frame);
      if (frame.type === "server.status") statuses.add(frame.id);
      if (frame.data?.always === undefined) return far.send(text);
      near.send(JSON.stringify({ type: "command.succeeded", inReplyTo: frame.id, data: null }));
    });
    far.onMessage((text) => {
      const frame = JSON.parse(text);
      if (statuses.has(frame.inReplyTo)) {
        Object.assign(frame.data, status);
        for (const each of frame.data.pendingPermissions ?? []) Object.assign(each, asked);
      }
      if (frame.type === "permission.requested") Object.assign(frame.data, asked);
      near.send(JSON.stringify(frame));
    });
  });
  await page.goto(daemon.page());
  return { daemon, page, sent };
}

const FORECAST = {
  remainingMs: 240_000,
  costAtEnd: 5.9,
  basis: "from 3 earlier runs of a step",
  steps: [{ codonId: "report", ms: 130_000, cost: 0.4 }],
};

test("the forecast, the budget and the rule for a call are shown where the server tells them", async (context) => {
  const hank = (folder) => [
    codon("check", [writes("out/summary.md", "All fit.\n"), waitsFor(join(folder, "gate"))], { name: "Check every row", permissions: { otherwise: "ask" } }),
    codon("report", [says("soon")], { name: "Write the report" }),
  ];
  const status = { forecast: FORECAST, budgetUsd: 25, hankName: "Orders to model" };
  const asked = { suggestion: "Write(out/**)", onExpiry: "deny" };
  const { page, sent } = await told(context, hank, { status, asked });
  await page.getByRole("heading", { name: "Orders to model" }).waitFor();
  await shown(page, /, about 4 min left/);
  await page.getByRole("button", { name: "$0.00 of $25.00 · about $5.90 at the end" }).waitFor();
  const tip = page.getByRole("tooltip").filter({ hasText: "About $5.90 at the end. Estimated from 3 earlier runs of a step." });
  assert.equal(await tip.isVisible(), false);
  await page.locator(".spent").focus();
  await tip.waitFor();
  await page.locator(".worked").hover();
  await page.getByRole("tooltip").filter({ hasText: /About 4 min left, until about \d+:\d\d\. Estimated from/ }).waitFor();
  assert.equal(await page.getByLabel("Budget that is spent").getAttribute("max"), "25");
  await page.getByLabel("Current activity").getByText("Waits for you").waitFor();
  assert.equal(await page.getByLabel("Current activity").getAttribute("title"), "Write out/summary.md");
  const todo = page.locator(".step.s-todo", { hasText: "Write the report" });
  assert.match(await todo.innerText(), /~2:10\s*~\$0\.40/);
  const question = page.getByRole("region", { name: "Permission for Write" });
  await question.getByText(/denied in \d+:\d\d/).waitFor();
  await question.getByRole("button", { name: "Always for Write(out/**)" }).waitFor();
  await isAccessible(page, "a question with a rule");
  await page.keyboard.press("A");
  await shown(page, "Allowed, and always for Write(out/**).");
  const { data } = sent.find((each) => each.type === "permission.answer");
  assert.deepEqual([data.decision, data.always], ["allow", "Write(out/**)"]);
});

test("a rule can be changed before it holds, and the transcript says who has ruled", async (context) => {
  const ask = { permissions: { otherwise: "ask", deny: ["Write(secret.txt)"] } };
  const daemon = await Daemon.start(context, (folder) => [
    codon("one", [writes("out/a.md", "a\n"), writes("out/deep/b.md", "b\n"), writes("secret.txt", "s\n"), { run: "echo one\necho two" }, says("The end."), waitsFor(join(folder, "gate"))], { name: "One", ...ask }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  const asked = page.getByRole("region", { name: "Permission for Write" });
  await asked.getByText(/denied in \d+:\d\d/).waitFor();
  await asked.getByRole("button", { name: "change the rule" }).click();
  const dialog = page.getByRole("dialog", { name: "Always allow Write" });
  const rule = dialog.getByRole("textbox", { name: "Rule" });
  assert.equal(await rule.inputValue(), "Write(out/*)");
  await isAccessible(page, "the rule of an answer");
  await rule.fill("Write(other/**)");
  await page.keyboard.press("Enter");
  await dialog.getByText(/does not allow the call/).waitFor();
  await rule.fill("Write(out/**)");
  await page.keyboard.press("Enter");
  await shown(page, "Allowed by a person, and each Write(out/**) from now on.");
  await shown(page, "Write was denied by the rule Write(secret.txt).");
  assert.ok(existsSync(join(daemon.workTree, "out/deep/b.md")), "the rule holds");
  const command = page.getByRole("region", { name: "Permission for Bash" });
  await command.getByText("echo one …").waitFor();
  await page.getByRole("log", { name: "Transcript" }).getByText("echo two").waitFor();
  await page.keyboard.press("d");
  await page.keyboard.press("Enter");
  await shown(page, "Denied by a person.");
  await page.keyboard.press("5");
  await page.getByRole("listbox", { name: "Events" }).getByRole("option", { name: /Bash/ }).first().waitFor();
  assert.doesNotMatch(await page.locator("body").innerText(), /\\u000a/);
  const at = page.getByRole("listbox", { name: "Events" }).getByRole("option").first().locator("time");
  assert.match(await at.innerText(), /^(now|\d+ s ago)$/);
  assert.match(await at.getAttribute("title"), /\d{4}, \d+:\d\d:\d\d/);
  assert.deepEqual(faults, []);
});

test("what was rolled back was paid: one cost in the status bar, in its dialog and in status", async (context) => {
  const daemon = await Daemon.start(context, () => many(2));
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  await page.locator(".step", { hasText: "Part 1" }).click();
  await page.keyboard.press("z");
  await page.getByRole("dialog", { name: "Back to before Part 1" }).locator("button.main, button.primary").first().click();
  await page.getByRole("button", { name: "$0.50 · $0.25 rolled back" }).click();
  await page.getByRole("dialog", { name: "Cost" }).getByText("$0.50 paid · $0.25 of it rolled back").waitFor();
  const told = spawnSync(COMMAND, ["status", "-v", "-e", daemon.execution], { encoding: "utf-8" });
  assert.match(told.stdout, /\$0\.5000.*of it \$0\.2500 rolled back/);
  assert.deepEqual(faults, []);
});

test("a long name, a budget and estimates leave everything in the status bar", async (context) => {
  const hank = () => [codon("check", [writes("a.txt", "a\n")], { name: "C", permissions: { otherwise: "ask" } })];
  const hankName = "Orders of all the regions to a model that their offices trust";
  const status = { forecast: FORECAST, budgetUsd: 25, hankName };
  const { page } = await told(context, hank, { status });
  await page.getByLabel("Current activity").getByText("Waits for you").waitFor();
  assert.match(await page.locator(".top .name").getAttribute("title"), new RegExp(`^${hankName}\n/`));
  for (const width of [1920, 1280, 1100, 1000, 768, 360]) {
    await page.setViewportSize({ width, height: 740 });
    const out = await page.evaluate(() =>
      [...document.querySelectorAll(".top .pill, .top .spent b, .top .advance b, .top .controls button")]
        .filter((each) => each.checkVisibility())
        .filter((each) => each.getBoundingClientRect().right > innerWidth || each.getBoundingClientRect().left < 0)
        .map((each) => each.className),
    );
    assert.deepEqual(out, [], `${width} pixels`);
    const letters = await page.locator(".top h1").evaluate((name) => {
      const { right } = name.getBoundingClientRect();
      const range = new Range();
      const all = name.firstChild.length;
      const ends = Array.from({ length: all }, (_, at) => {
        range.setStart(name.firstChild, 0);
        range.setEnd(name.firstChild, at + 1);
        return range.getBoundingClientRect().right;
      });
      return ends.filter((each) => each <= right).length;
    });
    assert.ok(letters >= 12, `${letters} letters of the name at ${width} pixels`);
  }
});

test("who has asked for it is notified when a step fails, once", async (context) => {
  const hank = (folder) => [codon("check", [waitsFor(join(folder, "gate")), { fail: { message: "No." } }], { name: "Check" })];
  const { daemon, page } = await told(context, hank, {}, { permissions: ["notifications"] });
  await page.locator(".step.s-running").waitFor();
  await page.evaluate(() => {
    globalThis.seen = [];
    globalThis.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor(title, { body }) {
        globalThis.seen.push(body);
      }
    };
  });
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("notify");
  await page.keyboard.press("Enter");
  await shown(page, "You are notified when a step fails");
  writeFileSync(join(daemon.folder, "gate"), "");
  await page.locator(".step.s-failed").waitFor();
  await page.waitForFunction(() => globalThis.seen.length > 0);
  assert.deepEqual(await page.evaluate(() => globalThis.seen), ["Check failed: No."]);
});

test("a wait for a limit says until when, and can be cut short", async (context) => {
  const daemon = await Daemon.start(context, () => [codon("check", [{ limit: { resetsIn: 3_000 } }, says("On again.")], { name: "Check" })]);
  const { page, faults } = await open(browser, daemon.page());
  await page.getByText(/Check waits for the end of a usage limit, in \d+:\d\d/).waitFor();
  await page.getByLabel("Current activity").getByText("Waits for a usage limit").waitFor();
  await isAccessible(page, "a wait for a limit");
  await page.getByRole("button", { name: "Continue now" }).click();
  await ended(page);
  assert.deepEqual(faults, []);
});
