/** All time as a picture: runs and their branches as a tree of checkpoints, and where one stands. */
import { html, useEffect, useMemo, useState } from "../dom.js";
import { count, time, visible } from "../format.js";
import { KINDS, Legend, kindOf, titleOf } from "../kinds.js";
import { layOut, linesAt, rowBefore } from "../lanes.js";
import { nowSha } from "../moments.js";
import { VirtualList } from "../parts/virtual-list.js";
import { MomentView } from "./moment.js";
import { Overview } from "./overview.js";

const ROW = 30;
const LANE = 16; // Pixels from one lane to the next, where there are few.
const CLOSEST = 5;
const ROOM = 170; // Pixels for all lanes, and a part of a narrow screen.
const PART = 0.28;

/** @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props */
export function TimeView({ session, looks }) {
  const { store } = session;
  const [zoom, setZoom] = useState("codons");
  const rows = useMemo(
    () =>
      store.checkpoints.filter(
        (each) => zoom === "steps" || !KINDS[each.kind]?.isStep || each.pinned,
      ),
    [store.checkpointsVersion, zoom],
  );
  const picture = useMemo(() => layOut(rows, store.state.runs), [rows, store.state.runs]);
  const here = nowSha(store, rows);
  const at = placeOf(rows, looks.moment, store);
  const before = at < 0 ? null : rowBefore(rows, picture.lines, at);
  const select = (row) => rows[row] && session.look({ moment: { sha: rows[row].sha } });

  // What is stood at may be a step: then steps have to be shown.
  const sha = looks.moment && "sha" in looks.moment ? looks.moment.sha : null;
  useEffect(() => {
    if (sha !== null && zoom === "codons" && KINDS[store.bySha.get(sha)?.kind]?.isStep)
      setZoom("steps");
  }, [sha]);

  return html`
    <section class="time" aria-label="All time">
      <div class="bar">
        <h2>Time</h2>
        <div role="group" aria-label="Zoom" class="zoom">
          <button aria-pressed=${zoom === "codons"} onClick=${() => setZoom("codons")}>Codons</button>
          <button aria-pressed=${zoom === "steps"} onClick=${() => setZoom("steps")}>Every step</button>
        </div>
        <span class="counted">
          ${count(rows.length)} of ${count(store.checkpoints.length)} checkpoints${store.areAllCheckpoints ? "" : " so far"}
        </span>
        <button disabled=${here === null} onClick=${() => session.look({ moment: { sha: here } })}>
          Go to now
        </button>
      </div>
      <${Overview}
        rows=${rows}
        picture=${picture}
        at=${at}
        here=${rows.findIndex((each) => each.sha === here)}
        onSelect=${select}
      />
      <${Tree} rows=${rows} picture=${picture} at=${at} here=${here} onSelect=${select} />
      <details class="signs"><summary>Legend</summary><${Legend} /></details>
    </section>
    <section class="moment" aria-label="The selected moment">
      ${
        looks.moment === null
          ? html`
            <p class="empty">
              Choose a checkpoint with the mouse or the arrow keys to see that moment: its files, its state and what changed. Looking changes nothing.
            </p>`
          : html`
            <${MomentView}
              session=${session}
              moment=${looks.moment}
              before=${before === null ? null : rows[before].sha}
              onStep=${(by) => select(Math.min(rows.length - 1, Math.max(0, at + by)))}
            />`
      }
    </section>`;
}

/** The list, newest first, with the lines of the runs at its side. */
function Tree({ rows, picture, at, here, onSelect }) {
  const newestFirst = (row) => rows.length - 1 - row;
  const { x, width, shared } = scaleOf(picture.width);
  return html`<${VirtualList}
    id="checkpoint"
    count=${rows.length}
    rowHeight=${ROW}
    label="Checkpoints, newest first"
    selected=${at < 0 ? -1 : newestFirst(at)}
    onSelect=${(row) => onSelect(newestFirst(row))}
    empty="There is no checkpoint yet."
    row=${(row) => {
      const index = newestFirst(row);
      const each = rows[index];
      return html`
        <svg
          class="lanes"
          width=${width}
          height=${ROW}
          viewBox=${`0 0 ${width} ${ROW}`}
          aria-hidden="true"
        >
          ${[...drawn(picture.lines, index, x)].map(
            ([name, d]) => html`<path key=${name} class=${name} d=${d} />`,
          )}
          <g
            transform=${`translate(${x(picture.laneOf.get(each.runId) ?? 0) - 7} ${ROW / 2 - 7}) scale(0.875)`}
          >
            <path class=${`sign k-${each.kind}`} d=${kindOf(each.kind).path} />
          </g>
        </svg>
        <span class="title">${visible(titleOf(each))}</span>
        <span class="hidden">${branchWords(rows, picture, index)}</span>
        ${each.sha === here && html`<span class="tag now">now</span>`}
        ${each.pinned && html`<span class="tag">pinned</span>`}
        ${each.partial && html`<span class="tag bad">partial</span>`}
        <span class="kind">${kindOf(each.kind).title}</span>
        <time>${time(each.timestamp)}</time>`;
    }}
  />
  ${shared > 0 && html`
    <p class="hint">
      ${count(shared)} of ${count(picture.width)} lines do not fit side by side and share the last position.
    </p>`}`;
}

/** Where each lane lies: side by side as long as there is room, then closer. @param {number} lanes */
function scaleOf(lanes) {
  const room = Math.min(ROOM, innerWidth * PART);
  const apart = Math.min(LANE, Math.max(CLOSEST, room / lanes));
  const fit = Math.min(lanes, Math.max(1, Math.floor(room / apart)));
  const x = (lane) => Math.min(lane, fit - 1) * apart + LANE / 2 + 2;
  return { x, width: Math.ceil(x(fit - 1) + LANE / 2 + 2), shared: lanes - fit };
}

/** For whoever does not see the lines: where one begins, and which of them leads to now. */
function branchWords(rows, { lines }, row) {
  const line = lines.find((each) => each.runId === rows[row].runId);
  if (line === undefined) return "";

  const words = line.mainUntil < row ? [", left behind by a rollback"] : [];
  if (line.first === row && line.from !== null)
    words.push(`, the start of a run that continues from ${visible(titleOf(rows[line.from]))} of ${time(rows[line.from].timestamp)}`);
  return words.join("");
}

/**
 * The lines of one row, a path for each colour, and what leads to now on top; where they share a
 * place, one of them stands for all.
 */
function drawn(lines, row, x) {
  const paths = new Map();
  const seen = new Set();
  for (const isMain of [false, true]) {
    for (const line of linesAt(lines, row)) {
      if (row <= line.mainUntil !== isMain) continue;

      const d = strokes(line, row, x);
      if (!isMain && seen.has(d)) continue;

      seen.add(d);
      const name = `line l${line.lane % 6}${isMain ? " is-main" : ""}`;
      paths.set(name, `${paths.get(name) ?? ""}${d}`);
    }
  }
  return paths;
}

/** What of a run's line lies in one row: from the older below to the newer above. */
function strokes({ lane, fromLane, first, last, from, begin }, row, x) {
  const here = x(lane);
  const parts = [];
  if (from !== null && row === begin)
    parts.push(`M${x(fromLane)} ${ROW / 2}C${x(fromLane)} 4 ${here} ${ROW / 2} ${here} 0`);
  else if (row < first) parts.push(`M${here} ${ROW}V0`);
  else {
    if (row < last) parts.push(`M${here} ${ROW / 2}V0`);
    if (row > first || from !== null) parts.push(`M${here} ${ROW}V${ROW / 2}`);
  }
  return parts.join("");
}

function placeOf(rows, moment, store) {
  if (moment === null) return -1;
  if ("sha" in moment) {
    const exact = rows.findIndex((each) => each.sha === moment.sha);
    if (exact >= 0) return exact;
  }
  const { bySha, pruned } = store;
  const seq = "seq" in moment ? moment.seq : (bySha.get(moment.sha)?.seq ?? pruned.get(moment.sha));
  return seq === undefined ? -1 : rows.findLastIndex((each) => each.seq <= seq);
}
