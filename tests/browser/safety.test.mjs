/** Nothing that an agent wrote runs; the page is for all eyes, on a phone, too. */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, thinks, writes } from "./daemon.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shown = (page, text) => page.getByText(text).first().waitFor();

const MARKUP = [
  "<script>globalThis.struck = 1; alert(1)</script>",
  '<img src=x onerror="globalThis.struck = 2; alert(2)">',
  "<svg onload='globalThis.struck = 3'><animate onbegin='globalThis.struck = 4'/></svg>",
  "</pre></td></table><iframe srcdoc='<script>parent.struck = 5</script>'></iframe>",
  '<a href="javascript:globalThis.struck = 6">press</a>',
  "<style>* { display: none }</style><link rel=stylesheet href=//evil.example/x.css>",
  "${globalThis.struck = 7} {{constructor.constructor('globalThis.struck = 8')()}}",
].join("\n");
const NAMES = [
  "<img src=x onerror=globalThis.struck=9>.md",
  '"><script>globalThis.struck=10<∕script>.md',
  "javascript:struck=11",
  "‮gnp.exe",
  "a&lt;b&#62;.md",
];

function hostile() {
  const files = NAMES.map((name) => writes(name, MARKUP));
  return [
    codon("first", [says("<b>bold</b>"), ...NAMES.map((name) => writes(name, "harmless\n"))], {
      name: "<img src=x onerror=globalThis.struck=12>",
    }),
    codon("second", [
      says(MARKUP),
      thinks(MARKUP),
      ...files,
      { run: "echo '<script>globalThis.struck=13</script>'; false" },
      { stderr: MARKUP.replaceAll("\n", " ") },
      { fail: { message: "<img src=x onerror=globalThis.struck=14>" } },
    ]),
  ];
}

test(
  "what an agent wrote is shown as it is, and never runs",
  async (context) => {
    const daemon = await Daemon.start(context, hostile);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "<script>globalThis.struck = 1; alert(1)</script>");
    await page.locator(".s-failed").waitFor();
    await shown(page, "\\u202egnp.exe");

    await page.keyboard.press("[");
    await page.keyboard.press("3");
    await page.getByRole("option", { name: /onerror=globalThis\.struck=9/ }).click();
    await page.locator(".content pre", { hasText: "<iframe srcdoc=" }).waitFor();
    await page.keyboard.press("2");
    await page.getByRole("button", { name: "Since the step began" }).click();
    await page.locator(".changes summary").first().waitFor();
    for (const summary of await page.locator(".changes details:not([open]) > summary").all()) await summary.click();
    await page
      .locator(".diff", { hasText: "<script>globalThis.struck = 1; alert(1)</script>" })
      .first()
      .waitFor();
    await page.getByRole("slider", { name: "Time" }).focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("Enter");
    await page.keyboard.press("g");
    await page.getByRole("dialog").getByRole("button", { name: /^go away/ }).click();
    await page
      .getByRole("dialog")
      .getByRole("button", { name: /the difference of/ })
      .first()
      .click();
    await page.getByRole("dialog").locator(".diff", { hasText: "<img src=x" }).first().waitFor();
    await page.keyboard.press("Escape");

    await page.keyboard.press("l");
    await page.keyboard.press("/");
    await page.getByRole("searchbox", { name: "Search" }).fill("<script>");
    const event = page
      .getByRole("listbox", { name: "Events" })
      .getByRole("option", { name: /Message|Write|Bash/ })
      .first();
    await event.click();
    await page.getByRole("dialog").locator("pre").waitFor();
    await page.keyboard.press("Escape");

    const found = await page.evaluate(() => ({
      struck: globalThis.struck,
      scripts: [...document.scripts]
        .map((each) => new URL(each.src).pathname.replace(/^\/files\/[0-9a-f]{16}/, ""))
        .sort(),
      strange: document.querySelectorAll("img, iframe, object, embed, style, a[href^=javascript]")
        .length,
    }));
    const index = await (await fetch(`http://127.0.0.1:${daemon.port}/`)).text();
    const own = [...index.matchAll(/<script[^>]* src="files\/[0-9a-f]{16}([^"]+)"/g)].map(([, name]) => name);
    assert.ok(own.includes("/app.js"));
    assert.deepEqual(found, {
      struck: undefined,
      scripts: [...own, "/vendor/diff2html.min.js"].sort(),
      strange: 0,
    });
    assert.deepEqual(faults, []);
  },
);

test(
  "markup that diff2html would let through is taken out",
  async (context) => {
    const daemon = await Daemon.start(context, () => [
      codon("one", [writes("a.txt", "a\n")]),
      codon("two", [writes("a.txt", "b\n")]),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    await ended(page);
    await page.evaluate(async () => {
      const evil =
        "<table class='d2h-diff-table'><tr><td class='d2h-ins' onclick='struck=1' style='color:red'><b>bold</b><img src=x onerror='struck=2'><script>struck=3</script>text</td></tr></table>";
      Object.defineProperty(globalThis, "Diff2Html", {
        value: { html: () => evil },
        writable: false,
      });
    });
    await page.keyboard.press("[");
    await page.keyboard.press("2");
    await page.getByRole("button", { name: "Since the step began" }).click();
    const cell = page.locator(".diff td");
    await cell.waitFor();
    assert.equal(
      await cell.evaluate((each) => each.outerHTML),
      '<td class="d2h-ins">boldstruck=3text</td>',
    );
    assert.equal(await page.evaluate(() => globalThis.struck), undefined);
    // Even where it is only taken apart, the policy has stopped what would have run.
    assert.deepEqual(
      faults.filter((each) => !each.includes("violates the following Content Security Policy")),
      [],
    );
  },
);

for (const scheme of ["light", "dark"]) {
  for (const [width, height] of [
    [1920, 1080],
    [1280, 800],
    [360, 740],
  ]) {
    test(
      `all views are accessible in the ${scheme} scheme at ${width} pixels, and nothing sticks out`,
      async (context) => {
        const daemon = await Daemon.start(context, hostile);
        const { page, faults } = await open(browser, daemon.page(), {
          scheme,
          size: { width, height },
        });
        await page.locator(".s-failed").waitFor();
        const looked = async (what) => {
          await isAccessible(page, `${what}, ${scheme}, ${width}`);
          const wider = await page.evaluate(
            () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
          );
          assert.equal(wider, 0, `${what} is wider than the screen`);
        };
        await looked("the steps");
        for (const [key, view] of [["Enter", "Transcript"], ["4", "Checkpoints"], ["5", "Events"]]) {
          await page.keyboard.press(key);
          await page.getByRole("tab", { name: view, selected: true }).first().waitFor();
          if (view === "Checkpoints") {
            await page.getByRole("button", { name: "All", exact: true }).click();
            await looked("all checkpoints");
            await page.keyboard.press("[");
            await page.keyboard.press("2");
            await page.getByRole("button", { name: "Since the step began" }).click();
            await page.locator(".diff td").first().waitFor();
          }
          await looked(view);
        }
        for (const key of ["$", "z", "r", "Control+k"]) {
          await page.keyboard.press(key);
          await page.getByRole("dialog").waitFor();
          await looked(`the dialog of ${key}`);
          await page.keyboard.press("Escape");
        }
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
        await isAccessible(page, `the help, ${scheme}, ${width}`);
        assert.deepEqual(faults, []);
      },
    );
  }
}

test("every component is accessible in both schemes", async (context) => {
  const daemon = await Daemon.start(context, () => [codon("one", [says("Here.")])]);
  const { page, faults } = await open(browser, `http://127.0.0.1:${daemon.port}/gallery.html`);
  await page.getByRole("heading", { name: "Components" }).waitFor();
  const parts = new URL("../../server/hankweave_server/transport/web/parts/", import.meta.url);
  const sources = readdirSync(parts).map((name) => readFileSync(new URL(name, parts), "utf-8")).join("");
  const components = [...sources.matchAll(/^export function ([A-Z]\w+)/gm)].map(([, name]) => name);
  const shown = await page.getByRole("heading", { level: 3 }).allInnerTexts();
  assert.deepEqual(components.filter((name) => !shown.includes(name)), [], "every component is in the gallery");
  await isAccessible(page, "the gallery", { repeats: true });
  assert.deepEqual(faults, []);
});

test(
  "every action is reached and left by the keyboard, and the focus comes back",
  async (context) => {
    const daemon = await Daemon.start(context, () => [codon("one", [writes("a.txt", "a\n")])]);
    const { page, faults } = await open(browser, daemon.page());
    await ended(page);
    const reached = new Set();
    for (let step = 0; step < 40; step += 1) {
      await page.keyboard.press("Tab");
      reached.add(
        await page.evaluate(
          () =>
            document.activeElement?.getAttribute("aria-label") ||
            document.activeElement?.textContent?.replace(/\s+/g, " ").trim(),
        ),
      );
    }
    for (const name of ["⌘K, all commands", "$0.00", "Transcript", "Codon one, completed"]) {
      assert.ok(
        [...reached].some((each) => each.startsWith(name)),
        `${name} is reached by Tab: ${[...reached].join(", ")}`,
      );
    }
    const opener = page.getByRole("button", { name: /all commands/ });
    await opener.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("combobox").fill("take a check");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Take a checkpoint" }).waitFor();
    await page.keyboard.press("Escape");
    await page.waitForFunction(
      () => document.activeElement?.textContent?.includes("all commands"),
    );
    assert.deepEqual(faults, []);
  },
);
