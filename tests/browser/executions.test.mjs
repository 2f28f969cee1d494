/** The index of executions: who needs a person comes first, and a row leads to that server's page. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, waitsFor, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const row = (page, name) => page.getByRole("button", { name });
const never = (folder) => waitsFor(join(folder, "never"));

/** Runs a hank for three regions, of which one fails. */
async function mapThreeRegions(daemon) {
  const { folder } = daemon;
  const hank = join(folder, "regions");
  mkdirSync(hank);
  const fails = { run: "grep -q south {{map.input}} && kill -9 $PPID || true" };
  const meta = { name: "Earthquakes by region", version: "1.0.0" };
  writeFileSync(join(hank, "hank.json"), JSON.stringify({ meta, hank: [codon("observe", [fails, { cost: 0.5 }])] }));
  const inputs = ["north", "south", "west"].map((region) => join(folder, `${region}.csv`));
  for (const input of inputs) writeFileSync(input, input);
  return daemon.command("map", hank, ...inputs, "--confinement=none");
}

/** Three servers of one user: one works, one asks, and one has failed; and a map that has ended. */
async function three(context) {
  const state = mkdtempSync(join(tmpdir(), "hankweave-state-"));
  context.after(() => rmSync(state, { recursive: true, force: true }));
  const done = (id) => codon(id, [says("Done.")]);
  const start = (name, hank) => Daemon.start(context, hank, [], { name, state });
  const works = await start("Docs refresh", (folder) => [
    done("outline"),
    codon("guide", [says("I rewrite the guide."), never(folder)], { name: "Rewrite the guide" }),
    done("index"),
  ]);
  assert.equal((await mapThreeRegions(works)).code, 1);
  await start("Orders to model", () => [
    ...["fetch", "profile"].map(done),
    codon("check", [writes("out/summary.md", "x")], { name: "Check every row", permissions: { otherwise: "ask" } }),
    done("report"),
  ]);
  await start("Decimal migration", () => [
    done("migrate"),
    codon("tests", [{ cost: 0.75 }, { fail: { message: "3 of 41 tests failed" } }], { name: "Run the tests" }),
    done("publish"),
  ]);
  return works;
}

/** A map is one row until it is clicked, and then again. */
async function opensAndCloses(page, map) {
  for (const shown of ["2 of 3", "$1.00", "1 of 3 inputs failed"]) assert.ok((await map.innerText()).includes(shown), shown);
  assert.equal(await row(page, /^north\.csv/).count(), 0);
  await map.click();
  await row(page, /^north\.csv ?, completed/).waitFor();
  await row(page, /^west\.csv ?, completed/).waitFor();
  await row(page, /^south\.csv ?, (failed|crashed)/).waitFor();
  await isAccessible(page, "an open map");
  await map.click();
  await row(page, /^north\.csv/).waitFor({ state: "detached" });
}

test("the index shows first who needs a person, a map as one row that opens, and leads there and back", async (context) => {
  const daemon = await three(context);
  const { page, faults } = await open(browser, daemon.page());
  await page.getByText("I rewrite the guide.").first().waitFor();
  await page.getByRole("button", { name: "Executions" }).click();
  await row(page, /Orders to model.*waits for you/).waitFor();
  await row(page, /Decimal migration.*failed/).waitFor();
  await row(page, /Docs refresh.*running/).waitFor();
  const names = await page.locator(".executions .hank b").allTextContents();
  assert.deepEqual(names, ["Orders to model", "Decimal migration", "Earthquakes by region", "Docs refresh"]);
  await page.getByText("4 here · 3 need you").waitFor();
  await page.getByText("Check every row · waits for you: Write out/summary.md").waitFor();
  await page.getByText("today $1.75").waitFor();
  const rows = await page.locator(".executions .progress").all();
  for (const each of rows) {
    const { value, max } = await each.getByRole("progressbar").evaluate((/** @type {any} */ { value, max }) => ({ value, max }));
    assert.equal(await each.locator(".so-far").innerText(), `${value} of ${max}`, "a bar is as long as its number");
  }
  assert.match(await row(page, /Orders to model/).innerText(), /4:\d\d left/);
  await isAccessible(page, "the index");
  await page.keyboard.press("n");
  const dialog = page.getByRole("dialog", { name: "New run" });
  await dialog.getByRole("combobox").selectOption({ label: "Decimal migration" });
  await dialog.getByText(/^hankweave run \S+hank\.json$/).waitFor();
  await isAccessible(page, "how to start a run");
  await page.keyboard.press("Escape");
  await opensAndCloses(page, row(page, /Earthquakes by region.*map of 3 inputs/));
  if (process.env.PICTURES) {
    await page.mouse.move(0, 0);
    await page.screenshot({ path: join(process.env.PICTURES, "ui-executions.png"), clip: { x: 0, y: 0, width: 1280, height: 320 } });
  }
  await page.emulateMedia({ colorScheme: "dark" });
  await isAccessible(page, "the index, dark");
  await page.setViewportSize({ width: 360, height: 800 });
  await isAccessible(page, "the index on a phone");
  assert.equal(await page.evaluate(() => document.querySelector(".executions").scrollWidth), 360);
  await page.setViewportSize({ width: 1280, height: 800 });

  await page.keyboard.press("/");
  await page.keyboard.type("decimal tests");
  await row(page, "Orders to model").waitFor({ state: "detached" });
  await page.getByText("1 here · 1 needs you").waitFor();
  await page.getByRole("searchbox").fill("");
  await row(page, "Orders to model").click();
  await page.getByRole("region", { name: "Permission for Write" }).waitFor();
  assert.notEqual(new URL(page.url()).port, String(daemon.port));
  await page.goBack();
  await row(page, "Docs refresh").click();
  await page.getByText("I rewrite the guide.").first().waitFor();
  assert.equal(new URL(page.url()).hash, `#token=${daemon.token()}`);
  assert.deepEqual(faults, []);
});

test("a link that may only look leads to no other execution", async (context) => {
  const daemon = await Daemon.start(context, () => [codon("one", [says("Here.")])]);
  const { page, faults } = await open(browser, daemon.page("viewer"));
  await page.getByText("This link is read-only.").first().waitFor();
  assert.equal(await page.getByRole("button", { name: "Executions" }).count(), 0);
  await page.goto(`${daemon.page("viewer")}&view=executions`);
  await page.getByText("A readonly client may not send executions.list.").waitFor();
  assert.deepEqual(faults, []);
});
