/** The attempts, as the gallery shows them. */
import { html } from "./dom.js";
import { DIFF, MINUTE, sessionOf } from "./gallery-views.js";
import { join } from "./places.js";
import { Attempts } from "./views/attempts.js";

const VARIANTS = ["strip the blanks", "drop the rows", "ask a person", "by another model", "too dear"];
const ATTEMPTS = VARIANTS.map((name, at) => ({
  attemptId: `e-${at + 1}`,
  variant: { name },
  status: ["completed", "completed", "failed", "running", "discarded"][at],
  cost: 0.12 * (at + 1),
  ...(at < 2 ? { score: 41 - at, durationMs: MINUTE * (at + 2), files: 2, added: 14, removed: 3, checkpointSha: `e${at}` } : {}),
}));
const EXPLORED = {
  explorations: [{ explorationId: "e", codonId: "check", score: "wc -l", attempts: ATTEMPTS, judgement: { error: "No model answered." } }],
  answers: { "exploration.compare": DIFF, "checkpoint.diff": DIFF },
};

join({ samples: [["Attempts", () => html`<${Attempts} session=${sessionOf(EXPLORED)} codonId="check" />`]] });
