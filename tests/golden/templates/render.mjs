// Writes expected.json: what Eta itself, with Hankweave's options, makes of the templates of cases.json.
// Run it where eta is installed, when a case is added:  npm install eta@3.5.0 && TZ=UTC node render.mjs
import { readFileSync, writeFileSync } from "node:fs";
import { Eta } from "eta";

const { it, cases } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));
const expected = {};
for (const [name, template] of Object.entries(cases)) {
  const context = structuredClone(it);
  context.codon.startTime = new Date(it.codon.startTime);
  context.world.currentTime = new Date(it.world.currentTime);
  const eta = new Eta({ cache: true, autoEscape: false, rmWhitespace: false });
  try {
    expected[name] = { text: eta.renderString(template, context) };
  } catch (error) {
    expected[name] = { error: error.constructor.name };
  }
}
writeFileSync(new URL("expected.json", import.meta.url), `${JSON.stringify(expected, null, 2)}\n`);
