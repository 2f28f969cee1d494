/** Going back: exactly what would change first, then whole, or the files that are ticked. */
import { html, useMemo, useState } from "../dom.js";
import { countsOf } from "../files.js";
import { brief, bytes, plural, visible } from "../format.js";
import { titleOf } from "../kinds.js";
import { Diff } from "../parts/diff.js";
import { Dialog, Obstacle, Trouble } from "../parts/dialog.js";
import { useAnswer, useOpen } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";
import { activeCodon } from "../state.js";

const BEHIND = {
  message: "The execution has moved on since this was opened.",
  hint: "Close this dialog, check the current state, and decide again.",
};
const AHEAD =
  "The agents' conversations stay ahead of the files; the next agent is told what was rolled back. To rewind them too, tick “Agents and sentinels also forget what came after”.";
const AT_FIRST = 200;

/**
 * @param {{session: import("../session.js").Session, target: {sha?: string, attemptId?: string, direction?: "undo" | "redo",
 *   codonId?: string, checkpointType?: string, autoRestart?: boolean},
 *   onClose: () => void}} props
 */
export function RollbackDialog({ session, target, onClose }) {
  const { store } = session;
  const [guard] = useState(session.guard);
  const [options, setOptions] = useState({
    keepEdits: false,
    rewindMemory: target.attemptId !== undefined, // Its conversation belongs to an attempt.
    autoRestart: target.autoRestart ?? false,
    onRunning: "stop",
    reason: "",
  });
  const [isWhole, setWhole] = useState(true);
  const [ticked, setTicked] = useState(/** @type {Set<string>} */ (new Set()));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [shown, setShown] = useState(AT_FIRST);
  const isOpen = useOpen();
  const aim = aimOf(target);
  const preview = useAnswer(
    () => session.ask("rollback.preview", { ...aim, keepEdits: options.keepEdits, patch: true }),
    [options.keepEdits],
  );
  const report = preview.data;
  const files = useMemo(() => (report ? moved(report) : []), [report]);
  const active = activeCodon(store.state);
  const change = (changes) => setOptions({ ...options, ...changes });
  const tick = (path) => {
    const next = new Set(ticked);
    if (!next.delete(path)) next.add(path);
    setTicked(next);
  };

  const go = async () => {
    if (session.obstacle !== null) return;
    if (session.guard.expectedRunId !== guard.expectedRunId) return setError(BEHIND);

    setBusy(true);
    setError(null);
    try {
      const [type, data] = order(target, options, guard, isWhole ? null : [...ticked], active);
      /** @type {import("hankweave").RollbackReport} */
      const done = await session.ask(type, data);
      if (!isOpen.current) return session.say(said(target, done));
      session.look({
        dialog: null,
        note: said(target, done),
        moment: { sha: done.target.checkpointSha },
      });
    } catch (failure) {
      if (!isOpen.current) session.say(/** @type {Error} */ (failure).message);
      setError(failure);
      setBusy(false);
    }
  };
  const all = report ? numberOf(report) : 0;
  const chosen = isWhole ? all : files.filter((file) => ticked.has(file.path)).length;
  return html`<${Dialog} title=${titled(target, store)} onClose=${onClose} wide=${true}>
    <${Trouble} error=${preview.error} />
    ${report === null && !preview.error && html`<p class="empty">Working out what would change …</p>`}
    ${
      report !== null &&
      html`
      <${Summary} report=${report} rewinds=${!isWhole || options.rewindMemory} />
      ${
        !target.direction &&
        html`<fieldset>
        <legend>What to restore</legend>
        <label>
          <input
            type="radio"
            name="extent"
            checked=${isWhole}
            onChange=${() => setWhole(true)}
          /> Everything: the files and the position in the plan; a new run starts here
        </label>
        <label>
          <input
            type="radio"
            name="extent"
            checked=${!isWhole}
            onChange=${() => setWhole(false)}
          /> Only the files I tick; nothing else changes
        </label>
      </fieldset>`
      }
      <ul class="foreseen" aria-label="What would change">
        ${files.slice(0, shown).map((file) => html`
          <${Foreseen}
            key=${file.path}
            file=${file}
            isTicked=${isWhole || ticked.has(file.path)}
            canTick=${!isWhole}
            onTick=${() => tick(file.path)}
          />`)}
      </ul>
      ${files.length > shown && html`
        <button type="button" onClick=${() => setShown(shown + AT_FIRST)}>
          Show more of ${plural(files.length, "file")}
        </button>`}
      ${all > files.length && html`
        <p class="empty">
          ${plural(all - files.length, "more file")} would change; the comparison with the checkpoint lists all.
        </p>`}
      <${Options}
        options=${options}
        change=${change}
        active=${active}
        hasConflicts=${report.conflicts.length > 0}
        isWhole=${isWhole}
        isTravel=${Boolean(target.direction)}
      />
    `
    }
    <${Trouble} error=${error} />
    <${Obstacle} session=${session} isBusy=${isBusy} />
    <footer>
      <button onClick=${onClose}>Cancel</button>
      <button
        class="main danger"
        disabled=${isBusy || report === null || (!isWhole && chosen === 0)}
        aria-disabled=${session.obstacle !== null}
        onClick=${go}
      >
        ${isBusy ? "Working …" : label(target, isWhole, chosen)}
      </button>
    </footer>
  <//>`;
}

function Summary({ report, rewinds }) {
  const { skipped, externalEffects = [], warnings = [], cannotRestore = [] } = report;
  const counts = countsOf(report);
  const unlisted = counts.skipped - skipped.length;
  const unrestored = counts.cannotRestore ?? 0;
  return html`
    <p>
      ${plural(counts.updated, "file")} would be changed, ${counts.added} restored, <strong>${counts.removed} deleted</strong>.
      The current files are saved in a safety checkpoint first, so that you can undo this.
    </p>
    ${counts.conflicts > 0 && html`
      <p class="warn">
        ${plural(counts.conflicts, "file")} of these ${counts.conflicts === 1 ? "was" : "were"} changed by a person since an agent last wrote ${counts.conflicts === 1 ? "it" : "them"}.
      </p>`}
    ${warnings
      .filter((each) => each.kind !== "conversation" || !rewinds)
      .map(
        ({ kind, path, sentence }) => html`
          <p class="warn" key=${`${path}: ${sentence}`}>
            ${path && html`<span class="path">${visible(path)}</span>: `}
            ${kind === "conversation" ? AHEAD : visible(sentence)}
          </p>`,
      )}
    ${
      counts.skipped > 0 &&
      html`
        <details>
          <summary>
            ${plural(counts.skipped, "path")} cannot be restored and ${counts.skipped === 1 ? "is" : "are"} left unchanged
          </summary>
      <ul>${skipped.map((each) => html`
        <li key=${each.path}>
          ${visible(each.path)}: ${each.reason}
        </li>`)}</ul>${unlisted > 0 && html`<p>and ${unlisted} more</p>`}</details>`
    }
    ${
      unrestored > 0 &&
      html`
        <details open>
          <summary>
            ${plural(unrestored, "path")} cannot be changed; all others can
          </summary>
      <ul>${cannotRestore.map((each) => html`
        <li key=${each.path}>${visible(each.sentence)}</li>`)}</ul></details>`
    }
    ${
      externalEffects.length > 0 &&
      html`
        <details>
          <summary>What was done outside the work tree is not undone</summary>
      <ul>${externalEffects.map((each) => html`<li key=${each}>${visible(each)}</li>`)}</ul></details>`
    }`;
}

const VERBS = {
  added: "restored",
  updated: "changed",
  removed: "deleted",
  kept: "left unchanged",
};
const SIGNS = { added: "+", updated: "~", removed: "−", kept: "=" };

function Foreseen({ file, isTicked, canTick, onTick }) {
  const [isOpen, setOpen] = useState(false);
  const { path, what, size, isConflict, diff } = file;
  return html`<li class=${`what-${what}`}>
    <div class="line">
      <label>
        <input type="checkbox" checked=${isTicked} disabled=${!canTick} onChange=${onTick} />
        <span aria-hidden="true">${SIGNS[what]}</span> <span class="path">${visible(path)}</span>
        <span class="sort">${VERBS[what]}${size === undefined ? "" : `, ${bytes(size)}`}</span>
        ${isConflict && html`<span class="tag bad">edited by a person</span>`}
      </label>
      ${diff?.patch && html`
        <button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
          ${isOpen ? "Hide" : "Show"} <span class="hidden">the difference of ${visible(path)} </span>+${diff.added} −${diff.removed}
        </button>`}
    </div>
    ${isOpen && html`<${Diff} patch=${diff.patch} label=${`Changes to ${visible(path)}`} />`}
  </li>`;
}

function Options({ options, change, active, hasConflicts, isWhole, isTravel }) {
  const check = (key, words) =>
    html`
      <label>
        <input
          type="checkbox"
          checked=${options[key]}
          onChange=${(event) => change({ [key]: event.target.checked })}
        /> ${words}
      </label>`;
  return html`<fieldset>
    <legend>How</legend>
    ${(hasConflicts || options.keepEdits) && check("keepEdits", "Keep edits made by people")}
    ${isWhole && !isTravel && check("rewindMemory", "Agents and sentinels also forget what came after")}
    ${isWhole && !isTravel && check("autoRestart", "Continue the plan afterwards")}
    ${
      active !== null &&
      html`<label>Codon ${visible(active.codonId)} is running:
      <select
        value=${options.onRunning}
        onChange=${(event) => change({ onRunning: event.target.value })}
      >
        <option value="stop">stop it first; it ends as failed</option>
        <option value="pause">pause it and let it continue afterwards</option>
        <option value="refuse">do not roll back while it runs</option>
      </select></label>`
    }
    <label>
      Reason (optional; the agent is told) <input value=${options.reason} onInput=${(event) => change({ reason: event.target.value })} />
    </label>
  </fieldset>`;
}

function numberOf(report) {
  const { added, updated, removed, kept } = countsOf(report);
  return added + updated + removed + kept;
}

/** Each file with what would become of it, deletions first. */
function moved({ added, updated, removed, kept, conflicts, diffs = [] }) {
  const edited = new Set(conflicts.map((each) => each.path));
  const patches = new Map(diffs.map((each) => [each.path, each]));
  const listed = (files, what) =>
    files.map(({ path, bytes: size }) => ({
      path,
      what,
      size,
      isConflict: edited.has(path),
      diff: patches.get(path),
    }));
  return [
    ...listed(removed, "removed"),
    ...listed(updated, "updated"),
    ...listed(added, "added"),
    ...listed(kept, "kept"),
  ];
}

/** @param {any} target */
function aimOf({ direction, codonId, checkpointType, sha }) {
  if (direction) return { direction };
  return codonId ? { codonId, checkpointType } : { checkpointSha: sha };
}

/** @returns {["rollback.undo" | "rollback.redo" | "rollback.toCheckpoint" | "rollback.toCodon", any]} */
function order(target, options, guard, paths, active) {
  const { reason, onRunning, keepEdits, rewindMemory, autoRestart } = options;
  const common = {
    ...guard,
    keepEdits,
    onRunning: active === null ? "refuse" : onRunning,
    ...(reason ? { reason } : {}),
  };
  if (target.direction)
    return [target.direction === "undo" ? "rollback.undo" : "rollback.redo", common];

  const own = paths === null ? { rewindMemory, autoRestart } : { paths };
  if (target.codonId) return ["rollback.toCodon", { ...common, ...aimOf(target), ...own }];
  return ["rollback.toCheckpoint", { ...common, checkpointSha: target.sha, ...own }];
}

function titled(target, store) {
  if (target.direction)
    return target.direction === "undo" ? "Undo the last rollback" : "Redo what was undone";

  if (target.attemptId) return `Adopt attempt ${visible(target.attemptId)}`;

  if (target.codonId) return `Back to before ${visible(titleOfCodon(store.state, target.codonId))}`;

  const record = store.bySha.get(target.sha);
  return `Roll back to ${record ? visible(titleOf(record)) : brief(target.sha ?? "")}`;
}

function label(target, isWhole, chosen) {
  if (target.direction) return target.direction === "undo" ? "Undo it" : "Redo it";
  return isWhole ? "Roll everything back" : `Roll ${plural(chosen, "file")} back`;
}

function said(target, report) {
  const { added, updated, removed, cannotRestore = 0 } = countsOf(report);
  const verb = { undo: "Undone", redo: "Redone" }[target.direction ?? ""] ?? "Rolled back";
  const told = `${verb}: ${plural(added + updated + removed, "file")} changed.`;
  return cannotRestore ? `${told} ${plural(cannotRestore, "path")} could not be restored.` : told;
}
