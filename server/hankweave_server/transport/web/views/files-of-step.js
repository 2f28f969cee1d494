/**
 * The files that the selected step changed, as the server compares them: from the step's start to
 * its end or, of the newest one, to the work tree. Nothing is counted up from events, so the list is
 * right after a rollback, an undo and a reload.
 */
import { html, useEffect, useState } from "../dom.js";
import { plural, time } from "../format.js";
import { nowSha, pastOf, stepOf } from "../moments.js";
import { Delta, Empty, Tag } from "../parts/basics.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer, useNowAndThen, useStore } from "../parts/hooks.js";
import { standingOf } from "../standing.js";
import { runNamed } from "../state.js";
import { ChangeName, Patch } from "./changes.js";
import { boundsOf } from "./step/changes.js";

const REST = 400; // Milliseconds between two comparisons while files change.
const SHOWN = 200;
const NOT_YET = "This step has not run yet.";

/** @typedef {{from: string, to?: string}} Span without `to`: up to the work tree */

/**
 * @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props
 */
export function FilesOfStep({ session, looks }) {
  const store = useStore(session.store);
  const { followed, ran } = standingOf(store);
  const past = pastOf(store, looks.moment);
  const codonId = stepOf(store, looks);
  const isAhead = past === null && codonId !== followed && !ran.has(codonId ?? "");
  const span = isAhead ? null : past === null ? spanOf(store, codonId) : spanUntil(store, past);
  return html`
    <h2>${past !== null && codonId === null ? "Files" : "Files of this step"}${past?.record && html` <span class="until">until ${time(past.record.timestamp)}</span>`}</h2>
    ${span === null
      ? html`<${Empty}>${isAhead ? NOT_YET : "There is no checkpoint yet."}<//>`
      : html`<${Files} key=${`${span.from} ${span.to}`} session=${session} span=${span} />`}`;
}

/** @param {{session: import("../session.js").Session, span: Span}} props */
function Files({ session, span }) {
  const { store } = session;
  const [opened, setOpened] = useState(/** @type {string | null} */ (null));
  const version = store.filesVersion + store.checkpointsVersion;
  const [asked, setAsked] = useState(version);
  useNowAndThen(
    // What lies between two checkpoints stays as it is.
    () => span.to === undefined && setAsked(version),
    REST,
    [version],
  );
  const answer = useAnswer(
    async () => {
      const [page, yours] = await Promise.all([
        session.ask("checkpoint.diff", { ...span, limit: SHOWN }),
        editsSince(session, span),
      ]);
      return { ...page, yours };
    },
    [asked],
  );
  useEffect(() => {
    // Between two steps nothing tells of a person's edits: whoever comes back here wants to see them.
    const again = () => setAsked((before) => before + 1);
    addEventListener("focus", again);
    return () => removeEventListener("focus", again);
  }, []);
  if (answer.error) return html`<${Trouble} error=${answer.error} />`;
  if (answer.data === null) return html`<${Empty}>Comparing …<//>`;

  /** @type {import("hankweave").DiffPage & {yours: Set<string>}} */
  const { files, stats, yours } = answer.data;
  if (files.length === 0) return html`<${Empty}>No tracked file differs.<//>`;
  return html`<ul class="changed" tabindex="0" aria-label="Files of this step">
    ${files.map((file) => html`<li key=${file.path}>
      <button
        class="file"
        aria-expanded=${opened === file.path}
        onClick=${() => setOpened(opened === file.path ? null : file.path)}
      >
        <${ChangeName} file=${file} tag=${yours.has(file.path) && html`<${Tag} role="person">yours<//>`} />
      </button>
      ${opened === file.path && html`<div class="opened">
        <${Patch} session=${session} between=${span} path=${file.path} version=${asked} />
        <button class="link" onClick=${() => session.try(() => show(session, span, file))}>Show it in its checkpoint</button>
      </div>`}
    </li>`)}
  </ul>
  <p class="hint">
    ${plural(stats.files, "file")}, <${Delta} added=${stats.added} removed=${stats.removed} />${files.length < stats.files ? `; the first ${files.length} are listed` : ""}
  </p>`;
}

/**
 * A person's edits that are in force: those on record and, while no agent works, what differs from
 * the newest checkpoint.
 * @param {import("../session.js").Session} session @param {Span} span
 * @returns {Promise<Set<string>>}
 */
async function editsSince({ ask, store }, { to }) {
  if (to !== undefined) return new Set(); // They are of the present.
  const known = Object.keys(store.state.edits);
  const sha = standingOf(store).active === null ? nowSha(store, store.checkpoints) : null;
  const page = sha === null ? null : await ask("checkpoint.diff", { from: sha, limit: SHOWN });
  return new Set([...known, ...(page?.files ?? []).map((/** @type {any} */ each) => each.path)]);
}

/**
 * From where a step began to where it ended.
 * @param {import("../store.js").Store} store @param {string | null} codonId
 * @returns {Span | null} null while there is no checkpoint to compare with
 */
export function spanOf(store, codonId) {
  const { ran } = standingOf(store);
  const line = [...ran.values()];
  const at = line.findIndex((codon) => codon.codonId === codonId);
  if (at < 0) {
    const sha = nowSha(store, store.checkpoints);
    return sha === null ? null : { from: sha };
  }
  const before = line.slice(0, at).map(endOf).findLast(Boolean);
  const from = line[at].rigSetupCheckpoint ?? before ?? store.checkpoints[0]?.sha;
  if (from === undefined) return null;

  const to = at === line.length - 1 ? undefined : endOf(line[at]);
  return to === undefined ? { from } : { from, to };
}

/**
 * From where the step of a moment began to that moment.
 * @param {import("../store.js").Store} store @param {import("../moments.js").Past} past
 * @returns {Span | null}
 */
export function spanUntil(store, { sha, codonId, runId, time: at }) {
  if (sha === null) return null;

  const run = runNamed(store.state, runId ?? null);
  const codon = run?.codons.findLast((/** @type {any} */ each) => each.codonId === codonId && Date.parse(each.startTime) <= (at ?? 0));
  if (codon === undefined) return { from: store.checkpoints[0]?.sha ?? sha, to: sha };
  return { from: boundsOf(store, { run, codon })?.from ?? sha, to: sha };
}

/** @param {any} codon @returns {string | undefined} */
const endOf = (codon) => codon.completionCheckpoint ?? codon.errorCheckpoint ?? codon.skipCheckpoint;

/** Shows the file as the end of the step has it or, of the newest step, the newest checkpoint. */
async function show(
  /** @type {import("../session.js").Session} */ session,
  /** @type {Span} */ { to },
  /** @type {{path: string, status: string}} */ { path, status },
) {
  const sha = to ?? nowSha(session.store, session.store.checkpoints);
  if (sha === null || (to === undefined && (await isNewer(session, sha, path)))) {
    session.say("No checkpoint has this change yet. Take one with Checkpoint … (key c), or wait.");
    return;
  }
  const moment = status === "deleted" ? { sha } : { sha, path };
  session.look({ tab: "files", moment, step: null });
}

/** Whether a file has changed since a checkpoint. */
async function isNewer(
  /** @type {import("../session.js").Session} */ { ask },
  /** @type {string} */ sha,
  /** @type {string} */ path,
) {
  const { files } = await ask("checkpoint.diff", { from: sha, paths: [path], limit: 1 });
  return files.length > 0;
}
