/** The page of `hankweave report`, and the places in the page that its links open. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { COMMAND, Daemon, codon, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shown = (page, text) => page.getByText(text).first().waitFor();

/** Two codons that are done; the second one has left a file whose name would be a script. */
async function reported(context, ...options) {
  const mischief = "<img src=x onerror=alert(1)>.txt";
  const daemon = await Daemon.start(context, () => [
    codon("one", [writes("a.txt", "a\n"), { cost: 0.5 }]),
    codon("two", [writes(mischief, "b\n")]),
  ]);
  const { page } = await open(browser, daemon.page());
  await ended(page);
  await page.close();
  const file = join(daemon.folder, "report.html");
  execFileSync(COMMAND, ["report", daemon.execution, "--output", file, ...options]);
  return { daemon, address: pathToFileURL(file).href, mischief };
}

test(
  "the report is readable in light, in dark, on a phone and in print, and runs no script",
  async (context) => {
    const { address, mischief } = await reported(context);
    for (const [scheme, width] of [
      ["light", 1280],
      ["dark", 1280],
      ["light", 360],
    ]) {
      const { page, faults } = await open(browser, address, {
        scheme,
        size: { width, height: 800 },
      });
      await shown(page, mischief);
      const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(back === "rgb(255, 255, 255)", scheme === "light");
      const overflow = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      assert.equal(overflow, 0, `${width} pixels`);
      assert.equal(await page.locator("script, img").count(), 0);
      assert.deepEqual(faults, []);
      await isAccessible(page, `the report, ${scheme}`);
      await page.close();
    }

    const { page } = await open(browser, address, { scheme: "dark" });
    assert.ok((await page.pdf()).length > 10_000);
    await page.emulateMedia({ media: "print" });
    const printed = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(printed, "rgb(255, 255, 255)");
  },
);

test(
  "its links open the page at an event and at a checkpoint",
  async (context) => {
    const { address } = await reported(context, "--link-token");
    const { page, faults } = await open(browser, address);
    const links = (part) => page.locator(`a[href*="${part}="]`).first().getAttribute("href");
    const [event, checkpoint, live] = [
      await links("event"),
      await links("checkpoint"),
      await links("view"),
    ];

    await page.goto(event);
    const seq = /event=(\d+)/.exec(event)?.[1];
    await page.getByRole("dialog", { name: `Event ${seq}: file.updated` }).waitFor();

    await page.goto(checkpoint); // Only the fragment differs: the page is not loaded again.
    const sha = /checkpoint=([0-9a-f]{40})/.exec(checkpoint)?.[1] ?? "";
    await page.getByRole("region", { name: "The past" }).locator(`[title*="${sha}"]`).waitFor();
    assert.equal(await page.getByRole("dialog").count(), 0);

    await page.goto(live);
    await page.getByRole("tab", { name: "Transcript", selected: true }).waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  "without a token, a link asks for it, and then opens its place",
  async (context) => {
    const { daemon, address } = await reported(context);
    const { page } = await open(browser, address);
    assert.ok(!(await page.content()).includes("token="));
    await page.goto((await page.locator('a[href*="event="]').first().getAttribute("href")) ?? "");
    await page.getByLabel(/^Token/).fill(daemon.token("viewer"));
    await page.getByRole("button", { name: "Connect" }).click();
    await page.getByRole("dialog", { name: /^Event \d+: file.updated/ }).waitFor();
  },
);
