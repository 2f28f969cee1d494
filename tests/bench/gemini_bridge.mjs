// Runs the GitService of an installed Gemini CLI: node gemini_bridge.mjs BUNDLE PROJECT
// Each line of stdin is ["snapshot"] or ["restore", COMMIT]; each is answered by one line of JSON.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [bundle, project] = process.argv.slice(2);

async function found() {
  for (const name of readdirSync(bundle).filter((each) => /^core-.*\.js$/.test(each))) {
    const core = await import(join(bundle, name));
    if (core.GitService && core.Storage) return core;
  }
  throw new Error(`There is no GitService in ${bundle}`);
}

const { GitService, Storage } = await found();
const service = new GitService(project, new Storage(project));
await service.initialize();
process.stdout.write("[true]\n");
for await (const line of createInterface({ input: process.stdin })) {
  const [what, commit] = JSON.parse(line);
  const answer = what === "snapshot"
    ? await service.createFileSnapshot("checkpoint")
    : await service.restoreProjectFromSnapshot(commit);
  process.stdout.write(`${JSON.stringify([answer ?? true])}\n`);
}
process.exit(0);
