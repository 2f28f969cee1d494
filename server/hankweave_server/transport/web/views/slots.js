/** What stands at the places of the frame: time, the step, and its files. */
import { html } from "../dom.js";
import { time, visible } from "../format.js";
import { Tabs } from "../parts/tabs.js";
import { Tag } from "../parts/basics.js";
import { standingOf, titleOfCodon } from "../standing.js";
import { Attempts } from "./attempts.js";
import { EventsView } from "./events.js";
import { FilesOfStep } from "./files-of-step.js";
import { Feed } from "./live.js";
import { TimeView } from "./time.js";

/** The strip under the header; its place stays free while this is null. */
export const Axis = null;

/** @typedef {{session: import("../session.js").Session, looks: import("../session.js").Looks}} Slot */

const SHOWN = { transcript: "Transcript", checkpoints: "Checkpoints", events: "Events" };
const INSTEAD = { changes: "checkpoints", files: "checkpoints" };

/** The selected step, or the one that runs. @param {Slot} props */
export function Middle({ session, looks }) {
  const { store } = session;
  const standing = standingOf(store);
  const codonId = looks.step ?? standing.followed;
  const tab = INSTEAD[looks.tab] ?? looks.tab;
  return html`
    <header class="of-step">
      <h2>${codonId === null ? "No step yet" : visible(titleOfCodon(store.state, codonId))}</h2>
      <p class="facts">${factsOf(codonId, standing.ran.get(codonId ?? ""))}</p>
    </header>
    <${Tabs}
      id="of"
      label="Views of the step"
      panel="of-step"
      selected=${tab}
      onSelect=${(each) => session.look({ tab: each })}
      tabs=${Object.entries(SHOWN)}
    />
    <div id="of-step" class=${`panel view-${tab}`} role="tabpanel" aria-labelledby=${`of-${tab}`}>
      ${tab === "transcript" && html`<${Feed} session=${session} step=${looks.step} />`}
      ${tab === "checkpoints" && html`<${TimeView} session=${session} looks=${looks} />`}
      ${tab === "events" && html`<${EventsView} session=${session} looks=${looks} />`}
    </div>`;
}

function factsOf(codonId, codon) {
  if (codonId === null) return "";
  if (codon === undefined) return html`<span class="id">${visible(codonId)}</span>`;
  return html`<span class="id">${visible(codonId)}</span> · ${codon.status} · attempt ${codon.attempt ?? 1} · started ${time(codon.startTime)}${(codon.warnings ?? []).map((each) => html` <${Tag} role="wait">${visible(each)}<//>`)}`;
}

/** What lies beside the step. @param {Slot} props */
export function Aside({ session, looks }) {
  return html`<${FilesOfStep} session=${session} looks=${looks} />
    <${Attempts} session=${session} />`;
}
