/** Going back: what follows first; then whole, or the files that are ticked; then what was done. */
import { html, useState } from "../dom.js";
import { countsOf } from "../files.js";
import { brief, plural, time, visible } from "../format.js";
import { titleOf } from "../kinds.js";
import { Button } from "../parts/basics.js";
import { Decision } from "../parts/decision.js";
import { Obstacle, Trouble } from "../parts/dialog.js";
import { titleOfCodon } from "../standing.js";
import { activeCodon } from "../state.js";
import { Consequences, Exceptions, FileList, allFilesOf, usePreview } from "./consequences.js";
import { useSending } from "./sending.js";

/**
 * @typedef {{sha?: string, attemptId?: string, direction?: "undo" | "redo", codonId?: string,
 *   checkpointType?: string, autoRestart?: boolean}} Target
 * @typedef {{session: import("../session.js").Session, isSheet: boolean, onClose: () => void}} Place
 */

/** @param {Place & {target: Target}} props */
export function RollbackCard({ session, target, isSheet, onClose }) {
  const { store } = session;
  const [options, setOptions] = useState({
    keepEdits: true,
    rewindMemory: target.attemptId !== undefined, // Its conversation belongs to an attempt.
    autoRestart: target.autoRestart ?? false,
    onRunning: "stop",
    reason: target.attemptId === undefined ? "" : `Adopted attempt ${target.attemptId}.`,
  });
  const [ticked, setTicked] = useState(/** @type {Set<string> | null} */ (null));
  const isWhole = ticked === null;
  // A file that is ticked goes back, whoever changed it.
  const keepEdits = isWhole && options.keepEdits;
  const preview = usePreview(session, aimOf(target), keepEdits);
  const { report } = preview;
  const active = activeCodon(store.state);
  const change = (/** @type {object} */ changes) => setOptions({ ...options, ...changes });
  const tick = (/** @type {string} */ path) => {
    const next = new Set(ticked);
    if (!next.delete(path)) next.add(path);
    setTicked(next);
  };
  const sending = useSending(session, {
    type: typeOf(target),
    data: orderOf(target, { ...options, keepEdits }, ticked, active),
    onDone: (done) => session.look(afterwards(target, isWhole, done)),
    late: (done) => said(target, done),
  });
  const chosen = ticked?.size ?? 0;
  const cannot = report === null || (!isWhole && chosen === 0);
  const go = () => !cannot && sending.go();
  return html`<${Decision} title=${titleOfTarget(target, store)} isSheet=${isSheet} onClose=${onClose} onEnter=${go}>
    <${Trouble} error=${preview.error} />
    ${report === null && !preview.error && html`<p class="hint">Working out what would change …</p>`}
    ${report !== null && html`
      <p class="hint">${asOf(store, report)} Everything is saved first; ${target.direction === "undo" ? "redo" : "undo"} takes it back.</p>
      ${isWhole
        ? html`<${Consequences} session=${session} preview=${preview} keepEdits=${keepEdits} onKeepEdits=${(/** @type {boolean} */ keep) => change({ keepEdits: keep })} />`
        : html`<p>Only the files that you tick; nothing else changes.</p>
          <${FileList} files=${allFilesOf(report)} all=${numberOf(report)} preview=${preview} ticked=${ticked} onTick=${tick} />`}
      <${Exceptions} report=${report} rewinds=${!isWhole || options.rewindMemory} />
      ${active !== null && html`<${OfRunning} name=${titleOfCodon(store.state, active.codonId)} options=${options} change=${change} />`}
      <${More} options=${options} change=${change} has=${isWhole && !target.direction ? ["rewindMemory", "autoRestart"] : []} />`}
    <${Trouble} error=${sending.error} />
    <${Obstacle} session=${session} isBusy=${sending.isBusy} />
    <footer>
      <${Button} look="primary" hotkey="Enter" isBusy=${sending.isBusy || cannot} why=${session.obstacle} onClick=${go}>
        ${sending.isBusy ? "Working …" : label(target, ticked)}
      <//>
      ${report !== null && !target.direction && html`<button type="button" disabled=${sending.isBusy} onClick=${() => setTicked(isWhole ? new Set() : null)}>
        ${isWhole ? "Only some files…" : "Everything"}
      </button>`}
    </footer>
  <//>`;
}

/** What becomes of the step that runs. */
function OfRunning({ name, options, change }) {
  return html`<label>${visible(name)} is running:
    <select value=${options.onRunning} onChange=${(event) => change({ onRunning: event.target.value })}>
      <option value="stop">stop it first; it ends as failed</option>
      <option value="pause">pause it and let it continue afterwards</option>
      <option value="refuse">do not roll back while it runs</option>
    </select>
  </label>`;
}

const CHECKS = {
  rewindMemory: "Agents and sentinels also forget what came after",
  autoRestart: "Continue the plan afterwards",
};

/** What is rarely asked for. @param {{options: any, change: (changes: object) => void, has: string[]}} props */
export function More({ options, change, has }) {
  return html`<details class="more-options">
    <summary>More</summary>
    ${has.map((key) => html`<label key=${key}>
      <input type="checkbox" checked=${options[key]} onChange=${(event) => change({ [key]: event.target.checked })} /> ${CHECKS[key]}
    </label>`)}
    <label>
      Reason (optional; the agent is told) <input value=${options.reason} onInput=${(event) => change({ reason: event.target.value })} />
    </label>
  </details>`;
}

/** What was done, until it is closed, and the way back. @param {Place & {report: {target: Target, done: any}}} props */
export function RollbackReport({ session, report: { target, done }, isSheet, onClose }) {
  const { cannotRestore = [], inWords, safety } = done;
  const way = target.direction === "undo" ? "redo" : "undo";
  const again = () => session.look({ report: null, dialog: { kind: "rollback", target: { direction: way } } });
  return html`<${Decision} title=${said(target, done)} isSheet=${isSheet} isReport=${true} onClose=${onClose}>
    ${inWords && html`<p>${visible(inWords)}</p>`}
    ${cannotRestore.map((/** @type {any} */ each) => html`<p class="warn" key=${each.path}>${visible(each.sentence)}</p>`)}
    ${safety && html`<p class="hint">What was there before is checkpoint <code>${brief(safety.checkpointSha)}</code>.</p>`}
    <footer>
      <${Button} hotkey=${way === "undo" ? "u" : "U"} onClick=${again}>${way === "undo" ? "Undo…" : "Redo…"}<//>
      <button type="button" onClick=${onClose}>Close</button>
    </footer>
  <//>`;
}

/** What is looked at once it is done. @returns {Partial<import("../session.js").Looks>} */
export function afterwards(/** @type {Target} */ target, /** @type {boolean} */ isWhole, /** @type {any} */ done) {
  const report = { dialog: null, report: { target, done } };
  const isElsewhere = isWhole && target.attemptId === undefined && !target.direction;
  return isElsewhere ? { ...report, moment: null, compare: null, step: null } : { ...report, moment: null };
}

/** @param {import("../store.js").Store} store @param {any} report */
export function asOf(store, report) {
  const record = store.bySha.get(report.target.checkpointSha);
  return record ? `Files as of ${time(record.timestamp)}.` : `Files of checkpoint ${brief(report.target.checkpointSha)}.`;
}

function numberOf(report) {
  const { added, updated, removed, kept } = countsOf(report);
  return added + updated + removed + kept;
}

/** @param {Target} target */
function aimOf({ direction, codonId, checkpointType, sha }) {
  if (direction) return { direction };
  return codonId ? { codonId, checkpointType } : { checkpointSha: sha };
}

/** @param {Target} target @returns {keyof import("hankweave").Commands} */
function typeOf({ direction, codonId }) {
  if (direction) return direction === "undo" ? "rollback.undo" : "rollback.redo";
  return codonId ? "rollback.toCodon" : "rollback.toCheckpoint";
}

function orderOf(target, options, ticked, active) {
  const { reason, onRunning, keepEdits, rewindMemory, autoRestart } = options;
  const common = {
    keepEdits,
    onRunning: active === null ? "refuse" : onRunning,
    ...(reason ? { reason } : {}),
  };
  if (target.direction) return common;
  return { ...common, ...aimOf(target), ...(ticked === null ? { rewindMemory, autoRestart } : { paths: [...ticked] }) };
}

/** @param {Target} target @param {import("../store.js").Store} store */
function titleOfTarget(target, store) {
  if (target.direction)
    return target.direction === "undo" ? "Undo the last rollback" : "Redo what was undone";
  if (target.attemptId) return `Adopt attempt ${visible(target.attemptId)}`;
  if (target.codonId) return `Back to before ${visible(titleOfCodon(store.state, target.codonId))}`;

  const record = store.bySha.get(target.sha ?? "");
  return `Back to ${record ? visible(titleOf(record)) : brief(target.sha ?? "")}`;
}

function label(target, ticked) {
  if (ticked !== null) return `Take ${plural(ticked.size, "file")} back`;
  if (target.direction) return target.direction === "undo" ? "Undo it" : "Redo it";
  return target.attemptId ? "Adopt it" : "Go back";
}

/** @param {Target} target @param {any} report */
function said(target, report) {
  const { added, updated, removed, cannotRestore = 0 } = countsOf(report);
  const verb = { undo: "Undone", redo: "Redone" }[target.direction ?? ""] ?? (target.attemptId ? "Adopted" : "Rolled back");
  const told = `${verb}: ${plural(added + updated + removed, "file")} changed.`;
  return cannotRestore ? `${told} ${plural(cannotRestore, "path")} could not be restored.` : told;
}
