/** The selected step: its transcript, what it changed, its checkpoints and events. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { deflateSync } from "node:zlib";
import { isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, waitsFor, writes } from "./daemon.mjs";

const SHOTS = process.env.SHOTS;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shown = (page, text) => page.getByText(text).first().waitFor();
const transcript = (page) => page.getByRole("log", { name: "Transcript" });

/** Until the page was drawn so many times. */
const frames = (page, number) =>
  page.evaluate(async (left) => {
    for (; left > 0; left -= 1) await new Promise((resolve) => requestAnimationFrame(resolve));
  }, number);

async function shot(page, name) {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(SHOTS, `${name}-${colorScheme}.png`) });
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/** What an agent prints, in the format of Claude Code. */
class Talk {
  constructor() {
    this.lines = [{ type: "system", subtype: "init", session_id: "s-1", model: "opus" }];
    this.calls = 0;
  }

  #says(block) {
    const id = `m${this.lines.length}`;
    this.lines.push({ type: "assistant", message: { id, model: "opus", content: [block] } });
    return this;
  }

  say(text) {
    return this.#says({ type: "text", text });
  }

  think(thinking) {
    return this.#says({ type: "thinking", thinking });
  }

  call(name, input, content = "fine", isError = false) {
    const id = `toolu_${(this.calls += 1)}`;
    this.#says({ type: "tool_use", id, name, input });
    const block = { type: "tool_result", tool_use_id: id, content, is_error: isError };
    this.lines.push({ type: "user", message: { content: [block] } });
    return this;
  }

  /** The codon whose agent prints all this; `ends` is what it does then. */
  codon(folder, id, { fields = {}, ends = "" } = {}) {
    const path = join(folder, `${id}.jsonl`);
    const done = { type: "result", subtype: "success", is_error: false, result: "done", total_cost_usd: 0.18 };
    writeFileSync(path, this.lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    const script = `cat >/dev/null; cat '${path}'; ${ends} echo '${JSON.stringify(done)}'`;
    return codon(id, [], {
      model: "opus",
      promptText: "# Check\n\nEvery row against the *schema*.",
      agent: { type: "command", command: ["sh", "-c", script] },
      ...fields,
    });
  }
}

const PARSE = "def parse(row):\n    depth = float(row['depth'])\n    return depth\n";
const BETTER = "def parse(row):\n    raw = row['depth'].strip()\n    depth = float(raw) if raw else None\n    return depth\n";

function png(width, height) {
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
    chunk("IDAT", deflateSync(Buffer.alloc(height * (width + 1), 128))),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function checkEveryRow(folder) {
  const root = join(folder, "execution", "agentRoot");
  const long = Array.from({ length: 900 }, (_, n) => `row ${n} fits the schema`).join("\n");
  return new Talk()
    .say(
      "The schema allows an *empty* `depth`. I check every row, see [the list](https://example.org/rows).\n\n| field | type |\n|---|---|\n| depth | float |\n\n<img src=x onerror=\"globalThis.struck = 1\"> [bad](javascript:alert(1)) ![tracker](https://example.org/x.png)",
    )
    .think("Which rows have none?")
    .call("Read", { file_path: `${root}/src/records.py` }, "def parse(row):")
    .call("Read", { file_path: `${root}/src/schema.py` })
    .call("Grep", { pattern: "depth" }, "src/records.py:2")
    .call("Grep", { pattern: "rows" })
    .call("Edit", { file_path: `${root}/src/records.py`, old_string: PARSE, new_string: BETTER })
    .call("Write", { file_path: `${root}/out/summary.md`, content: "# Summary\n\nAll rows fit.\n" })
    .call("Bash", { command: "python3 -m pytest -q tests" }, "\u001b[31mFAILED\u001b[0m tests/test_rows.py:12\n1 failed, 41 passed in 6.2 s", true)
    .call("Bash", { command: "python3 check.py" }, `${long}\nthe very last line`)
    .call("TodoWrite", { todos: [{ content: "Fix the parser", status: "completed" }, { content: "Write it down", status: "pending" }] })
    .call("mcp__weather__today", { town: "Lucerne", days: [1, 2] }, '{"sun":true,"degrees":[12,14]}')
    .call("Read", { file_path: `${root}/chart.png` }, [
      { type: "image", source: { type: "base64", media_type: "image/png", data: png(40, 30).toString("base64") } },
    ])
    .say("A name: \u202egnp.exe. All rows fit.");
}

test(
  "a transcript is read as what it means: Markdown, differences, folded reads, output, pictures",
  async (context) => {
    const daemon = await Daemon.start(context, (folder) => [
      checkEveryRow(folder).codon(folder, "check", {
        fields: { name: "Check every row" },
        ends: "mkdir -p src; printf 'x\\n' > src/records.py;",
      }),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    const log = transcript(page);
    await shown(page, "11 calls");
    await log.evaluate((box) => (box.scrollTop = 0));

    await log.getByRole("table").getByText("float").waitFor();
    assert.equal(await log.getByRole("link").count(), 1);
    assert.equal(await log.getByRole("link").getAttribute("rel"), "noopener noreferrer");
    assert.equal(await log.locator("img:not([src^='blob:'])").count(), 0);
    await shown(log, "picture: tracker");
    await shot(page, "transcript-top");
    await isAccessible(page, "the beginning of a transcript");

    await log.getByRole("button", { name: /Read 2 files and searched twice/ }).click();
    await shown(log, "src/schema.py");
    const edit = log.locator(".tool", { hasText: "Edit" }).first();
    await edit.getByText("+2").waitFor();
    await edit.getByText("−1").waitFor();
    await edit.getByText("raw = row['depth'].strip()").waitFor();
    await log.locator(".tool", { hasText: "summary.md" }).getByText("All rows fit.").waitFor();
    await log.locator(".tool .of-red", { hasText: "FAILED" }).waitFor();
    const command = log.locator(".tool", { hasText: "check.py" });
    await command.getByText("the very last line").waitFor();
    await command.getByRole("button", { name: /Show all/ }).click();
    await command.getByText("row 0 fits the schema").waitFor();
    await command.getByRole("button", { name: "Show the last lines" }).click();
    await log.evaluate((box) => (box.scrollTop = box.scrollHeight));
    await log.getByText("Fix the parser").waitFor();
    await log.getByText('"degrees": [').waitFor();
    await log.getByRole("img", { name: /Picture/ }).waitFor();
    await shown(log, "\\u202egnp.exe");
    await log.evaluate((box) => (box.scrollTop = box.scrollHeight));
    await shot(page, "transcript-end");
    await isAccessible(page, "the end of a transcript");
    assert.equal(await page.evaluate(() => globalThis.struck), undefined);

    await page.getByRole("button", { name: "prompt" }).click();
    await page.getByRole("dialog").getByText("Every row against the").waitFor();
    await isAccessible(page, "the prompt");
    await page.keyboard.press("Escape");
    assert.deepEqual(faults, []);
  },
);

test(
  "while a step runs its end is followed, and what waits for a person stands at its place",
  async (context) => {
    const gates = [];
    const daemon = await Daemon.start(context, (folder) => {
      gates.push(join(folder, "one"), join(folder, "two"));
      return [
        codon(
          "talk",
          [
            ...Array.from({ length: 40 }, (_, n) => says(`Paragraph ${n} of what I think.`)),
            waitsFor(gates[0]),
            says("And now the **last** words."),
            waitsFor(gates[1]),
          ],
          { name: "Talk" },
        ),
        codon("write", [writes("out/summary.md", "# Summary\n\nAll rows fit.\n"), says("Written.")], {
          name: "Write it down",
          permissions: { otherwise: "ask" },
        }),
      ];
    });
    const { page, faults } = await open(browser, daemon.page());
    const log = transcript(page);
    await log.getByText("Paragraph 39").waitFor();

    // Scrolling holds, also if something is drawn before the browser reports it.
    await page.evaluate(() => {
      const swallow = (/** @type {Event} */ event) => event.stopImmediatePropagation();
      document.addEventListener("scroll", swallow, { capture: true, once: true });
      document.querySelector(".flow").scrollTop = 0;
    });
    writeFileSync(gates[0], "");
    await log.getByText("Paragraph 0 of").waitFor();
    await page.getByRole("button", { name: "Newest ↓" }).click();
    await log.locator("strong", { hasText: "last" }).waitFor();
    await page.waitForFunction(() => {
      const box = document.querySelector(".flow");
      return box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    });

    // Who scrolls up reads there, whatever comes.
    await log.hover();
    await page.mouse.wheel(0, -20_000);
    await log.getByText("Paragraph 0 of").waitFor();
    writeFileSync(gates[1], "");
    const card = log.locator(".tool.t-waiting");
    await card.waitFor();
    await card.getByText("waits for you").waitFor();
    await card.getByText("All rows fit.").waitFor();
    await shot(page, "asks");
    await isAccessible(page, "a question at its place");
    await page.getByRole("button", { name: /^Allow/ }).first().click();
    await log.getByText("Written.").waitFor();
    await log.getByText("Allowed by a person").waitFor();
    assert.equal(await card.count(), 0);

    // An earlier step is read from its beginning.
    await page.locator(".steps").getByText("Talk").click();
    await log.getByText("Talk started.").waitFor();
    await page.getByRole("heading", { name: "Talk" }).waitFor();
    await log.getByText("Paragraph 3 of").waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  "a text is found anywhere in a long step, whose beginning is as near as its end",
  async (context) => {
    const TURNS = 1_500;
    const daemon = await Daemon.start(context, (folder) => {
      const talk = new Talk();
      for (let n = 0; n < TURNS; n += 1) {
        talk.say(`Turn ${n}: I look at row ${n} of the table, ${n === 1_234 ? "which holds the needle" : "as always"}.`);
        if (n % 10 === 3) talk.call("Bash", { command: `head -${n} rows` }, `row ${n}\n`.repeat(5));
      }
      return [talk.codon(folder, "long", { fields: { name: "Long" } })];
    });
    const { page, faults } = await open(browser, daemon.page());
    const log = transcript(page);
    await page.getByLabel("Current activity").getByText("Completed", { exact: true }).waitFor();
    await page.reload();
    await log.getByText("Turn 0:").waitFor();
    assert.ok((await log.locator(".block").count()) < 120, "only what is seen is in the page");

    await log.focus();
    await page.keyboard.press("End");
    await log.getByText(`Turn ${TURNS - 1}:`).waitFor();
    await log.evaluate((box) => (box.scrollTop = box.scrollHeight / 2));
    await log.getByText(/Turn [5-9]\d\d:/).first().waitFor();
    // What is read stays where it is when what is above it comes.
    const settled = () => log.evaluate(async (box) => {
      const top = box.getBoundingClientRect().top;
      const seen = [...box.querySelectorAll("[data-key]")].find((each) => each.getBoundingClientRect().bottom > top + 40);
      return `${seen?.getAttribute("data-key")} ${Math.round(seen?.getBoundingClientRect().top ?? 0)}`;
    });
    await frames(page, 30);
    const before = await settled();
    await frames(page, 30);
    assert.equal(await settled(), before);
    await page.mouse.move(600, 500);
    for (let n = 0; n < 30; n += 1) await page.mouse.wheel(0, -400);
    await frames(page, 30);
    const rows = await log.evaluate((box) => [...box.querySelectorAll("[data-key]")].map((each) => Number(each.getAttribute("data-key"))));
    assert.deepEqual(rows, [...rows].sort((a, b) => a - b));

    const find = page.getByRole("searchbox", { name: "Find in this step" });
    await find.fill("the needle");
    await page.getByRole("status").getByText("1 of 1", { exact: true }).waitFor();
    await log.locator(".found", { hasText: "Turn 1234:" }).waitFor();
    await find.fill("Turn 12");
    await page.getByText(/^1 of 111$/).waitFor(); // 12, 120 to 129, 1200 to 1299
    await log.locator(".found", { hasText: "Turn 12:" }).waitFor();
    await page.keyboard.press("Enter");
    await log.locator(".found", { hasText: "Turn 120:" }).waitFor();
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.press("Shift+Enter");
    await log.locator(".found", { hasText: "Turn 1299:" }).waitFor();
    await shot(page, "found");
    await isAccessible(page, "what was found");
    await find.fill("head -3 rows");
    await log.locator(".found", { hasText: "head -3 rows" }).first().waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  "changes, files, checkpoints and events of a step are its own, and an edit leads back to itself",
  async (context) => {
    const daemon = await Daemon.start(context, () => [
      codon("one", [writes("a.txt", "one\n"), says("A first\nmessage.")], { name: "First" }),
      codon("two", [writes("a.txt", "one\ntwo\n"), writes("b/c.txt", "three\n"), { run: "ls b" }, { cost: 0.02 }], { name: "Second" }),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    await page.getByLabel("Current activity").getByText("Completed", { exact: true }).waitFor();
    await page.locator(".steps").getByText("Second").click();
    const tab = (name) => page.getByRole("tab", { name }).click();
    await tab(/Changes 2/);
    await page.getByRole("tabpanel").getByText("2 files").waitFor();
    await page.getByRole("group", { name: /Difference of a\.txt/ }).getByText("two").waitFor();
    assert.equal(await page.locator("summary", { hasText: "c.txt" }).count(), 1);
    await shot(page, "changes");
    await isAccessible(page, "the changes of a step");

    await tab("Files");
    await page.getByRole("option", { name: /c\.txt/ }).click();
    await page.getByLabel("Content of b/c.txt").getByText("three").waitFor();
    await isAccessible(page, "the files of a step");

    await tab("Events");
    const list = page.getByRole("listbox", { name: "Events, newest first" });
    await list.getByRole("option", { name: /Ended.*The step is complete/ }).waitFor();
    await list.getByRole("option", { name: /Bash.*ls b · done in .*c\.txt/ }).waitFor();
    assert.equal(await list.getByText("\\u000a").count(), 0);
    assert.equal(await list.getByText("A first").count(), 0, "an event of another step");
    await shot(page, "events");
    await isAccessible(page, "the events of a step");
    await page.locator(".steps").getByText("First").click();
    await list.getByText("A first message.").waitFor();
    await page.getByRole("searchbox", { name: "Search the events" }).fill("first");
    await list.getByText("A first message.").waitFor();
    await list.getByText("The step is complete").waitFor({ state: "detached" });

    await page.locator(".steps").getByText("Second").click();
    await tab("Transcript");
    await transcript(page).locator(".tool", { hasText: "c.txt" }).getByRole("button", { name: "back to here" }).click();
    await page.getByRole("dialog").getByText(/Roll back to|Back to/).first().waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  "a transcript works out where its blocks are once for each frame that it is scrolled in",
  async (context) => {
    const daemon = await Daemon.start(context, () => [codon("one", [says("Here.")])]);
    const { page, faults } = await open(browser, `http://127.0.0.1:${daemon.port}/gallery.html`);
    await page.evaluate(async () => {
      const [{ html, render }, { PagedList }] = await Promise.all([import("./dom.js"), import("./parts/paged-list.js")]);
      const pages = Array.from({ length: 40 }, (_, page) => Array.from({ length: 20 }, (_, at) => ({ key: 20 * page + at })));
      const far = pages.length - 1; // Never drawn here, only counted in.
      globalThis.looks = 0;
      const at = (/** @type {number} */ page) => {
        if (page === far) globalThis.looks += 1;
        return pages[page];
      };
      const place = document.createElement("div");
      Object.assign(place.style, { display: "flex", flexDirection: "column", height: "400px" });
      document.body.replaceChildren(place);
      const source = { count: pages.length, at, want: () => undefined };
      render(html`<${PagedList} source=${source} version=${0} label="Counted" block=${({ key }) => html`<p>${key}</p>`} />`, place);
    });
    const box = page.getByRole("log", { name: "Counted" });
    const scrolledBy = async (pixels) => {
      await page.evaluate(() => (globalThis.looks = 0));
      await box.evaluate((element, by) => (element.scrollTop += by), pixels);
      await frames(page, 3);
      return page.evaluate(() => globalThis.looks);
    };
    await box.getByText("3", { exact: true }).waitFor();
    for (let n = 0; n < 8; n += 1) await scrolledBy(200); // What is drawn for the first time is measured.
    assert.deepEqual([await scrolledBy(-40), await scrolledBy(-40), await scrolledBy(40)], [1, 1, 1]);
    assert.deepEqual(faults, []);
  },
);
