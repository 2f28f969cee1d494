/** The mirror of an execution, as a person sees it on the page. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ended, isAccessible, launch, open } from "../../browser/browser.mjs";
import { COMMAND, Daemon, codon, writes } from "../../browser/daemon.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("one line says how far the mirror is, that it cannot be reached, and nothing when it has ended", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "hankweave-mirror-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const [bare, away] = [join(folder, "mirror.git"), join(folder, "away.git")];
  execFileSync("git", ["init", "--quiet", "--bare", bare]);
  const hank = () => [codon("first", [writes("a.txt", "1\n")])];
  const daemon = await Daemon.start(context, hank, ["--mirror", bare, "--mirror-lease", "3600"]);
  const { page, faults } = await open(browser, daemon.page());
  await ended(page);
  const line = page.getByRole("region", { name: "Mirror" });
  await line.getByText(`Mirrored to ${bare}: all `).waitFor();
  await isAccessible(page, "a mirror");

  renameSync(bare, away);
  execFileSync(COMMAND, ["checkpoint", "-e", daemon.execution], { stdio: "ignore" });
  await line.getByText(`The mirror ${bare} cannot be reached since `).waitFor();
  await line.getByText("behind, at most").waitFor();

  renameSync(away, bare);
  await line.getByText(`Mirrored to ${bare}: all `).waitFor();

  execFileSync(COMMAND, ["mirror", "off", "-e", daemon.execution], { stdio: "ignore" });
  await line.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
});
