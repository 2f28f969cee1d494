/** Who wrote each line of a file, beside its text: coloured by step, and a click leads to the call. */
import { html } from "../dom.js";
import { brief, dollars, time, visible } from "../format.js";
import { useAnswer } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";

const HUES = 137; // Degrees between two steps: neighbours in the plan differ much.

/** @typedef {import("hankweave").ChangeAuthor} Author */

/** @param {{session: import("../session.js").Session, sha: string, path: string}} props */
export function WhoWrote({ session, sha, path }) {
  const answer = useAnswer(() => session.ask("file.blame", { path, at: sha }), [sha, path]);
  const { store } = session;
  return html`<div class="who" role="group" aria-label=${`Who wrote ${visible(path)}`}>
    ${(answer.data?.ranges ?? []).map((/** @type {any} */ range) => {
      const { from, to } = range;
      const lines = from === to ? `Line ${from}` : `Lines ${from} to ${to}`;
      const words = wordsOf(store, range);
      return html`<button
        type="button"
        key=${from}
        class=${`by-${range.by}`}
        style=${{ "--lines": to - from + 1, "--hue": hueOf(store, range.codonId) }}
        title=${detailOf(range)}
        aria-label=${`${lines}: ${words}, ${detailOf(range)}`}
        onClick=${() => showCall(session, range)}
      >${words}</button>`;
    })}
  </div>`;
}

/** Who it was, in a word or two. @param {import("../store.js").Store} store @param {Author} author */
export function wordsOf(store, { by, codonId }) {
  if (by === "person") return "you";
  return by === "agent" && codonId != null ? visible(titleOfCodon(store.state, codonId)) : "start";
}

/** @param {Author} author */
export function detailOf({ call, timestamp, cost, checkpointSha }) {
  const parts = [call && visible(call), time(timestamp), cost != null && dollars(cost), brief(checkpointSha)];
  return parts.filter(Boolean).join(" · ");
}

/** Shows a call in the transcript of its step, or what else changed the file in its checkpoint. */
export function showCall(
  /** @type {import("../session.js").Session} */ session,
  /** @type {Author} */ { by, codonId, eventSeq, checkpointSha },
) {
  const isCall = by === "agent" && codonId != null && eventSeq != null;
  session.look({
    dialog: null,
    compare: null,
    step: null,
    tab: isCall ? "transcript" : "changes",
    // The checkpoint has what the call wrote, and so belongs to its step.
    moment: isCall ? { sha: checkpointSha, call: eventSeq } : { sha: checkpointSha },
  });
}

const hueOf = (/** @type {any} */ store, /** @type {string | null | undefined} */ codonId) => {
  const at = store.state.executionPlan.findIndex((/** @type {any} */ each) => each.codonId === codonId);
  return (at * HUES) % 360;
};
