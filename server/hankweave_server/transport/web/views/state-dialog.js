/** The state at a moment: the plan with what had become of each codon, and all of it as JSON. */
import { html } from "../dom.js";
import { laidOut } from "../format.js";
import { pastOf, stateAtEnd } from "../moments.js";
import { Empty } from "../parts/basics.js";
import { Dialog, Trouble } from "../parts/dialog.js";
import { useAnswer } from "../parts/hooks.js";
import { asState } from "../state.js";
import { Plan } from "./plan.js";

/** @param {{session: import("../session.js").Session, moment: import("../session.js").Moment, onClose: () => void}} props */
export function StateDialog({ session, moment, onClose }) {
  const { ask, store } = session;
  const where = moment && "seq" in moment ? { seq: moment.seq } : { checkpointSha: moment?.sha };
  const record = moment && "sha" in moment ? pastOf(store, moment)?.record : null;
  const { data, error } = useAnswer(async () => {
    const [view, ended] = await Promise.all([
      ask("replay.view", { ...where, limit: 0 }),
      stateAtEnd(ask, record ?? undefined),
    ]);
    return { state: ended ?? view.state };
  }, [JSON.stringify(where)]);
  return html`<${Dialog} title="The state at this moment" onClose=${onClose} wide=${true}>
    <${Trouble} error=${error} />
    ${data === null && !error && html`<${Empty}>Reading …<//>`}
    ${data !== null && !data.state && html`<${Empty}>The journal does not reach back to this moment.<//>`}
    ${data?.state && html`<div class="then">
      <${Plan} state=${asState(data.state)} at=${record ? Date.parse(record.timestamp) : Date.now()} />
      <details>
        <summary>All of it, as in state.json</summary>
        <pre class="json" tabindex="0" aria-label="The state">${laidOut(data.state)}</pre>
      </details>
    </div>`}
  <//>`;
}
