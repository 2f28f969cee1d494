/** Nothing that an agent wrote runs; the page is for all eyes, on a phone, too. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isAccessible, launch, open } from "./browser.mjs";
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
  { timeout: 120_000 },
  async (context) => {
    const daemon = await Daemon.start(context, hostile);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "<script>globalThis.struck = 1; alert(1)</script>");
    await page.locator(".s-failed").waitFor();
    await page.locator(".e-tool summary").last().click();
    await shown(page, "\\u202egnp.exe");

    await page.keyboard.press("2");
    await page.getByRole("button", { name: "Every step" }).click();
    const list = page.getByRole("listbox", { name: /Checkpoints/ });
    await list.focus();
    await page.keyboard.press("Home");
    await page.getByRole("option", { name: /onerror=globalThis\.struck=9/ }).click();
    await page.locator(".content pre", { hasText: "<iframe srcdoc=" }).waitFor();
    await page.keyboard.press("End");
    await page.getByRole("tab", { name: /Changed here/ }).click();
    await page.getByRole("button", { name: "Codons" }).click();
    await list.focus();
    await page.keyboard.press("Home");
    await page.getByRole("tab", { name: /Changed here \([1-9]/ }).waitFor();
    for (const summary of await page.locator(".changes summary").all()) await summary.click();
    await page
      .locator(".diff", { hasText: "<script>globalThis.struck = 1; alert(1)</script>" })
      .first()
      .waitFor();
    await list.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("r");
    await page
      .getByRole("dialog")
      .getByRole("button", { name: /the difference of/ })
      .first()
      .click();
    await page.locator("dialog .diff", { hasText: "<img src=x" }).first().waitFor();
    await page.keyboard.press("Escape");

    await page.keyboard.press("/");
    await page.getByRole("searchbox").fill("<script>");
    const event = page
      .getByRole("listbox", { name: "Events" })
      .getByRole("option", { name: /assistant\.action/ })
      .first();
    await event.click();
    await event.click();
    await page.getByRole("dialog").locator("pre").waitFor();
    await page.keyboard.press("Escape");

    const found = await page.evaluate(() => ({
      struck: globalThis.struck,
      scripts: [...document.scripts].map((each) => new URL(each.src).pathname).sort(),
      strange: document.querySelectorAll("img, iframe, object, embed, style, a[href^=javascript]")
        .length,
    }));
    assert.deepEqual(found, {
      struck: undefined,
      scripts: ["/app.js", "/vendor/diff2html.min.js"],
      strange: 0,
    });
    assert.deepEqual(faults, []);
  },
);

test(
  "markup that diff2html would let through is taken out",
  { timeout: 60_000 },
  async (context) => {
    const daemon = await Daemon.start(context, () => [
      codon("one", [writes("a.txt", "a\n")]),
      codon("two", [writes("a.txt", "b\n")]),
    ]);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "The run has completed.");
    await page.evaluate(async () => {
      const evil =
        "<table class='d2h-diff-table'><tr><td class='d2h-ins' onclick='struck=1' style='color:red'><b>bold</b><img src=x onerror='struck=2'><script>struck=3</script>text</td></tr></table>";
      Object.defineProperty(globalThis, "Diff2Html", {
        value: { html: () => evil },
        writable: false,
      });
    });
    await page.keyboard.press("2");
    await page.getByRole("listbox", { name: /Checkpoints/ }).focus();
    await page.keyboard.press("Home");
    await page.getByRole("tab", { name: /Changed here/ }).click();
    await page.locator(".changes summary").first().click();
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
    [1280, 800],
    [360, 740],
  ]) {
    test(
      `all views are accessible in the ${scheme} scheme at ${width} pixels, and nothing sticks out`,
      { timeout: 90_000 },
      async (context) => {
        const daemon = await Daemon.start(context, hostile);
        const { page, faults } = await open(browser, daemon.page(), {
          scheme,
          size: { width, height },
        });
        await page.locator(".s-failed").waitFor();
        for (const view of ["Live", "Time", "Events", "Cost"]) {
          await page.getByRole("button", { name: view, exact: true }).click();
          if (view === "Time") {
            await page.getByRole("button", { name: "Go to now" }).click();
            await page.getByRole("tab", { name: /Changed here \([1-9]/ }).click();
            await page.locator(".changes summary").first().click();
            await page.locator(".diff td").first().waitFor();
          }
          await page.locator("main").getByRole("heading").first().waitFor();
          await isAccessible(page, `${view}, ${scheme}, ${width}`);
          const wider = await page.evaluate(
            () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
          );
          assert.equal(wider, 0, `${view} is wider than the screen`);
        }
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
        await isAccessible(page, `the help, ${scheme}, ${width}`);
        assert.deepEqual(faults, []);
      },
    );
  }
}

test(
  "every action is reached and left by the keyboard, and the focus comes back",
  { timeout: 60_000 },
  async (context) => {
    const daemon = await Daemon.start(context, () => [codon("one", [writes("a.txt", "a\n")])]);
    const { page, faults } = await open(browser, daemon.page());
    await shown(page, "The run has completed.");
    const reached = new Set();
    for (let step = 0; step < 40; step += 1) {
      await page.keyboard.press("Tab");
      reached.add(
        await page.evaluate(
          () =>
            document.activeElement?.textContent?.trim() ||
            document.activeElement?.getAttribute("aria-label"),
        ),
      );
    }
    for (const name of [
      "Start next",
      "Skip …",
      "Stop …",
      "Redo codon",
      "Checkpoint …",
      "Undo rollback …",
      "Live",
      "Time",
      "Events",
      "Cost",
    ]) {
      assert.ok(reached.has(name), `${name} is reached by Tab: ${[...reached].join(", ")}`);
    }
    const checkpoint = page.getByRole("button", { name: "Checkpoint …" });
    await checkpoint.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Checkpoint …");
    assert.deepEqual(faults, []);
  },
);
