/** The checkpoints of a step, or of the whole run, newest first. */
import { html, useMemo, useState } from "../../dom.js";
import { count, time, visible } from "../../format.js";
import { Sign, kindOf, titleOf } from "../../kinds.js";
import { keptIn, nowSha } from "../../moments.js";
import { Tag } from "../../parts/basics.js";
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
  const [chosen, setAll] = useState(/** @type {boolean | null} */ (null));
  const isAll = chosen ?? (wanted.all || records.length === 0); // Those of the step may come late.
  const [text, setText] = useState("");
  const among = isAll ? store.checkpoints : records;
  const rows = useMemo(() => found(store.state, among, text), [isAll ? store.checkpointsVersion : records, text]);
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
      <label>
        <span class="hidden">Find a checkpoint</span>
        <input id="find" type="search" placeholder="Find a call or file" maxlength="200" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      </label>
      <span class="counted">${count(rows.length)} of ${count(store.checkpoints.length)}${store.areAllCheckpoints ? "" : " so far"}</span>
    </div>
    <${VirtualList}
      key=${`${isAll} ${text}`}
      id="own-checkpoint"
      count=${rows.length}
      rowHeight=${ROW}
      label=${isAll ? "All checkpoints, newest first" : "Checkpoints of this step, newest first"}
      selected=${at < 0 ? -1 : rows.length - 1 - at}
      onSelect=${show}
      empty=${text ? "No checkpoint has these words." : "There is no checkpoint of this step yet."}
      row=${(/** @type {number} */ row) => drawn(session, of(row), { isAll, now, isKept, past })}
    />`;
}

/** Those whose name or step has all words. */
function found(/** @type {any} */ state, /** @type {any[]} */ records, /** @type {string} */ text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return records;

  return records.filter((record) => {
    const own = `${titleOf(record)} ${kindOf(record.kind).title} ${record.codonId ? titleOfCodon(state, record.codonId) : ""}`.toLowerCase();
    return words.every((word) => own.includes(word));
  });
}

function drawn(session, record, { isAll, now, isKept, past }) {
  const { state } = session.store;
  const title = titleOf(record);
  const kind = kindOf(record.kind);
  const back = (/** @type {Event} */ event) => {
    event.stopPropagation();
    session.look({ dialog: { kind: "rollback", target: { sha: record.sha } } });
  };
  const beside = (/** @type {Event} */ event) => {
    event.stopPropagation();
    compare(session, past?.sha ?? null, record.sha);
  };
  return html`<${Sign} kind=${record.kind} />
    <span class="title">${visible(title)}</span>
    ${record.sha === now && html`<span class="tag now">now</span>`}
    ${record.pinned && html`<${Tag}>pinned<//>`}
    ${record.partial && html`<span class="tag bad">partial</span>`}
    ${!isKept(record) && html`<${Tag}>rolled back<//>`}
    <span class="kind">${[isAll && record.codonId && visible(titleOfCodon(state, record.codonId)), kind.title !== title && !kind.isStep && kind.title].filter(Boolean).join(" · ")}</span>
    <time datetime=${record.timestamp}>${time(record.timestamp)}</time>
    <span class=${`link compare ${record.sha === (past?.sha ?? now) ? "is-same" : ""}`} aria-hidden="true" onClick=${beside}>compare</span>
    <span class="link" aria-hidden="true" onClick=${back}>back to here</span>`;
}
