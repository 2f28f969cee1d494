/**
 * What `scripts/bench ui` measures in the browser; prints one line of JSON.
 *
 *   node measure.mjs ADDRESS OPENINGS WHEELS
 */
import { launch, open } from "./browser.mjs";

const STANDS = "hankweave: stands"; // Marks that the page sets.
const COMPLETE = "hankweave: complete";
const WHEEL = 400; // Pixels of one turn.
const LONG = 17; // Milliseconds; a frame takes 16.7.

const [address, openings, wheels] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const browser = await launch();

/** Opens the page as somebody does who has never seen it. */
async function opened() {
  const { page, context, faults } = await open(browser, "about:blank");
  const debuggee = await context.newCDPSession(page);
  await debuggee.send("Performance.enable");
  await debuggee.send("Network.enable");
  const frames = [];
  let begun = 0;
  debuggee.on("Network.requestWillBeSent", ({ timestamp }) => (begun ||= timestamp));
  debuggee.on("Network.webSocketFrameReceived", ({ timestamp, response }) =>
    frames.push([timestamp, response.payloadData.length]),
  );
  await page.goto(address);
  const seconds = (await marked(page, STANDS)) / 1_000;
  const kilobytes = frames.reduce((sum, [at, size]) => sum + (at < begun + seconds ? size / 1_000 : 0), 0);
  const { metrics } = await debuggee.send("Performance.getMetrics");
  const worked = metrics.find(({ name }) => name === "TaskDuration").value;
  const requests = await page.evaluate(
    (before) => performance.getEntriesByType("resource").filter((each) => each.startTime < before).length,
    seconds * 1_000,
  );
  return { page, context, debuggee, faults, seconds, worked, requests, kilobytes };
}

/** When the page set a mark, in milliseconds since it was asked for. */
function marked(page, name) {
  return page.evaluate(
    (wanted) =>
      new Promise((resolve) => {
        new PerformanceObserver((list) => {
          const [mark] = list.getEntriesByName(wanted);
          if (mark) resolve(mark.startTime);
        }).observe({ type: "mark", buffered: true });
      }),
    name,
  );
}

const paints = [];
for (let n = 0; n < openings; n += 1) {
  const { context, faults, ...paint } = await opened();
  paints.push(paint);
  await context.close();
  if (faults.length > 0) throw new Error(faults.join("\n"));
}

const { page, context, debuggee, faults } = await opened();
const again = async () => {
  await page.reload();
  return (await marked(page, STANDS)) / 1_000;
};
const reload = await again();
const complete = (await marked(page, COMPLETE)) / 1_000;
let nodes = 0;

/** Turns the wheel over a list; gives the milliseconds of all frames meanwhile. */
async function scrolled(selector) {
  const box = await page.locator(selector).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForTimeout(1_000);
  await page.evaluate(() => {
    globalThis.frames_ = [];
    const frame = (/** @type {number} */ now) => {
      globalThis.frames_.push(now);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const { metrics: before } = await debuggee.send("Performance.getMetrics");
  for (let n = 0; n < wheels; n += 1) await page.mouse.wheel(0, WHEEL);
  await page.waitForTimeout(200);
  const times = await page.evaluate(() => globalThis.frames_);
  const { metrics: after } = await debuggee.send("Performance.getMetrics");
  nodes = Math.max(nodes, await page.evaluate(() => document.querySelectorAll("*").length));
  const spans = times.slice(1).map((time, at) => time - times[at]).sort((a, b) => a - b);
  const task = (metrics) => metrics.find(({ name }) => name === "TaskDuration").value;
  return {
    late: (100 * spans.filter((each) => each > LONG).length) / spans.length,
    p95: spans[Math.floor(spans.length * 0.95)],
    worked: (1_000 * (task(after) - task(before))) / spans.length,
  };
}

const transcript = await scrolled(".flow");
await page.keyboard.press("5");
const events = await scrolled(".step-events .list");
await page.keyboard.press("1");
await page.locator(".flow").waitFor();
await page.waitForTimeout(1_000);
await debuggee.send("HeapProfiler.collectGarbage");
const { usedSize } = await debuggee.send("Runtime.getHeapUsage");
await context.close();
await browser.close();
if (faults.length > 0) throw new Error(faults.join("\n"));

const median = (key) => paints.map((each) => each[key]).sort((a, b) => a - b)[Math.floor(paints.length / 2)];
console.log(
  JSON.stringify({
    paint: median("seconds"),
    fastest: Math.min(...paints.map((each) => each.seconds)),
    worked: median("worked"),
    requests: median("requests"),
    kilobytes: median("kilobytes"),
    reload,
    complete,
    transcriptLate: transcript.late,
    transcriptP95: transcript.p95,
    transcriptWork: transcript.worked,
    eventsLate: events.late,
    eventsP95: events.p95,
    eventsWork: events.worked,
    nodes,
    heap: usedSize / 1e6,
  }),
);
