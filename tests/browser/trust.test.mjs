/** Whether the page can be trusted: lost lines, other hands, other servers, links that only look. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ended, isAccessible, launch, open } from "./browser.mjs";
import { Daemon, codon, says, waitsFor, within, writes } from "./daemon.mjs";
import { Wire } from "./wire.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const button = (page, name) => page.getByRole("button", { name, exact: typeof name === "string" });
const shown = (page, text) => page.getByText(text).first().waitFor();

const two = () => [codon("one", [writes("a.txt", "a\n")]), codon("two", [writes("b.txt", "b\n")])];

/** Two codons that are done, and a page behind a wire. */
async function wired(context, hank = two, options = []) {
  const daemon = await Daemon.start(context, hank, options);
  const wire = await Wire.to(daemon.port);
  context.after(() => wire.close());
  const address = options.includes("--no-token")
    ? `http://127.0.0.1:${wire.port}/`
    : daemon.page("controller", wire.port);
  const { page, faults } = await open(browser, address);
  return { daemon, wire, page, faults };
}

/** Opens the preview of going back to before the second codon. */
async function preview(page) {
  await page.keyboard.press("z");
  const go = page.getByRole("dialog").getByRole("button", { name: "Go back" });
  await page.getByRole("dialog").getByRole("button", { name: /^go away\s+1 file/ }).waitFor();
  return go;
}

const journal = (daemon) =>
  readFileSync(join(daemon.execution, ".hankweave/events/events.jsonl"), "utf-8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

test(
  "a line that is lost under a preview is told in it, and nothing is done until it is back",
  async (context) => {
    const { daemon, wire, page, faults } = await wired(context);
    await ended(page);
    const go = await preview(page);
    wire.cut();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("alert").getByText("There is no connection.").waitFor();
    assert.equal(await go.getAttribute("aria-disabled"), "true");
    await isAccessible(page, "a preview without a connection");
    await go.click({ force: true });
    assert.ok(existsSync(join(daemon.workTree, "b.txt")));
    wire.mend();
    await dialog
      .getByText("There is no connection.")
      .waitFor({ state: "detached" });
    await go.click();
    await shown(page, "Rolled back: 1 file changed.");
    assert.ok(!existsSync(join(daemon.workTree, "b.txt")));
    assert.equal(journal(daemon).filter((each) => each.type === "rollback.completed").length, 1);
    assert.deepEqual(faults, []);
  },
);

test(
  "of two who roll back at once after the run has ended, the second is refused, and told why",
  async (context) => {
    const { daemon, wire, page, faults } = await wired(context);
    await ended(page);
    const go = await preview(page);
    const other = await open(browser, daemon.page());
    await ended(other.page);
    const others = await preview(other.page);
    wire.hold(); // The page does not hear of the other's rollback before its own is on the way.
    await others.click();
    await shown(other.page, "Rolled back: 1 file changed.");
    await go.click();
    wire.release();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("The execution has moved on since you looked.").waitFor();
    assert.equal(journal(daemon).filter((each) => each.type === "rollback.completed").length, 1);
    await isAccessible(page, "a rollback that was refused");
    assert.deepEqual(faults, []);
  },
);

test(
  "a command is not sent again to a server that was started again meanwhile",
  async (context) => {
    const hank = (folder) => [
      codon("one", [writes("a.txt", "a\n")]),
      codon("two", [says("I wait."), waitsFor(join(folder, "gate"))]),
    ];
    const { daemon, wire, page, faults } = await wired(context, hank, [
      "--no-token",
      "--no-autostart",
    ]);
    await page.getByRole("button", { name: "Start the next step", disabled: false }).waitFor();
    await page.keyboard.press("c");
    await page.getByRole("button", { name: "Take it" }).waitFor(); // Its module comes by the same wire.
    wire.hold();
    await page.getByRole("button", { name: "Take it" }).click();
    await page.getByRole("button", { name: "Working …" }).waitFor();
    await within(
      20_000,
      "the checkpoint",
      until(() =>
        journal(daemon).some(
          (each) =>
            each.type === "state.transition" &&
            each.data.transition.type === "CheckpointCreated" &&
            each.data.transition.data.checkpoint.kind === "manual",
        ),
      ),
    );
    await daemon.kill();
    wire.cut();
    wire.release();
    await daemon.run(["--no-token", "--no-autostart"]);
    wire.target = daemon.port;
    wire.mend();
    await page
      .getByRole("dialog")
      .getByText(/was restarted\. Check whether/)
      .waitFor();
    const taken = journal(daemon).filter(
      (each) =>
        each.type === "state.transition" && each.data.transition.data.checkpoint?.kind === "manual",
    );
    assert.equal(taken.length, 1);
    assert.deepEqual(faults, []);
  },
);

test(
  "another execution at the same address is not taken for the one that was followed",
  async (context) => {
    const { wire, page, faults } = await wired(context, two, ["--no-token"]);
    await ended(page);
    await page.keyboard.press("5");
    await page
      .getByRole("listbox", { name: "Events" })
      .getByRole("option", { name: /Started/ })
      .first()
      .waitFor();
    // It has had more events: by their number alone nobody sees that it is another one.
    const many = Array.from({ length: 60 }, (_, at) => says(`word ${at}`));
    const other = await Daemon.start(context, () => [codon("stranger", many)], ["--no-token"]);
    const there = await open(browser, `http://127.0.0.1:${other.port}/`);
    await ended(there.page);
    wire.target = other.port;
    wire.cut();
    wire.mend();
    await shown(page, "This address now serves another execution.");
    await page.keyboard.press("1");
    await shown(page, "word 7");
    assert.equal(await page.getByText("Codon two").count(), 0);
    await page.keyboard.press("5");
    await page.keyboard.press("/");
    await page.getByRole("searchbox", { name: "Search" }).fill("WORD 7");
    await page.getByRole("option", { name: /word 7/ }).waitFor();
    assert.deepEqual(faults, []);
  },
);

async function until(holds) {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 50));
}

test(
  "a link that may only look moves nothing, by any button, any key, or the client itself",
  async (context) => {
    const hank = (folder) => [
      ...two(),
      codon("three", [writes("c.txt", "c\n")], { permissions: { otherwise: "ask" } }),
      codon("four", [waitsFor(join(folder, "gate"))]),
    ];
    const daemon = await Daemon.start(context, hank);
    const { page, faults } = await open(browser, daemon.page("viewer"));
    await page.getByRole("region", { name: "Permission for Write" }).waitFor();
    const seqBefore = journal(daemon).length;
    const press = async () => {
      for (const each of await page.locator("button[aria-disabled=true]").all()) {
        await each.focus();
        await page.keyboard.press("Enter");
        await page.keyboard.press("Space");
        assert.equal(await page.getByRole("dialog").count(), 0);
      }
    };
    await press();
    await page.keyboard.press("[");
    await page.keyboard.press("3");
    await page.getByRole("listbox", { name: "Files of this moment" }).waitFor();
    for (const key of ["g", "z", "r", "n", "b", "p", "u", "c", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.getByRole("dialog").count(), 0);
    await press();
    const changing = [...daemon.commands()];
    assert.ok(changing.length > 12, `${changing}`);
    const answers = await page.evaluate(async (types) => {
      const { Client } = await import("./client.js");
      const token = new URLSearchParams(location.hash.slice(1)).get("token");
      const heard = {};
      for (const mode of ["readandwrite", "readonly"]) {
        const client = new Client(`ws://${location.host}/ws`, { token, mode });
        client.open();
        for (const type of types) {
          heard[`${mode} ${type}`] = await client
            .ask(type, {
              checkpointSha: "0000",
              codonId: "one",
              command: "true",
              checkpointType: "end",
              requestId: "x",
              attemptId: "e-1",
              explorationId: "e",
              decision: "allow",
              pinned: true,
            })
            .then(
              () => "done",
              (error) => error.code,
            );
        }
        client.close();
      }
      return heard;
    }, changing);
    for (const [what, code] of Object.entries(answers))
      assert.equal(code, "INSUFFICIENT_PERMISSIONS", what);
    assert.equal(journal(daemon).length, seqBefore);
    assert.deepEqual(faults, []);
  },
);

test(
  "a server without room for connections says so in a banner, until it has room again",
  async (context) => {
    const daemon = await Daemon.start(context, two, [], { descriptors: 160 });
    const { page, faults } = await open(browser, daemon.page());
    await ended(page);
    const crowd = [];
    context.after(() => crowd.forEach((each) => each.destroy()));
    for (let at = 0; at < 130; at += 1) {
      const socket = connect(daemon.port, "127.0.0.1");
      socket.on("error", () => undefined);
      crowd.push(socket);
    }
    const banner = page.getByRole("alert").getByText(/The server has a problem/);
    await banner.waitFor();
    await isAccessible(page, "a degraded server");
    const late = await open(browser, daemon.page()).catch(() => null);
    crowd.splice(0).forEach((each) => each.destroy());
    await banner.waitFor({ state: "detached" });
    await late?.context.close();
    assert.deepEqual(faults, []);
  },
);

test(
  "a moment that was pruned under one's eyes is told, and the next one can be looked at",
  async (context) => {
    const daemon = await Daemon.start(context, two);
    const { page, faults } = await open(browser, daemon.page());
    await ended(page);
    for (const label of ["first", "second"]) {
      writeFileSync(join(daemon.workTree, "n.txt"), label);
      await page.keyboard.press("c");
      await page.getByLabel(/Label/).fill(label);
      await page.getByRole("button", { name: "Take it" }).click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal(await page.getByRole("region", { name: "The past" }).count(), 0);
      await page.keyboard.press("[");
      await page.getByRole("region", { name: "The past" }).getByText(label).waitFor();
      await page.keyboard.press("l");
    }
    await page.keyboard.press("4");
    await button(page, "All").click();
    // What the next undo needs stays: so back, and back once more.
    for (const name of [/codon completed/, /the beginning/]) {
      await page.getByRole("option", { name }).last().click();
      await page.keyboard.press("g");
      await page.getByRole("button", { name: "Go back", disabled: false }).click();
      await page.getByRole("status").getByText(/^Rolled back/).waitFor();
      await page.getByRole("button", { name: "Close" }).first().click();
    }
    await page.getByRole("option", { name: /^second/ }).click();
    await page.getByRole("region", { name: "The past" }).getByText("second").waitFor();
    await page.evaluate(async () => {
      const { Client } = await import("./client.js");
      const client = new Client(`ws://${location.host}/ws`, {
        token: new URLSearchParams(location.hash.slice(1)).get("token"),
      });
      client.open();
      await client.ask("store.gc", { maxCount: 0, kinds: ["manual", "safety"] });
      client.close();
    });
    await page.getByRole("option", { name: /^first/ }).waitFor({ state: "detached" });
    await shown(page, /was pruned/);
    await isAccessible(page, "a pruned moment");
    assert.equal(await button(page, "Back to here…").getAttribute("aria-disabled"), "true");
    await page.keyboard.press("g");
    await page.locator(".note.shown", { hasText: /was pruned/ }).waitFor();
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.locator(".note button").click();
    await button(page, "Previous checkpoint").click();
    await page.getByRole("region", { name: "The past" }).getByText(/You see/).waitFor();
    await page.keyboard.press("3");
    await page.getByRole("listbox", { name: "Files of this moment" }).waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  "a question that somebody else has answered goes away, and a late answer is told",
  async (context) => {
    const hank = (folder) => [
      codon("careful", [writes("a.txt", "a"), waitsFor(join(folder, "gate"))], {
        permissions: { otherwise: "ask" },
      }),
    ];
    const { daemon, wire, page, faults } = await wired(context, hank);
    const asked = page.getByRole("region", { name: "Permission for Write" });
    await asked.waitFor();
    const other = await open(browser, daemon.page());
    wire.hold();
    await other.page
      .getByRole("region", { name: "Permission for Write" })
      .getByRole("button", { name: "Deny…" })
      .click();
    await other.page.getByRole("dialog").getByRole("button", { name: "Deny" }).click();
    await shown(other.page, "Denied by a person");
    await asked.getByRole("button", { name: "Allow once" }).click();
    wire.release();
    await asked.waitFor({ state: "detached" });
    await page.locator(".note.shown", { hasText: /has already been answered/ }).waitFor();
    await shown(page, "Denied by a person");
    rmSync(join(daemon.workTree, "gate"), { force: true });
    assert.ok(!existsSync(join(daemon.workTree, "a.txt")));
    assert.deepEqual(faults, []);
  },
);

const LONG = "a-very-long-word-that-nobody-can-break".repeat(5);

test(
  "on a phone in the dark no long name sticks out, of pages or dialogs",
  async (context) => {
    const daemon = await Daemon.start(context, (folder) => [
      codon("one", [says(LONG), writes(`${LONG}.txt`, `${LONG}\n`), { run: `echo ${LONG}` }], {
        name: LONG,
      }),
      codon("two", [writes(`${LONG}.txt`, "2\n"), writes(`${LONG}/${LONG}.md`, "3\n")], {
        name: LONG,
        permissions: { otherwise: "ask" },
      }),
      codon(LONG.slice(0, 60), [waitsFor(join(folder, "gate"))]),
    ]);
    const { page, faults } = await open(browser, daemon.page(), {
      scheme: "dark",
      size: { width: 360, height: 740 },
    });
    const fits = async (what) => {
      const wider = await page.evaluate(() =>
        [document.documentElement, ...document.querySelectorAll("[role=dialog], dialog, .banner, .panel")].map(
          (each) => each.scrollWidth - each.clientWidth,
        ),
      );
      assert.ok(
        wider.every((each) => each <= 0),
        `${what}: ${wider}`,
      );
      await isAccessible(page, what);
    };
    for (let at = 0; at < 2; at += 1) {
      const asked = page.getByRole("region", { name: "Permission for Write" });
      await asked.waitFor();
      if (at === 0) await fits("a question");
      await asked.getByRole("button", { name: "Allow once" }).click();
      await shown(page, "Allowed.");
      await page.locator(".note button").click();
    }
    await page.locator(".step.s-running").waitFor();
    await fits("live");
    for (const key of ["s", "x", "c"]) {
      await page.keyboard.press(key);
      await page.getByRole("dialog").waitFor();
      await fits(`the dialog of ${key}`);
      await page.keyboard.press("Escape");
    }
    await page.keyboard.press("4");
    await button(page, "All").click();
    await fits("all checkpoints");
    await page.getByRole("option", { name: /codon completed/ }).last().click();
    await page.getByRole("region", { name: "The past" }).getByText(/You see/).waitFor();
    await fits("the past");
    await page.keyboard.press("3");
    await page.getByRole("listbox", { name: "Files of this moment" }).waitFor();
    await page.getByRole("option", { name: /\.txt/ }).first().click();
    await page.locator(".content pre").waitFor();
    await fits("files");
    await page.keyboard.press("v");
    await page.locator(".diff td").first().waitFor();
    await fits("differences");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Time", exact: true }).click();
    await fits("time");
    await page.keyboard.press("g");
    await page.getByRole("dialog").getByRole("button", { name: /^go away/ }).click();
    await page
      .getByRole("dialog")
      .getByRole("button", { name: /the difference of/ })
      .first()
      .click();
    await page.getByRole("dialog").locator(".diff td:visible").first().waitFor();
    await fits("the preview");
    await page.keyboard.press("Escape");
    for (const key of ["b", "p"]) {
      await page.keyboard.press(key);
      await page.getByRole("dialog").waitFor();
      await fits(`the dialog of ${key}`);
      await page.keyboard.press("Escape");
    }
    await page.keyboard.press("5");
    const events = page.getByRole("listbox", { name: "Events" });
    await events
      .getByRole("option", { name: /Message|Write|Bash/ })
      .first()
      .click();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("region", { name: "What it led to" }).waitFor();
    await fits("an event");
    assert.deepEqual(faults, []);
  },
);
