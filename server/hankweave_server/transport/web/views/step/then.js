/** The tabs of a step as they were at a moment of the past: its files and its changes. */
import { html, useState } from "../../dom.js";
import { pastOf } from "../../moments.js";
import { Empty } from "../../parts/basics.js";
import { Trouble } from "../../parts/dialog.js";
import { useAnswer } from "../../parts/hooks.js";
import { Changes } from "../changes.js";
import { FileTree } from "../file-tree.js";
import { useStepDiff } from "./changes.js";

const REST = 120; // Milliseconds: who goes from one moment to the next asks only for where he stops.
const FILES = 1_000;
const OPEN = 4;

/** @typedef {{session: import("../../session.js").Session, looks: import("../../session.js").Looks, bounds?: any}} Props */

/** All of a moment but its state. @param {Props} props @param {object} [more] */
function useView({ session, looks }, more = {}) {
  const { moment } = looks;
  const where = moment && "seq" in moment ? { seq: moment.seq } : { checkpointSha: moment?.sha };
  const key = JSON.stringify(where);
  const answer = useAnswer(() => session.ask("replay.view", { ...where, ...more, limit: FILES }), [key], REST);
  return { ...answer, where, key };
}

/** @param {Props} props */
export function FilesThen(props) {
  const { session, looks } = props;
  const { data, error, isAsking, where, key } = useView(props);
  if (error) return html`<${Trouble} error=${error} />`;
  if (data === null || isAsking) return html`<${Empty}>Reading …<//>`;

  const past = pastOf(session.store, looks.moment);
  const sha = data.coordinate?.checkpointSha ?? past?.sha;
  return html`<${FileTree} key=${`${key} ${past?.path}`} session=${session} view=${data} where=${where} sha=${sha} first=${past?.path ?? null} />`;
}

/** @param {Props} props */
export function ChangesThen(props) {
  const { session, bounds = null } = props;
  const [isWhole, setWhole] = useState(false);
  const { data, error, isAsking, key } = useView(props, { compare: ["previous"] });
  const diff = useStepDiff(session, isWhole ? bounds : null, false);
  const found = isWhole ? diff : { data: data?.previous ?? null, error, isAsking };
  const part = (/** @type {boolean} */ whole, /** @type {string} */ words) =>
    html`<button type="button" aria-pressed=${isWhole === whole} onClick=${() => setWhole(whole)}>${words}</button>`;
  return html`<div class="scrolls-down">
    <div class="bar" role="group" aria-label="Changes">
      ${part(false, "In this checkpoint")}
      ${bounds !== null && part(true, "Since the step began")}
    </div>
    ${found.error && html`<${Trouble} error=${found.error} />`}
    ${found.isAsking && !found.error && html`<${Empty}>Comparing …<//>`}
    ${!found.isAsking && !found.error && (found.data === null
      ? html`<${Empty}>This is the first checkpoint: there is nothing before it.<//>`
      : html`<${Changes} key=${`${key} ${isWhole}`} session=${session} page=${found.data} open=${OPEN} />`)}
  </div>`;
}

