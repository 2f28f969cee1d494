/** The files that changed lately. */
import { html } from "../dom.js";
import { bytes, visible } from "../format.js";

const ACTIONS = { created: "+", modified: "~", deleted: "−" };
const SHOWN = 200;

/** The files that changed, newest first. @param {{session: import("../session.js").Session}} props */
export function ChangedFilesList({ session }) {
  const all = [...session.store.files.values()].reverse();
  if (all.length === 0) return html`<p class="empty">No file has changed yet.</p>`;

  return html`<ul class="changed" tabindex="0" aria-label="Newest first">
    ${all.slice(0, SHOWN).map(
      ({ path, action, bytes: size, source, seq }) => html`<li key=${path}>
        <button
          class=${`file a-${action}`}
          onClick=${() => open(session, path, action, seq)}
          title="Show it in the first checkpoint that contains it"
        >
          <span aria-hidden="true">${ACTIONS[action]}</span>
          <span class="path">${visible(path)}</span>
          <span class="hidden">, ${action}</span>
          <span class="size">
            ${action === "deleted" || size === undefined ? "" : bytes(size)}${source.kind === "person" ? " by hand" : ""}
          </span>
        </button>
      </li>`,
    )}
  </ul>
  ${all.length > SHOWN && html`<p class="empty">and ${all.length - SHOWN} more</p>`}`;
}

/** The moment of the change itself has no files: the checkpoint that follows it does. */
function open(session, path, action, seq) {
  const found = session.store.firstCheckpointAfter(seq);
  if (found === null) {
    session.say("No checkpoint has this change yet. Take one with Checkpoint … (key c), or wait.");
    return;
  }
  const moment = action === "deleted" ? { sha: found.sha } : { sha: found.sha, path };
  session.look({ tab: "checkpoints", moment });
}
