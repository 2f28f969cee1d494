/**
 * axe finds nothing in any view, in both schemes, on a phone, a laptop and a large screen. With
 * PHOTOGRAPHS=FOLDER each of them is photographed (`scripts/pictures --views FOLDER`); with
 * PICTURES=FOLDER only those of the documents are (`scripts/pictures --page`).
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isAccessible, launch, open } from "./browser.mjs";
import { Supervised } from "./supervised.mjs";

const { PHOTOGRAPHS, PICTURES } = process.env;
const EDITS = PHOTOGRAPHS || PICTURES ? 16 : 3; // Pictures show a run of its usual length.
const SIZES = [[1280, 800], [1920, 1080], [360, 780]];

let browser;
let run;
let here; // The page and its faults.
before(async () => {
  browser = await launch();
  run = await Supervised.start(browser, EDITS);
  here = await open(browser, run.daemon.page());
  if (PHOTOGRAPHS) mkdirSync(PHOTOGRAPHS, { recursive: true });
});
after(async () => {
  await run?.stop();
  await browser.close();
});

const text = (words) => ({ page }) => page.getByText(words).first();
const dialog = ({ page }) => page.getByRole("dialog");
const row = ({ page }) => page.locator("[role=listbox] [role=option]").first();

/**
 * @param {string} name @param {string | (() => string | Promise<string>)} place what the address names
 * @param {(here: any) => import("playwright-core").Locator} ready what is there when all is
 * @param {{keys?: string[], press?: (here: any) => import("playwright-core").Locator,
 *   repeats?: boolean, picture?: string}} [acts] `picture`: its name in the documents
 */
function view(name, place, ready, { keys = [], press, repeats = false, picture } = {}) {
  test(name, { skip: PICTURES !== undefined && picture === undefined }, async () => {
    const { page, faults } = here;
    await page.setViewportSize({ width: SIZES[0][0], height: SIZES[0][1] });
    const own = typeof place === "string" ? place : await place();
    await page.goto("about:blank"); // Another token is only read at the start of a page.
    await page.goto(own.startsWith("http") ? own : `${run.daemon.page()}${own}`);
    if (!own.startsWith("http")) await page.locator(".step, .executions li").first().waitFor();
    for (const key of keys) await page.keyboard.press(key);
    if (press) await press(here).click();
    await ready(here).waitFor();
    if (PHOTOGRAPHS || PICTURES) await settled(page);
    if (PICTURES) return void (await page.screenshot({ path: join(PICTURES, `ui-${picture}.png`) }));
    for (const [width, height] of SIZES) {
      await page.setViewportSize({ width, height });
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        await isAccessible(page, `${name}, ${colorScheme}, ${width}`, { repeats });
        if (PHOTOGRAPHS) await page.screenshot({ path: join(PHOTOGRAPHS, `${name.replaceAll(" ", "-")}-${colorScheme}-${width}.png`) });
      }
    }
    await page.emulateMedia({ colorScheme: "light" });
    if ((await page.getByRole("dialog").count()) > 0) await page.keyboard.press("Escape");
    assert.deepEqual(faults.splice(0), []);
  });
}

/** Once nothing is written on the page for a while. @param {import("playwright-core").Page} page */
const settled = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve) => {
        let timer = setTimeout(resolve, 1_500);
        new MutationObserver(() => {
          clearTimeout(timer);
          timer = setTimeout(resolve, 1_500);
        }).observe(document.querySelector("#content") ?? document.body, { subtree: true, childList: true });
      }),
  );

const ofStep = (tab) => `&step=index${tab ? `&tab=${tab}` : ""}`;
const sha = (codonId) =>
  run.hand.evaluate((id) => {
    const codons = globalThis.store.state.runs.flatMap((each) => each.codons);
    return codons.find((each) => each.codonId === id).completionCheckpoint;
  }, codonId);
const moment = async () => `&checkpoint=${await sha("tax")}`;

describe("while an agent asks", () => {
  view("a question", "", text("out/summary.md"), { picture: "question" });
  view("the reason of a denial", "", dialog, { keys: ["d"] });
  view("the rule of always", "", dialog, { press: ({ page }) => page.getByRole("button", { name: "change the rule" }) });
});

describe("while a step waits for a limit", () => {
  before(() => run.reach("waits"));
  view("a wait", "", text("Continue now"));
});

describe("while a step works", () => {
  before(() => run.reach("runs"));
  view("a run at work", "", text("git push"), { picture: "live" });
  view("stopping a step", "", dialog, { keys: ["x"] });
  view("skipping a step", "", dialog, { keys: ["s"] });
});

describe("after a failure", () => {
  before(() => run.reach("failed"));
  view("a failure", "", text("1 failed, 41 passed"), { picture: "failure" });
  view("a transcript", ofStep(), text("one rule at a time"));
  view("changes of a step", ofStep("changes"), text("src/index.py"));
  view("a file in two places", ofStep("changes"), ({ page }) => page.locator(".opened .diff td").first(), {
    press: ({ page }) => page.locator("aside button.file").first(),
  });
  view("files of a step", ofStep("files"), text("parse.py"));
  view("checkpoints of a step", ofStep("checkpoints"), row);
  view("events of a step", ofStep("events"), row);
  view("events of the run", "&tab=events", row);
  view("the past", moment, text("tax"), { picture: "past" });
  view("choosing what to compare", moment, text("Choose the checkpoint to compare"), { keys: ["V"] });
  view("a comparison", async () => `&compare=${await sha("infer")}..${await sha("tax")}`, ({ page }) => page.locator(".comparison .d2h-ins").first());
  view("a comparison with now", moment, ({ page }) => page.locator(".comparison .change").first(), { keys: ["v"] });
  view("the state", moment, dialog, { press: ({ page }) => page.getByRole("button", { name: "state…" }) });
  view("a file of the past", async () => `${await moment()}&path=src/tax.py`, text("def tax_0"));
  view("an event", "&event=40", dialog);
  view("the prompt", ofStep(), dialog, { press: ({ page }) => page.getByRole("button", { name: "prompt" }) });
  view("going back", "", text("out/check.json"), { keys: ["z"], picture: "rollback" });
  view("going back with some files", "", ({ page }) => page.getByRole("checkbox").nth(1), {
    keys: ["z"],
    press: ({ page }) => page.getByRole("button", { name: "Only some files…" }),
  });
  view("retrying", "", dialog, { keys: ["r"] });
  view("the cost", "", ({ page }) => page.getByRole("img", { name: /Cost rose/ }), { keys: ["$"] });
  view("the commands", "", dialog, { keys: ["Control+k"] });
  view("the keys", "", dialog, { keys: ["?"] });
  view("taking a checkpoint", "", dialog, { keys: ["c"] });
  view("a branch", moment, dialog, { keys: ["b"] });
  view("pinning", moment, dialog, { keys: ["p"] });
  view("the executions", "&view=executions", ({ page }) => page.locator(".executions li").first());
  view("a new run", "&view=executions", dialog, { keys: ["n"] });
  view("a link that may only look", () => run.daemon.page("viewer"), text("This link is read-only."));
  view("a token that does not hold", () => `${run.daemon.page()}x`, ({ page }) => page.getByLabel(/Token/));
  view("the components", () => `${run.daemon.page().split("#")[0]}gallery.html`, text("Components"), { repeats: true });
});

const FEATURE = new URL("../../server/hankweave_server/features/exploration", import.meta.url);
describe("after an exploration", { skip: !existsSync(FEATURE) }, () => {
  before(() => run.explore());
  const attempts = "&step=check&tab=attempts";
  view("the attempts", attempts, text("strip the blanks"));
  view("adopting", attempts, dialog, { press: ({ page }) => page.getByRole("button", { name: /^Adopt/ }) });
  view("discarding", attempts, dialog, { press: ({ page }) => page.getByRole("button", { name: /^Discard/ }) });
});

describe("after going back", () => {
  before(() => run.goBack());
  view("undoing", "", text("return to earlier content"), { keys: ["u"] });
});
