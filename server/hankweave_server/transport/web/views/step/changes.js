/** What a step changed: its files with their differences, from its start to its end. */
import { html, useRef } from "../../dom.js";
import { Empty } from "../../parts/basics.js";
import { Trouble } from "../../parts/dialog.js";
import { useAnswer } from "../../parts/hooks.js";
import { endCheckpoint } from "../../state.js";
import { Changes } from "../changes.js";

const OPEN = 4; // Files that show their differences at once.

/**
 * The checkpoints between which a step worked; `to` is null for the present files. Null while they
 * are not known.
 * @param {import("../../store.js").Store} store @param {{run: any, codon: any}} attempt
 * @param {string | null} [until] a moment before its end
 * @returns {{from: string, to: string | null} | null}
 */
export function boundsOf(store, { run, codon }, until) {
  const began = Date.parse(codon.startTime);
  const isBefore = (/** @type {any} */ { timestamp, kind }) => kind !== "safety" && Date.parse(timestamp) <= began;
  const own = store.checkpoints.findLast((each) => each.runId === run.runId && isBefore(each));
  // A run that begins elsewhere begins with the files of that place.
  const source = run.startingConditions?.source?.checkpointSha;
  const from = own?.sha ?? source ?? (store.checkpoints.findLast(isBefore) ?? store.checkpoints[0])?.sha;
  if (from === undefined) return null;

  return { from, to: until ?? endCheckpoint(codon) ?? null };
}

/**
 * The first page of the differences; while the step works, it follows the checkpoints.
 * @param {import("../../session.js").Session} session
 * @param {{from: string, to: string | null} | null} bounds @param {boolean} isActive
 */
export function useStepDiff(session, bounds, isActive) {
  const { store } = session;
  const last = useRef(/** @type {any} */ (null));
  const version = isActive ? store.checkpointsVersion : 0;
  const answer = useAnswer(
    async () => (bounds === null ? null : session.ask("checkpoint.diff", between(bounds))),
    [bounds?.from, bounds?.to, version, store.areAllCheckpoints],
    400,
  );
  const key = `${bounds?.from} ${bounds?.to}`;
  if (answer.data !== null && !answer.isAsking) last.current = { key, data: answer.data };
  return last.current?.key === key ? { ...answer, data: last.current.data } : answer;
}

const between = (/** @type {{from: string, to: string | null}} */ { from, to }) => (to === null ? { from } : { from, to });

/** @param {{session: import("../../session.js").Session, bounds: any, diff: any}} props */
export function StepChanges({ session, bounds, diff }) {
  if (diff.error) return html`<${Trouble} error=${diff.error} />`;
  if (bounds === null || diff.data === null) return html`<${Empty}>Comparing …<//>`;

  const { files, stats } = diff.data;
  return html`<div class="scrolls-down">
    <${Changes} key=${`${bounds.from} ${bounds.to} ${stats.files} ${stats.added} ${stats.removed} ${files.length}`} session=${session} page=${diff.data} open=${OPEN} />
  </div>`;
}
