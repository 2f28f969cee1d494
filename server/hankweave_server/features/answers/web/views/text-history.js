/** When a text came into the files, and when it went: a search over all checkpoints. */
import { html, useState } from "../dom.js";
import { plural, visible } from "../format.js";
import { Dialog, Trouble } from "../parts/dialog.js";
import { detailOf, showCall, wordsOf } from "./who-wrote.js";

const MOST = 100;

/** @param {{session: import("../session.js").Session, onClose: () => void}} props */
export function TextHistory({ session, onClose }) {
  const [text, setText] = useState("");
  const [everywhere, setEverywhere] = useState(false);
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const search = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      setFound(await session.ask("file.pickaxe", { text, everywhere, limit: MOST }));
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  return html`<${Dialog} title="Where a text came from" onClose=${onClose} wide=${true}>
    <form onSubmit=${search}>
      <label>Text <input type="text" required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${everywhere} onChange=${(event) => setEverywhere(event.target.checked)} /> Also in what was rolled back</label>
      <${Trouble} error=${error} />
      ${found && html`<p role="status">${found.changes.length === 0 ? "No checkpoint has added or removed this text." : `${plural(found.changes.length, "change")}, newest first${found.hasMore ? "; there are older ones" : ""}.`}</p>
      <ul class="came" aria-label="Changes of the text">
        ${found.changes.map((/** @type {any} */ each) => html`<li key=${`${each.checkpointSha} ${each.path}`}>
          <button type="button" class="link" onClick=${() => showCall(session, each)}>
            ${each.after > each.before ? "Came" : "Went"} in <code>${visible(each.path)}</code>
          </button> <span>${wordsOf(session.store, each)}</span> <span class="hint">${detailOf(each)}</span>
        </li>`)}
      </ul>`}
      <footer>
        <button type="button" onClick=${onClose}>Close</button>
        <button type="submit" class="main" disabled=${isBusy}>${isBusy ? "Searching …" : "Search"}</button>
      </footer>
    </form>
  <//>`;
}
