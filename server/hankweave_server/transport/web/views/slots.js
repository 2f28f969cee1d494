/** What stands at the places of the frame: time, the step, and its files. */
import { html } from "../dom.js";
import { standingOf } from "../standing.js";
import { Attempts, AttemptsLink } from "./attempts.js";
import { DecisionPlace } from "./decisions.js";
import { FilesOfStep } from "./files-of-step.js";
import { StepView } from "./step/step.js";
import { TimeView } from "./time.js";

/** The strip under the header; its place stays free while this is null. */
export const Axis = null;

/** @typedef {{session: import("../session.js").Session, looks: import("../session.js").Looks}} Slot */

/** The selected step, or the one that runs. @param {Slot} props */
export function Middle({ session, looks }) {
  const codonId = looks.step ?? standingOf(session.store).followed;
  return html`<${StepView} session=${session} looks=${looks} codonId=${codonId} over=${{ checkpoints: TimeView, attempts: Attempts }} />`;
}

/** What lies beside the step. @param {Slot} props */
export function Aside({ session, looks }) {
  return html`<${DecisionPlace} session=${session} looks=${looks} />
    <${FilesOfStep} session=${session} looks=${looks} />
    <${AttemptsLink} session=${session} />`;
}
