/** What stands at the places of the frame: time, the step, and its files. */
import { html } from "../dom.js";
import { pastOf, stepOf } from "../moments.js";
import { at } from "../places.js";
import { Comparison } from "./compare.js";
import { DecisionPlace } from "./decisions.js";
import { FilesOfStep } from "./files-of-step.js";
import { StepView } from "./step/step.js";
import { ChangesThen, FilesThen } from "./step/then.js";

export { Axis } from "./axis.js";

const THEN = { changes: ChangesThen, files: FilesThen };

/** @typedef {{session: import("../session.js").Session, looks: import("../session.js").Looks}} Slot */

/** The selected step, or the one that runs; at a moment of the past, or a comparison. @param {Slot} props */
export function Middle({ session, looks }) {
  if (looks.compare !== null) return html`<${Comparison} session=${session} looks=${looks} />`;

  const { store } = session;
  const past = pastOf(store, looks.moment);
  return html`<${StepView}
    session=${session}
    looks=${looks}
    codonId=${stepOf(store, looks)}
    runId=${past?.codonId ? past.runId : undefined}
    past=${past}
    over=${past === null ? undefined : THEN}
  />`;
}

/** What lies beside the step; a comparison has its own files, and takes the room. @param {Slot} props */
export function Aside({ session, looks }) {
  if (looks.compare !== null) return html`<${DecisionPlace} session=${session} looks=${looks} />`;

  return html`<${DecisionPlace} session=${session} looks=${looks} />
    <${FilesOfStep} session=${session} looks=${looks} />
    ${at("asides").map((Joined) => html`<${Joined} session=${session} />`)}`;
}
