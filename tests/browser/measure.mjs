/** What `scripts/bench ui` measures in the browser; prints one line of JSON. */
import { launch, open } from "./browser.mjs";

const SECONDS = 4;
const address = process.argv[2];
const browser = await launch();
const begun = Date.now();
const { page, context, faults } = await open(browser, address);
const since = () => (Date.now() - begun) / 1_000;

const firstPaint = await page.evaluate(
  () =>
    new Promise((resolve) => {
      new PerformanceObserver((list) => {
        const paint = list.getEntriesByName("first-contentful-paint")[0];
        if (paint) resolve(paint.startTime / 1_000);
      }).observe({ type: "paint", buffered: true });
    }),
);
await page.locator(".step").first().waitFor();
const plan = since();
await page.keyboard.press("4");
await page.getByText(/of [\d,]+ checkpoints$/).waitFor({ timeout: 120_000 });
const everything = since();
const checkpoints = number(await page.locator(".tab-checkpoints .counted").innerText(), /of ([\d,]+)/);

let nodes = 0;
async function framesOf(selector) {
  await page.waitForTimeout(500);
  const found = await page.evaluate(scrolled, { selector, seconds: SECONDS });
  nodes = Math.max(nodes, await page.evaluate(() => document.querySelectorAll("*").length));
  return found;
}

await page.getByRole("button", { name: "All", exact: true }).click();
const treeFrames = await framesOf(".tab-checkpoints .list");
await page.keyboard.press("5");
const events = number(await page.locator("#search").getAttribute("placeholder"), /([\d,]+)/);
const eventFrames = await framesOf(".step-events .list");
await page.keyboard.press("1");
const feedFrames = await framesOf(".flow");
await page.keyboard.press("$");
await page.locator("figure svg").first().waitFor();
await page.waitForTimeout(3_000);

const debuggee = await context.newCDPSession(page);
await debuggee.send("HeapProfiler.collectGarbage");
const { usedSize } = await debuggee.send("Runtime.getHeapUsage");
await browser.close();
if (faults.length > 0) throw new Error(faults.join("\n"));
console.log(
  JSON.stringify({
    firstPaint,
    plan,
    everything,
    checkpoints,
    events,
    treeFrames,
    eventFrames,
    feedFrames,
    nodes,
    heap: usedSize / 1e6,
  }),
);

function number(text, pattern) {
  return Number(text.match(pattern)[1].replaceAll(",", ""));
}

/** Scrolls from one end to the other, a step in each frame; gives frames a second. Runs in the page. */
async function scrolled({ selector, seconds }) {
  const box = document.querySelector(selector);
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const begin = performance.now();
  let frames = 0;
  for (let passed = 0; passed < seconds * 1_000; passed = performance.now() - begin) {
    const part = passed / (seconds * 1_000);
    box.scrollTop =
      (box.scrollHeight - box.clientHeight) * (part < 0.5 ? 1 - 2 * part : 2 * part - 1);
    await frame();
    frames += 1;
  }
  return frames / ((performance.now() - begin) / 1_000);
}
