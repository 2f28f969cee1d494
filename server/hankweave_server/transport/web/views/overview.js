/** The whole tree on one strip, however long: a slider through time. */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../dom.js";
import { time, visible } from "../format.js";
import { kindOf, titleOf } from "../kinds.js";

const HEIGHT = 72;
const APART = 5; // Pixels between two marks: closer ones cannot be told apart.
const EDGE = 10;
const TURN = 12; // Pixels that a line takes from one lane to another.
const WEIGHT = {
  error: 5,
  manual: 4,
  safety: 3,
  completed: 2,
  exit: 2,
  initial: 2,
  skipped: 2,
  "rig-setup": 1,
};

/**
 * @param {{rows: any[], picture: ReturnType<typeof import("../lanes.js").layOut>, at: number,
 *   here: number, onSelect: (row: number) => void}} props
 */
export function Overview({ rows, picture, at, here, onSelect }) {
  const strip = useRef(/** @type {SVGElement | null} */ (null));
  const [width, setWidth] = useState(600);
  const isEmpty = rows.length === 0;
  useLayoutEffect(() => {
    if (strip.current === null) return undefined;
    const measure = () => setWidth(Math.max(100, strip.current?.clientWidth ?? 0));
    const observer = new ResizeObserver(measure);
    observer.observe(strip.current);
    measure();
    return () => observer.disconnect();
  }, [isEmpty]);
  const lanes = picture.width;
  const x = (row) => EDGE + (row / Math.max(1, rows.length - 1)) * (width - 2 * EDGE);
  const y = (lane) =>
    lanes === 1 ? HEIGHT / 2 : HEIGHT - EDGE - (lane / (lanes - 1)) * (HEIGHT - 2 * EDGE);
  const drawn = useMemo(() => shapes(rows, picture, x, y), [rows, picture, width]);
  if (isEmpty) return null;

  const shown = rows[at];
  return html`<svg
    class="overview"
    ref=${strip}
    viewBox=${`0 0 ${width} ${HEIGHT}`}
    role="slider"
    tabindex="0"
    aria-label="Time"
    aria-orientation="horizontal"
    aria-valuemin="1"
    aria-valuemax=${rows.length}
    aria-valuenow=${at < 0 ? rows.length : at + 1}
    aria-valuetext=${shown ? `${visible(titleOf(shown))}, ${kindOf(shown.kind).title}, ${time(shown.timestamp)}` : "not chosen"}
    onClick=${(event) => onSelect(rowAt(event, rows.length))}
    onKeyDown=${(event) => {
      const to = aim(event.key, at < 0 ? rows.length - 1 : at, rows.length);
      if (to === null) return;
      event.preventDefault();
      event.stopPropagation();
      onSelect(to);
    }}
  >
    ${drawn}
    ${here >= 0 && html`<path class="now-mark" d=${`M${x(here)} 0V${HEIGHT}`} />`}
    ${at >= 0 && html`<path class="at-mark" d=${`M${x(at)} 0V${HEIGHT}`} />`}
  </svg>`;
}

function shapes(rows, { lines, laneOf }, x, y) {
  // A path for each colour, not for each of a thousand runs.
  /** @type {Record<string, string>} */
  const strokes = {};
  for (const { lane, fromLane, begin, last, from, mainUntil } of lines) {
    const turn = Math.min(x(last), x(begin) + TURN);
    const way = from === null ? `M${x(begin)} ${y(lane)}` : `M${x(begin)} ${y(fromLane)}L${turn} ${y(lane)}`;
    const name = `line l${lane % 6}`;
    strokes[name] = `${strokes[name] ?? ""}${way}H${x(last)}`;
    if (mainUntil < begin) continue;

    const main = `${name} is-main`;
    strokes[main] = `${strokes[main] ?? ""}${way}H${Math.max(turn, x(mainUntil))}`;
  }
  const paths = Object.entries(strokes)
    .sort(([one], [other]) => one.length - other.length) // The way to now over all others.
    .map(([name, d]) => html`<path key=${name} class=${name} d=${d} />`);
  const bins = new Map();
  rows.forEach((each, row) => {
    const lane = laneOf.get(each.runId) ?? 0;
    const key = `${Math.floor(y(lane) / APART)} ${Math.floor(x(row) / APART)}`;
    const weight = WEIGHT[each.kind] ?? 0;
    if (weight >= (bins.get(key)?.weight ?? 0))
      bins.set(key, { weight, row, lane, kind: each.kind });
  });
  const marks = [...bins.values()].map(
    ({ row, lane, kind }) =>
      html`
        <g key=${row} transform=${`translate(${x(row) - 6} ${y(lane) - 6}) scale(0.75)`}>
          <path class=${`sign k-${kind}`} d=${kindOf(kind).path} />
        </g>`,
  );
  return html`<g>${paths}${marks}</g>`;
}

function rowAt(event, count) {
  const box = event.currentTarget.getBoundingClientRect();
  const part = (event.clientX - box.left - EDGE) / (box.width - 2 * EDGE);
  return Math.min(count - 1, Math.max(0, Math.round(part * (count - 1))));
}

function aim(key, at, count) {
  const steps = {
    ArrowRight: 1,
    ArrowUp: 1,
    ArrowLeft: -1,
    ArrowDown: -1,
    PageUp: 10,
    PageDown: -10,
  };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (steps[key] === undefined) return null;
  return Math.min(count - 1, Math.max(0, at + steps[key]));
}
