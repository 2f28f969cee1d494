/** What agents made is read for what it is: pictures, long texts, names that mislead. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { deflateSync } from "node:zlib";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const shown = (page, text) => page.getByText(text).first().waitFor();

/** A past of one checkpoint that holds these files; the page stands at it. */
async function standingAt(context, files) {
  const daemon = await Daemon.start(context, () => [codon("one", [says("Here you are.")])]);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  for (const [path, content] of Object.entries(await files(page))) {
    mkdirSync(dirname(join(daemon.workTree, path)), { recursive: true });
    writeFileSync(join(daemon.workTree, path), content);
  }
  await page.keyboard.press("c");
  await page.getByRole("button", { name: "Take it" }).click();
  await shown(page, /was taken/);
  await page.keyboard.press("[");
  await page.keyboard.press("3");
  return { daemon, page, faults };
}

const read = (page, name) => page.getByRole("option", { name }).click();

function png(width, height, rows = height) {
  const crcs = Array.from({ length: 256 }, (_, n) => {
    for (let bit = 0; bit < 8; bit += 1) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n >>> 0;
  });
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    let crc = 0xffffffff;
    for (const byte of body) crc = crcs[(crc ^ byte) & 0xff] ^ (crc >>> 8);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)];
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE((crc ^ 0xffffffff) >>> 0);
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 0], 8);
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(Buffer.alloc(rows * (width + 1), 0))),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** As the browser itself writes a picture of 40 × 30 pixels. */
async function painted(page, type) {
  const bytes = await page.evaluate(async (wanted) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [40, 30];
    canvas.getContext("2d").fillRect(5, 5, 20, 10);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, wanted));
    return [...new Uint8Array(await blob.arrayBuffer())];
  }, type);
  return Buffer.from(bytes);
}

const GIF = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");
const SVG =
  "<svg xmlns='http://www.w3.org/2000/svg' onload='globalThis.struck = 1'><script>struck = 2</script></svg>";

test(
  "a picture of pixels is shown, whatever it is called; an SVG stays a text",
  async (context) => {
    const { page, faults } = await standingAt(context, async (page) => ({
      "a.png": png(300, 200),
      "b.jpg": await painted(page, "image/jpeg"),
      "c.webp": await painted(page, "image/webp"),
      "d.gif": GIF,
      "called.txt": png(20, 10),
      "drawing.svg": SVG,
      "drawing.png": SVG,
      "bomb.png": png(60_000, 60_000, 1),
      "broken.png": png(50, 50).fill(7, 40),
      "short.png": png(50, 50).subarray(0, 20),
      "noise.bin": Buffer.from([0, 1, 2, 255, 254]),
      "large.png": Buffer.concat([png(10, 10), Buffer.alloc(9_000_000)]),
    }));
    for (const [name, size] of [
      ["a.png", [300, 200]],
      ["b.jpg", [40, 30]],
      ["c.webp", [40, 30]],
      ["d.gif", [1, 1]],
      ["called.txt", [20, 10]],
    ]) {
      await read(page, name);
      const image = page.getByRole("img", { name: `Picture ${name}` });
      await image.waitFor();
      const found = await image.evaluate(async (each) => {
        await each.decode();
        return [each.naturalWidth, each.naturalHeight];
      });
      assert.deepEqual(found, size, name);
      await shown(page, `${size[0]} × ${size[1]} pixels`);
    }
    await isAccessible(page, "a picture");
    for (const [name, words] of [
      ["bomb.png", /60,000 × 60,000 pixels is too large/],
      ["broken.png", /it is damaged/],
      ["short.png", /This is not text/],
      ["noise.bin", /This is not text/],
      ["large.png", /a picture too large/],
    ]) {
      await read(page, name);
      await shown(page, words);
      assert.equal(await page.locator("img").count(), 0, name);
    }
    for (const name of ["drawing.svg", "drawing.png"]) {
      await read(page, name);
      await page.locator(".content pre", { hasText: "onload='globalThis.struck = 1'" }).waitFor();
      assert.equal(await page.locator("img").count(), 0, name);
    }
    assert.equal(await page.evaluate(() => globalThis.struck), undefined);
    assert.deepEqual(faults, []);
  },
);

test(
  "a long text is read part by part, though a part ends within a letter",
  async (context) => {
    const { page, faults } = await standingAt(context, () => ({
      "umlauts.txt": `x${"ä".repeat(250_000)}das Ende`,
      "one-line.json": `{"a": "${"b".repeat(190_000)}"}`,
    }));
    await read(page, "umlauts.txt");
    await page.locator(".content pre", { hasText: "xää" }).waitFor();
    await button(page, "More of it").click();
    await button(page, "More of it").click();
    await page.locator(".content pre", { hasText: "ääädas Ende" }).waitFor();
    assert.equal(await button(page, "More of it").count(), 0);
    const text = await page.locator(".content pre").textContent();
    assert.equal(text, `x${"ä".repeat(250_000)}das Ende`);
    await read(page, "one-line.json");
    await page.locator(".content pre", { hasText: '"}' }).waitFor();
    assert.deepEqual(faults, []);
  },
);

const TURNED = "\u202e";

test(
  "marks that turn a text around, or that nobody sees, show in names, texts, differences and calls",
  async (context) => {
    const daemon = await Daemon.start(context, () => [
      codon("one", [
        writes("plain.py", "a = 1\n"),
        writes(`a${TURNED}yp.txt`, "1\n"),
        writes("no\u200bthing.md", "1\n"),
        says(`I say${TURNED} this.`),
      ]),
      codon("two", [writes("plain.py", `if level != "user${TURNED} \u2066// Check":\n`)], {
        permissions: { otherwise: "ask" },
      }),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    const asked = page.getByRole("region", { name: "Permission for Write" });
    const lines = (place) => place.locator(".lines", { hasText: "user\\u202e \\u2066// Check" }).waitFor();
    await lines(page.getByRole("log", { name: "Transcript" }));
    await page.locator(".steps").getByText("Codon one").click();
    await lines(asked); // Where the transcript shows another step.
    await shown(page, "I say\\u202e this.");
    await asked.getByRole("button", { name: "Allow once" }).click();
    await ended(page);
    await button(page, /a\\u202eyp\.txt/).waitFor();
    await button(page, /no\\u200bthing\.md/).waitFor();
    await page.keyboard.press("[");
    await page.keyboard.press("3");
    await page.getByRole("option", { name: "plain.py" }).click();
    await page.locator(".content pre", { hasText: "user\\u202e \\u2066// Check" }).waitFor();
    await page.keyboard.press("2");
    await button(page, "Since the step began").click();
    await page.locator(".diff", { hasText: "user\\u202e \\u2066// Check" }).waitFor();
    const hidden = await page.evaluate(() =>
      /[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.body.textContent),
    );
    assert.equal(hidden, false);
    assert.deepEqual(faults, []);
  },
);

test(
  "what streams without a rest shows while it streams: events, and the cost",
  async (context) => {
    const words = Array.from({ length: 400 }, (_, at) => [
      says(`word ${at}`),
      { cost: 0.01 },
      { wait: 0.05 },
    ]).flat();
    const daemon = await Daemon.start(context, () => [codon("one", words)]);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "word 5");
    await page.keyboard.press("5");
    const newest = page.getByRole("listbox", { name: "Events" }).getByRole("option").first();
    const first = await newest.innerText();
    await page.waitForFunction(
      (before) => document.querySelector(".step-events .row").innerText !== before,
      first,
    );
    assert.match(await page.getByLabel("Current activity").innerText(), /Running/);
    assert.deepEqual(faults, []);
  },
);
