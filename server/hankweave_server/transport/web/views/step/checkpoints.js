/** The checkpoints of a step, or of the whole run, newest first. */
import { html, useMemo, useState } from "../../dom.js";
import { count, time, visible } from "../../format.js";
import { Sign, kindOf, titleOf } from "../../kinds.js";
import { keptIn, nowSha } from "../../moments.js";
import { Button, Tag } from "../../parts/basics.js";
import { VirtualList } from "../../parts/virtual-list.js";
import { titleOfCodon } from "../../standing.js";
import { compare } from "../compare.js";

const ROW = 28;
/** What was chosen last: it holds when one comes back to the list. */
const wanted = { all: false };

/**
 * @param {import("../../store.js").Store} store @param {{run: any, codon: any}} attempt
 * @returns {any[]} oldest first
 */
export function checkpointsOf(store, { run, codon }) {
  const began = Date.parse(codon.startTime);
  const ended = codon.endTime ? Date.parse(codon.endTime) + 5_000 : Infinity;
  return store.checkpoints.filter(({ runId, codonId, timestamp }) => {
    const at = Date.parse(timestamp);
    return runId === run.runId && codonId === codon.codonId && at >= began && at <= ended;
  });
}

/**
 * @param {{session: import("../../session.js").Session, records: any[],
 *   past: import("../../moments.js").Past | null}} props `records`: those of the step
 */
export function StepCheckpoints({ session, records, past }) {
  const { store, looks } = session;
  const [isAll, setAll] = useState(records.length === 0 || wanted.all);
  const rows = isAll ? store.checkpoints : records;
  const of = (/** @type {number} */ row) => rows[rows.length - 1 - row];
  const isKept = useMemo(() => keptIn(store.state), [store.state.runs, store.checkpointsVersion]);
  const now = nowSha(store, store.checkpoints);
  const at = past === null ? -1 : rows.findIndex(({ sha }) => sha === past.sha);
  const show = (/** @type {number} */ row) => {
    const { sha } = of(row);
    if (looks.pick === null) session.look({ moment: { sha }, step: null }, { isStep: past !== null });
    else compare(session, looks.pick, sha);
  };
  const part = (/** @type {boolean} */ all, /** @type {string} */ words) =>
    html`<button type="button" aria-pressed=${isAll === all} onClick=${() => setAll((wanted.all = all))}>${words}</button>`;
  return html`
    <div class="bar">
      <span role="group" aria-label="Which checkpoints" class="which">${part(false, "This step")}${part(true, "All")}</span>
      <span class="counted">${count(rows.length)} of ${count(store.checkpoints.length)} checkpoints${store.areAllCheckpoints ? "" : " so far"}</span>
      <${Picking} session=${session} past=${past} />
    </div>
    <${VirtualList}
      key=${isAll}
      id="own-checkpoint"
      count=${rows.length}
      rowHeight=${ROW}
      label=${isAll ? "All checkpoints, newest first" : "Checkpoints of this step, newest first"}
      selected=${at < 0 ? -1 : rows.length - 1 - at}
      onSelect=${show}
      empty="There is no checkpoint of this step yet."
      row=${(/** @type {number} */ row) => drawn(session, of(row), { isAll, now, isKept })}
    />`;
}

/** The choice of a second one, that the first is compared with. */
function Picking({ session, past }) {
  const { store, looks } = session;
  if (looks.pick !== null) {
    const record = store.bySha.get(looks.pick);
    return html`<span class="hint" role="status">Choose the one to compare ${record ? html`<b>${visible(titleOf(record))}</b>` : "it"} with, here or on the time.</span>
      <${Button} onClick=${() => session.look({ pick: null })}>Cancel<//>`;
  }
  const why = past?.record ? null : "Choose a checkpoint first.";
  return html`<${Button} why=${why} onWhy=${session.say} onClick=${() => session.look({ pick: past.sha })}>Compare with…<//>`;
}

function drawn(session, record, { isAll, now, isKept }) {
  const { state } = session.store;
  const title = titleOf(record);
  const kind = kindOf(record.kind);
  const back = (/** @type {Event} */ event) => {
    event.stopPropagation();
    session.look({ dialog: { kind: "rollback", target: { sha: record.sha } } });
  };
  return html`<${Sign} kind=${record.kind} />
    <span class="title">${visible(title)}</span>
    ${record.sha === now && html`<span class="tag now">now</span>`}
    ${record.pinned && html`<${Tag}>pinned<//>`}
    ${record.partial && html`<span class="tag bad">partial</span>`}
    ${!isKept(record) && html`<${Tag}>rolled back<//>`}
    <span class="kind">${[isAll && record.codonId && visible(titleOfCodon(state, record.codonId)), kind.title !== title && !kind.isStep && kind.title].filter(Boolean).join(" · ")}</span>
    <time datetime=${record.timestamp}>${time(record.timestamp)}</time>
    <span class="link" aria-hidden="true" onClick=${back}>back to here</span>`;
}
