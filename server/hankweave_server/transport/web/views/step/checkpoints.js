/** The checkpoints of a step, newest first. */
import { html, useState } from "../../dom.js";
import { time, visible } from "../../format.js";
import { Sign, kindOf, titleOf } from "../../kinds.js";
import { VirtualList } from "../../parts/virtual-list.js";

const ROW = 28;

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

/** @param {{session: import("../../session.js").Session, records: any[]}} props */
export function StepCheckpoints({ session, records }) {
  const [at, setAt] = useState(-1);
  const of = (/** @type {number} */ row) => records[records.length - 1 - row];
  const show = (/** @type {number} */ row) => {
    setAt(row);
    session.look({ moment: { sha: of(row).sha } });
  };
  return html`<${VirtualList}
    id="own-checkpoint"
    count=${records.length}
    rowHeight=${ROW}
    label="Checkpoints of this step, newest first"
    selected=${at}
    onSelect=${show}
    empty="There is no checkpoint of this step yet."
    row=${(/** @type {number} */ row) => drawn(session, of(row))}
  />`;
}

function drawn(session, record) {
  const back = (/** @type {Event} */ event) => {
    event.stopPropagation();
    session.look({ dialog: { kind: "rollback", target: { sha: record.sha } } });
  };
  return html`<${Sign} kind=${record.kind} />
    <span class="title">${visible(titleOf(record))}</span>
    <span class="kind">${kindOf(record.kind).title}</span>
    <time datetime=${record.timestamp}>${time(record.timestamp)}</time>
    <span class="link" aria-hidden="true" onClick=${back}>back to here</span>`;
}
