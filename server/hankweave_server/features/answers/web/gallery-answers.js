/** The notices of a search, as the gallery shows them. */
import { html } from "./dom.js";
import { CHECKPOINT, sessionOf } from "./gallery-views.js";
import { join } from "./places.js";
import { hearSearch } from "./searches.js";
import { SearchNotices } from "./views/search-notices.js";

const BEGUN = { bisectId: "b", command: "pytest -q tests/test_rows.py" };
const ENDED = { bisectId: "b", checkpointSha: CHECKPOINT.sha, codonId: "review#1", summary: CHECKPOINT.summary, suspects: [CHECKPOINT.sha] };

/** @param {boolean} isOver */
function searching(isOver) {
  const session = sessionOf();
  hearSearch(session.store, { type: "bisect.started", data: BEGUN, seq: 50 });
  for (const runs of [1, 2, 3]) hearSearch(session.store, { type: "bisect.progress", data: { bisectId: "b", runs } });
  if (isOver) hearSearch(session.store, { type: "bisect.ended", data: ENDED });
  return session;
}

join({
  samples: [
    ["SearchNotices", () => [false, true].map((isOver) => html`<div class="state-of"><section class="banners"><${SearchNotices} session=${searching(isOver)} /></section></div>`)],
  ],
});
