/** Retry: from where the step began, or on the files as they are. */
import { html, useState } from "../dom.js";
import { visible } from "../format.js";
import { Button } from "../parts/basics.js";
import { Decision } from "../parts/decision.js";
import { Obstacle, Trouble } from "../parts/dialog.js";
import { standingOf, titleOfCodon } from "../standing.js";
import { Consequences, Exceptions, usePreview } from "./consequences.js";
import { More, afterwards, asOf } from "./rollback.js";
import { useSending } from "./sending.js";

const NONE = { added: [], updated: [], removed: [], kept: [], conflicts: [], skipped: [], totals: undefined };
const LATER = "A later step has run: this one can only begin where it began.";

/** @param {import("./rollback.js").Place & {codonId: string}} props */
export function RetryCard({ session, codonId, isSheet, onClose }) {
  const { store } = session;
  const name = visible(titleOfCodon(store.state, codonId));
  const isNewest = standingOf(store).followed === codonId;
  const [isFromStart, setFromStart] = useState(true);
  const [options, setOptions] = useState({ keepEdits: true, rewindMemory: false, reason: "" });
  const change = (/** @type {object} */ changes) => setOptions({ ...options, ...changes });
  const target = { codonId, checkpointType: "start" };
  const preview = usePreview(session, target, options.keepEdits);
  const { report, error } = preview;
  const { reason, ...rest } = options;
  const sending = useSending(
    session,
    isFromStart
      ? {
          type: "rollback.toCodon",
          data: { ...target, ...rest, autoRestart: true, onRunning: "refuse", ...(reason ? { reason } : {}) },
          onDone: (done) => session.look(afterwards(target, true, done)),
          late: () => `${name} runs again.`,
        }
      : {
          type: "codon.redo",
          data: {},
          onDone: () => session.look({ dialog: null, note: `${name} runs again.` }),
          late: () => `${name} runs again.`,
        },
  );
  const cannot = isFromStart ? report === null : !isNewest;
  const go = () => !cannot && sending.go();
  const choice = (/** @type {boolean} */ fromStart, /** @type {string} */ title, /** @type {any} */ says, isOff = false) =>
    html`<label class="choice">
      <input type="radio" name="retry" checked=${isFromStart === fromStart} disabled=${isOff} onChange=${() => setFromStart(fromStart)} />
      <span>${title}<span class="hint">${says}</span></span>
    </label>`;
  return html`<${Decision} title=${`Retry ${name}`} isSheet=${isSheet} onClose=${onClose} onEnter=${go}>
    <fieldset class="choices">
      <legend class="hidden">Where it begins</legend>
      ${choice(true, "From its own start", report ? `${asOf(store, report)} Everything is saved first; undo takes it back.` : "The files go back to where it began.")}
      ${choice(false, "On the files as they are", isNewest ? "No file changes: what it wrote and your edits stay." : LATER, !isNewest)}
    </fieldset>
    ${isFromStart && html`<${Trouble} error=${error} />`}
    ${report === null && !error && html`<p class="hint">Working out what would change …</p>`}
    ${report !== null && html`
      <${Consequences}
        session=${session}
        preview=${isFromStart ? preview : { ...preview, report: { ...report, ...NONE } }}
        keepEdits=${options.keepEdits}
        onKeepEdits=${(/** @type {boolean} */ keepEdits) => change({ keepEdits })}
      />
      ${isFromStart && html`
        <${Exceptions} report=${report} rewinds=${options.rewindMemory} />
        <${More} options=${options} change=${change} has=${["rewindMemory"]} />`}`}
    <${Trouble} error=${sending.error} />
    <${Obstacle} session=${session} isBusy=${sending.isBusy} />
    <footer>
      <${Button} look="primary" hotkey="Enter" isBusy=${sending.isBusy || cannot} why=${session.obstacle} onClick=${go}>
        ${sending.isBusy ? "Working …" : "Retry"}
      <//>
      <button type="button" onClick=${onClose}>Cancel</button>
    </footer>
  <//>`;
}
