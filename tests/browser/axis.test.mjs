/** Time as an axis, the past that is chosen on it, and the comparison of any two moments. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { addressOf, ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, waitsFor, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const strip = (page) => page.getByRole("slider", { name: "Time" });
const banner = (page) => page.getByRole("region", { name: "The past" });
const words = (page) => strip(page).getAttribute("aria-valuetext");
const lines = (n) => Array.from({ length: n }, (_, at) => `line ${at}\n`).join("");

const hank = (folder) => [
  codon("one", [says("I begin."), writes("z.txt", lines(1)), { wait: 0.5 }, writes("a.txt", lines(2)), { wait: 0.5 }, writes("y.txt", lines(3))], { name: "First" }),
  codon("two", [writes("b.txt", lines(1)), writes("x.txt", lines(2))], { name: "Second" }),
  codon("three", [writes("c.txt", lines(1)), says("I wait."), waitsFor(join(folder, "gate"))], { name: "Third" }),
];

/** A page at a run that waits, with all of its checkpoints. */
async function running(context, options = {}) {
  const daemon = await Daemon.start(context, hank);
  const { page, faults } = await open(browser, daemon.page(), options);
  await page.getByText("I wait.").first().waitFor({ state: "attached" });
  return { daemon, page, faults, end: () => writeFileSync(join(daemon.folder, "gate"), "") };
}

/** Where the tick of a checkpoint is, by the words of the slider at it; the pointer stays there. */
async function tickOf(page, pattern, y = 32) {
  const box = await strip(page).boundingBox();
  for (let x = 16; x < box.width - 16; x += 3) {
    await page.mouse.move(box.x + x, box.y + y);
    if (pattern.test(await words(page))) return { x, y };
  }
  throw new Error(`no tick says ${pattern}`);
}

test("a tick is named by what it holds, and a click shows its moment: its step at that call, its files, what came since", async (context) => {
  const { page, faults, end } = await running(context);
  assert.equal(await words(page), "the present");
  const position = await tickOf(page, /^Write a\.txt \+2.*after a tool call.*First$/);
  await page.locator(".axis-name", { hasText: "Write a.txt +2" }).waitFor();
  await strip(page).click({ position });
  await banner(page).getByText("Write a.txt +2").waitFor();
  await banner(page).getByText("First").waitFor();
  await banner(page).getByText(/\d checkpoints since · 4 files differ from now/).waitFor();
  await page.locator("#content").getByRole("heading", { name: "First" }).waitFor();
  await page.locator(".block.found", { hasText: "a.txt" }).waitFor();
  assert.equal(await page.locator(".step[aria-current=true] .name").innerText(), "First");
  await page.locator("aside h2", { hasText: /until/ }).waitFor();
  assert.deepEqual(await page.locator("aside .change .path").allInnerTexts(), ["a.txt", "z.txt"]);
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await isAccessible(page, `the past, ${scheme}`);
  }

  // Its files, and what it changed, are those of then.
  await page.keyboard.press("3");
  await page.getByRole("option", { name: /a\.txt/ }).click();
  await page.getByLabel("Content of a.txt").getByText("line 1").waitFor();
  assert.equal(await page.getByRole("option", { name: /b\.txt/ }).count(), 0);
  await page.keyboard.press("2");
  await page.locator(".changes summary").first().waitFor();
  assert.match(await page.locator(".changes > .hint").innerText(), /1 file, \+2/);
  await button(page, "Since the step began").click();
  await page.locator(".changes > .hint", { hasText: "2 files, +3" }).waitFor();

  // Back to the present, with a key, by Back, and with a button.
  await page.keyboard.press("Escape");
  await banner(page).waitFor({ state: "detached" });
  await page.locator("#content").getByRole("heading", { name: "Third" }).waitFor();
  await page.goBack();
  await banner(page).getByText("Write a.txt +2").waitFor();
  await button(page, /^Live/).click();
  await banner(page).waitFor({ state: "detached" });
  end();
  await ended(page);
  assert.deepEqual(faults, []);
});

test("the axis is a slider: arrows go from checkpoint to checkpoint, pages from step to step, Enter shows", async (context) => {
  const { page, faults, daemon } = await running(context);
  await strip(page).focus();
  await page.keyboard.press("Home");
  assert.match(await words(page), /the beginning/);
  assert.equal(await strip(page).getAttribute("aria-valuenow"), "1");
  await page.keyboard.press("PageUp");
  assert.match(await words(page), /codon completed.*First/);
  await page.keyboard.press("ArrowLeft");
  assert.match(await words(page), /^Write y\.txt/);
  assert.equal(await banner(page).count(), 0, "nothing is shown before it is chosen");
  await page.keyboard.press("Enter");
  await banner(page).getByText("Write y.txt").waitFor();
  await page.keyboard.press("End");
  assert.equal(await words(page), "the present");
  await page.keyboard.press("Escape");
  assert.match(await words(page), /^Write y\.txt/);
  await page.keyboard.press("[");
  await page.keyboard.press("]");
  await banner(page).getByText("Write y.txt").waitFor();

  // A branch begins here, and the way back is one key away.
  await page.keyboard.press("b");
  await page.getByRole("dialog", { name: /^Branch from/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.getByRole("dialog").getByText("go away 3 files").waitFor();
  await page.keyboard.press("Escape");
  await banner(page).getByText("Write y.txt").waitFor();
  const { page: linked } = await open(browser, `${daemon.page()}&checkpoint=${new URL(await addressOf(page)).hash.match(/checkpoint=(\w+)/)[1]}`);
  await banner(linked).getByText("Write y.txt").waitFor();
  assert.deepEqual(faults, []);
});

test("any two checkpoints are compared: on the axis, in the list, and with now; Back returns", async (context) => {
  const { page, faults, end } = await running(context);
  end();
  await ended(page);
  const title = page.getByRole("heading", { name: "Comparison" });
  const first = await tickOf(page, /the beginning/);
  await strip(page).click({ position: first });
  await banner(page).waitFor();
  const second = await tickOf(page, /^Write b\.txt/);
  await strip(page).click({ position: second, modifiers: ["Shift"] });
  await title.waitFor();
  await page.locator(".comparison .change", { hasText: "b.txt" }).waitFor();
  assert.deepEqual(await page.locator(".comparison .change .path").allInnerTexts(), ["a.txt", "b.txt", "y.txt", "z.txt"]);
  assert.match(await addressOf(page), /&compare=[0-9a-f]{40}\.\.[0-9a-f]{40}$/);
  assert.equal(await page.getByRole("complementary").count(), 0, "the files of a step are beside no comparison");
  const url = await addressOf(page);
  await isAccessible(page, "a comparison");
  await button(page, "With now").click();
  await page.locator(".comparison .change", { hasText: "c.txt" }).waitFor();
  assert.match(await addressOf(page), /\.\.now$/);
  await page.goBack();
  await page.locator(".comparison .change", { hasText: "c.txt" }).waitFor({ state: "detached" });
  assert.equal(await addressOf(page), url);
  await page.goBack();
  await title.waitFor({ state: "detached" });
  await banner(page).waitFor();
  await page.goForward();
  await title.waitFor();
  await page.keyboard.press("Escape");
  await title.waitFor({ state: "detached" });

  // From one to the other, with the button of the mouse down.
  const { x, y } = await strip(page).boundingBox();
  await page.mouse.move(x + first.x, y + first.y);
  await page.mouse.down();
  await page.mouse.move(x + second.x, y + second.y);
  await page.mouse.up();
  await title.waitFor();
  assert.equal(await addressOf(page), url);
  await page.keyboard.press("Escape");

  // With a button, and then by a click in the list.
  await page.keyboard.press("4");
  await button(page, "All").click();
  const ended_ = (/** @type {string} */ step) => page.getByRole("option", { name: new RegExp(`codon completed.*${step}`) });
  await ended_("First").click();
  await button(page, /^Compare with…/).click();
  await banner(page).getByText("Choose the checkpoint to compare").waitFor();
  await isAccessible(page, "the choice of the other one");
  await ended_("Second").click();
  await title.waitFor();
  await page.locator(".comparison .change", { hasText: "b.txt" }).waitFor();
  assert.equal(await page.locator(".comparison .change").count(), 2);

  // With the link of its row; and the two are found by their words.
  const { hash } = new URL(await addressOf(page));
  await page.keyboard.press("Escape");
  await title.waitFor({ state: "detached" });
  await ended_("Second").waitFor();
  await page.keyboard.press("/");
  await page.locator("#find:focus").waitFor();
  await page.keyboard.type("completed sec");
  await page.locator("#of-step .counted", { hasText: /^1 of / }).waitFor();
  await ended_("Second").getByText("compare", { exact: true }).click();
  await title.waitFor();
  assert.match(await addressOf(page), new RegExp(`${/** @type {RegExpMatchArray} */ (hash.match(/compare=[0-9a-f.]+/))[0]}$`));
  assert.deepEqual(faults, []);
});

test("what was rolled back lies in a lane of its own; failures, answers and what people did are marked", async (context) => {
  const daemon = await Daemon.start(context, () => [
    codon("one", [writes("a.txt", "1\n"), writes("b.txt", "2\n")], { name: "First" }),
    codon("two", [writes("c.txt", "3\n")], { name: "Second", permissions: { otherwise: "ask" } }),
    codon("bad", [writes("d.txt", "4\n"), { fail: { message: "It is broken." } }], { name: "Bad" }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  await page.locator(".mark", { hasText: "asks: Write" }).waitFor();
  await button(page, /^Allow once/).click();
  await page.locator(".mark", { hasText: "failed" }).waitFor();
  await page.locator(".mark.r-person").first().waitFor();
  await page.keyboard.press("c");
  await page.getByLabel(/Label/).fill("mine");
  await button(page, "Take it").click();
  await page.locator(".tick.t-person").waitFor({ state: "attached" });
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".work.is-left").count(), 0);

  await page.locator(".step", { hasText: "Second" }).click();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("back to before second");
  await page.keyboard.press("Enter");
  await button(page, /^Go back/).click();
  await page.getByText(/^Rolled back/).first().waitFor();
  await page.locator(".side-name", { hasText: /rolled back, \d checkpoints/ }).waitFor();
  assert.ok((await page.locator(".work.is-left").count()) > 0);
  assert.equal(await page.locator(".mark", { hasText: "failed" }).count(), 0, "it leads nowhere now");
  await page.keyboard.press("l");
  await strip(page).click({ position: await tickOf(page, /^Write d\.txt/, 56) });
  await banner(page).getByText("rolled back").waitFor();
  await isAccessible(page, "what was rolled back");
  assert.deepEqual(faults, []);
});

test("what is still to come is dashed, and a click on the present is live", async (context) => {
  const daemon = await Daemon.start(context, (folder) => [
    codon("one", [writes("a.txt", "1\n"), { wait: 0.5 }], { name: "First" }),
    codon("two", [says("I wait."), waitsFor(join(folder, "gate"))], { name: "Second" }),
    codon("three", [writes("c.txt", "1\n")], { name: "Third" }),
  ]);
  const { page, faults } = await open(browser, daemon.page());
  await page.getByText("I wait.").first().waitFor();
  await page.locator(".ahead").first().waitFor();
  await page.keyboard.press("[");
  await banner(page).waitFor();
  const { width } = await strip(page).boundingBox();
  await strip(page).click({ position: { x: width - 20, y: 32 } });
  await banner(page).waitFor({ state: "detached" });
  writeFileSync(join(daemon.folder, "gate"), "");
  await ended(page);
  await page.locator(".ahead").first().waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
});

test("on a phone the axis waits behind a button", async (context) => {
  const { page, faults } = await running(context, { scheme: "dark", size: { width: 360, height: 780 } });
  assert.equal(await strip(page).isVisible(), false);
  await button(page, "Time").click();
  await strip(page).waitFor();
  await strip(page).click({ position: await tickOf(page, /^Write a\.txt/) });
  await banner(page).getByText("Write a.txt").waitFor();
  await isAccessible(page, "the past on a phone");
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `${wider} pixels too wide`);
  assert.deepEqual(faults, []);
});
