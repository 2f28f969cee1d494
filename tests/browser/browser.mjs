/** Debian's Chromium, and what every page of every test has to keep: no error, no breach of policy. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
/** Milliseconds, against hanging: it is the machine that says how long it takes. The same for all. */
export const PATIENCE = 180_000;
const OPTIONS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
];

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, headless: true, args: OPTIONS });
}

/**
 * A page of its own; `faults` collects errors of scripts, breaches of the policy, failed requests and
 * dialogs that a script opened. Lost connections are told by the browser as errors, and belong to some tests.
 * `within`: the context of another page, whose files the browser has already read.
 */
export async function open(
  browser,
  address,
  { scheme = "light", size = { width: 1280, height: 800 }, within = null, ...options } = {},
) {
  const context = within ?? (await browser.newContext({ colorScheme: scheme, viewport: size, ...options }));
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("WebSocket connection to"))
      faults.push(message.text());
  });
  page.on("dialog", (dialog) => {
    faults.push(`a script opened a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on(
    "response",
    (response) => response.status() >= 400 && faults.push(`${response.status()} ${response.url()}`),
  );
  await page.goto(address);
  return { page, context, faults };
}

/**
 * Asserts that axe finds nothing. It is put in by the debugger: the page's policy lets no script in.
 * `repeats`: the gallery shows the landmarks of each view once for each of its states.
 */
export async function isAccessible(page, what, { repeats = false } = {}) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(readFileSync(AXE, "utf-8"));
  const rules = repeats ? { "landmark-unique": { enabled: false } } : {};
  const { violations } = await page.evaluate((rules) =>
    globalThis.axe.run(document, { resultTypes: ["violations"], rules }),
    rules,
  );
  const found = violations.map(
    ({ id, help, nodes }) =>
      `${id}: ${help}: ${nodes
        .slice(0, 4)
        .map((node) => `${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`)
        .join(" | ")}`,
  );
  assert.deepEqual(found, [], what);
}

/** Waits until the status bar says that the run has completed. */
export const ended = (page) =>
  page.getByLabel("Current activity").getByText("Completed", { exact: true }).waitFor();

/** The address of a page: its own word, as the browser reports a changed fragment later. @param {import("playwright-core").Page} page */
export const addressOf = (page) => page.evaluate(() => location.href);

/** Whether all of an element is in view. @param {import("playwright-core").Locator} locator */
export const isWithin = (locator) =>
  locator.evaluate((each) => {
    const { top, bottom, left, right } = each.getBoundingClientRect();
    return top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth;
  });
