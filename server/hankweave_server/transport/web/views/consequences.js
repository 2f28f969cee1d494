/**
 * What follows from going back, as a preview of the server has it: what returns, what goes, what of
 * a person's is kept, what runs again. Each with its number, and its list where that is asked for.
 */
import { html, useState } from "../dom.js";
import { countsOf } from "../files.js";
import { bytes, plural, price, roughly, visible } from "../format.js";
import { Delta, Tag } from "../parts/basics.js";
import { Consequence } from "../parts/decision.js";
import { Diff } from "../parts/diff.js";
import { useAnswer } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";

const AT_FIRST = 50;
const AHEAD = "The agents keep their conversations, and are told what was rolled back; More has another choice.";
const VERBS = { added: "restored", updated: "changed", removed: "deleted", kept: "left unchanged" };

/**
 * The preview of a rollback, and the differences of its files once they are asked for.
 * @param {import("../session.js").Session} session
 * @param {any} aim the fields that name its target @param {boolean} keepEdits
 */
export function usePreview(session, aim, keepEdits) {
  const [wants, want] = useState(false);
  const inputs = [JSON.stringify(aim), keepEdits];
  const ask = (/** @type {boolean} */ patch) => session.ask("rollback.preview", { ...aim, keepEdits, patch });
  const { data, error } = useAnswer(() => ask(false), inputs);
  const exact = useAnswer(() => (wants ? ask(true) : Promise.resolve(null)), [...inputs, wants]);
  const diffs = exact.data === null ? null : new Map(exact.data.diffs?.map((/** @type {any} */ each) => [each.path, each]));
  return { report: data, error, diffs, want: () => want(true) };
}

/**
 * @param {{session: import("../session.js").Session, preview: any, keepEdits: boolean,
 *   onKeepEdits: (keep: boolean) => void}} props
 */
export function Consequences({ session, preview, keepEdits, onKeepEdits }) {
  const { report } = preview;
  const { added, updated, removed, kept, conflicts } = countsOf(report);
  const returns = added + updated;
  const yours = keepEdits ? Math.max(kept, 0) : conflicts;
  const again = report.runsAgain;
  const list = (/** @type {any[]} */ files, /** @type {number} */ all) =>
    html`<${FileList} files=${files} all=${all} preview=${preview} />`;
  return html`<ul class="consequences" aria-label="Consequences">
    <${Consequence} icon="undo" role="good" title="return to earlier content" value=${filesText(returns)} isNone=${returns === 0}>
      ${list([...filesOf(report, "updated"), ...filesOf(report, "added")], returns)}
    <//>
    <${Consequence} icon="minus" role="bad" title="go away" value=${filesText(removed)} isNone=${removed === 0}>
      ${list(filesOf(report, "removed"), removed)}
    <//>
    <${Consequence}
      icon="dot"
      role="person"
      title=${keepEdits || conflicts === 0 ? "your own edits, kept" : "your own edits, overwritten"}
      value=${filesText(yours)}
      isNone=${yours === 0}
    >
      ${list(keepEdits ? filesOf(report, "kept") : conflictsOf(report), yours)}
    <//>
    ${conflicts > 0 && html`<li class="keep">
      <label>
        <input type="checkbox" checked=${keepEdits} onChange=${(event) => onKeepEdits(event.target.checked)} /> Keep edits made by people
      </label>
    </li>`}
    <${Consequence} icon="again" role="ink" title="run again" value=${againText(again)} isNone=${!again?.total}>
      <${StepList} session=${session} again=${again} />
    <//>
  </ul>`;
}

const filesText = (/** @type {number} */ n) => (n === 0 ? "none" : plural(n, "file"));

/** @param {import("hankweave").RunsAgain | undefined} again */
export function againText(again) {
  if (!again?.total) return "none";

  const { estimatedCost: cost, estimatedMs: ms } = again;
  const about = [cost == null ? null : `~${price(cost)}`, ms == null ? null : roughly(ms).replaceAll(" ", "\u00a0")];
  return [plural(again.total, "step"), ...about].filter(Boolean).join(", ");
}

function StepList({ session, again }) {
  const { codonIds, total } = again;
  return html`<ol>
    ${codonIds.map((/** @type {string} */ id) => html`<li key=${id}>${visible(titleOfCodon(session.store.state, id))}</li>`)}
    ${total > codonIds.length && html`<li class="hint">and ${total - codonIds.length} more</li>`}
  </ol>`;
}

/** @param {any} report @param {"added" | "updated" | "removed" | "kept"} what */
function filesOf(report, what) {
  const edited = new Set(report.conflicts.map((/** @type {any} */ each) => each.path));
  return report[what].map((/** @type {any} */ { path, bytes: size }) => ({ path, size, what, isYours: edited.has(path) }));
}

/** Each file with what would become of it, deletions first. @param {any} report */
export function allFilesOf(report) {
  return [...filesOf(report, "removed"), ...filesOf(report, "updated"), ...filesOf(report, "added"), ...filesOf(report, "kept")];
}

function conflictsOf(report) {
  return allFilesOf(report).filter(({ isYours }) => isYours);
}

/**
 * @param {{files: any[], all: number, preview: any, ticked?: Set<string>,
 *   onTick?: (path: string) => void}} props `ticked`: those that are chosen, where one can choose
 */
export function FileList({ files, all, preview, ticked, onTick }) {
  const [shown, setShown] = useState(AT_FIRST);
  const listed = files.slice(0, shown);
  return html`<ul class="foreseen" aria-label="What would change">
      ${listed.map((file) => html`<${Foreseen} key=${file.path} file=${file} preview=${preview} isTicked=${ticked?.has(file.path)} onTick=${onTick} />`)}
    </ul>
    ${files.length > shown && html`<button type="button" class="link" onClick=${() => setShown(shown + AT_FIRST)}>
      Show more of ${plural(files.length, "file")}
    </button>`}
    ${all > files.length && html`<p class="hint">${plural(all - files.length, "more file")}; the comparison with the checkpoint lists all.</p>`}`;
}

function Foreseen({ file, preview, isTicked, onTick }) {
  const [isOpen, setOpen] = useState(false);
  const { path, what, size, isYours } = file;
  const diff = preview.diffs?.get(path);
  const hasDiff = what !== "kept" && (preview.diffs === null || Boolean(diff?.patch));
  const turn = () => {
    preview.want();
    setOpen(!isOpen);
  };
  const name = html`<span class="path">${visible(path)}</span> ${isYours && html`<${Tag} role="person">yours<//>`}
    <span class="sort">${VERBS[what]}${size === undefined ? "" : `, ${bytes(size)}`}</span>`;
  return html`<li class=${`what-${what}`}>
    ${onTick ? html`<label><input type="checkbox" checked=${isTicked} onChange=${() => onTick(path)} /> ${name}</label>` : html`<div>${name}</div>`}
    ${hasDiff && html`<button type="button" class="link" aria-expanded=${isOpen} onClick=${turn}>
      ${isOpen ? "Hide" : "Show"}<span class="hidden"> the difference of ${visible(path)}</span> ${diff && html`<${Delta} added=${diff.added} removed=${diff.removed} />`}
    </button>`}
    ${isOpen && (diff?.patch ? html`<${Diff} patch=${diff.patch} label=${`Changes to ${visible(path)}`} />` : preview.diffs === null && html`<p class="hint">Comparing …</p>`)}
  </li>`;
}

/**
 * What is not as one would expect: what stays as it is, and what is not undone.
 * @param {{report: any, rewinds: boolean}} props `rewinds`: the conversations go back, too
 */
export function Exceptions({ report, rewinds }) {
  const { skipped, externalEffects = [], warnings = [], cannotRestore = [], note } = report;
  const counts = countsOf(report);
  const told = warnings.filter((/** @type {any} */ { kind }) => kind !== "conversation");
  const isAhead = !rewinds && told.length < warnings.length;
  const unrestored = counts.cannotRestore ?? cannotRestore.length;
  return html`
    ${note && html`<p class="hint">${visible(note)}</p>`}
    ${unrestored > 0 && html`<${Aside} open=${true} title=${`${plural(unrestored, "path")} cannot be changed; all others can`}
      lines=${cannotRestore.map((/** @type {any} */ each) => each.sentence)} all=${unrestored} />`}
    ${told.map((/** @type {any} */ { path, sentence }) => html`<p class="warn" key=${`${path}: ${sentence}`}>
      ${path && html`<span class="path">${visible(path)}</span>: `}${visible(sentence)}
    </p>`)}
    ${counts.skipped > 0 && html`<${Aside} title=${`${plural(counts.skipped, "path")} cannot be restored and ${counts.skipped === 1 ? "is" : "are"} left unchanged`}
      lines=${skipped.map((/** @type {any} */ each) => `${each.path}: ${each.reason}`)} all=${counts.skipped} />`}
    ${externalEffects.length > 0 && html`<${Aside} title=${`Done outside the work tree, not undone: ${externalEffects.length}`} lines=${externalEffects} all=${externalEffects.length} />`}
    ${isAhead && html`<p class="hint">${AHEAD}</p>`}`;
}

function Aside({ title, lines, all, open = false }) {
  return html`<details class="exception" open=${open}>
    <summary>${title}</summary>
    <ul>
      ${lines.map((/** @type {string} */ line) => html`<li key=${line}>${visible(line)}</li>`)}
      ${all > lines.length && html`<li>and ${all - lines.length} more</li>`}
    </ul>
  </details>`;
}
