/**
 * Time as an axis: the steps to scale, what was left behind in lanes of its own, the checkpoints as
 * ticks, and what is still to come. A slider from the first checkpoint to the present.
 */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../dom.js";
import { plural, time, visible } from "../format.js";
import { KINDS, kindOf, titleOf } from "../kinds.js";
import { clustersOf, labelsOf, nearest, placed, pointsOf, scaleOf, workOf } from "../lanes.js";
import { pastOf, stepOf } from "../moments.js";
import { useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { standingOf, statusOf, titleOfCodon } from "../standing.js";
import { useAnswersOfPeople } from "./answers.js";
import { compare } from "./compare.js";

const EDGE = 16;
const BAR = { top: 24, height: 14 };
const BELOW = { top: 49, height: 22 };
const APART = 4; // Pixels from one tick to the next.
const LABELS = 140; // Pixels from one time to the next, at least.
const LETTER = 6;
const DRAWN = 6; // Pixels from which a click is a stretch that was drawn.
const PERSONS = ["manual", "safety"];
const RANKS = ["plain", "person", "bad"];
const BY_PERSON = 1;
const FAILED = 2;

/** @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props */
export function Axis({ session, looks }) {
  const { store } = session;
  const standing = standingOf(store);
  const [strip, width] = useWidth();
  const now = useNow(1_000, standing.active !== null);
  const forecast = useRef({ of: /** @type {any} */ (null), since: now });
  if (forecast.current.of !== store.figures.forecast)
    forecast.current = { of: store.figures.forecast, since: Date.now() };
  const answers = useAnswersOfPeople(session);
  /** The checkpoint under the pointer, or that the arrow keys are at; those after the last: now. */
  const [cursor, setCursor] = useState(/** @type {number | null} */ (null));
  /** Where the button of the mouse went down. */
  const [grip, setGrip] = useState(/** @type {{x: number, row: number} | null} */ (null));
  const rows = store.checkpoints;
  const times = useMemo(
    () => Float64Array.from(rows, (each) => Date.parse(each.timestamp)),
    [store.checkpointsVersion],
  );
  const { active, failed } = standing;
  const chosen = stepOf(store, looks);
  const second = active === null ? 0 : now; // What has ended stays as it is.
  const picture = useMemo(
    () => pictureOf(store, standing, { times, width, now, since: forecast.current.since, answers }),
    [store.checkpointsVersion, shapeOf(store), width, second, answers, store.figures.forecast, failed, standing.asked],
  );
  const past = pastOf(store, looks.moment);
  const at = past === null || past.at < 0 ? rows.length : past.at;
  const hovered = cursor === null || picture.end === null ? null : Math.min(cursor, rows.length);
  const shown = hovered ?? at;

  const go = (/** @type {number} */ row, /** @type {boolean} */ isSecond) => {
    setCursor(null);
    const sha = rows[row]?.sha ?? null;
    if (isSecond || looks.pick !== null) compare(session, looks.pick ?? past?.sha ?? null, sha);
    else session.look({ moment: sha === null ? null : { sha }, step: null, compare: null });
  };
  const click = (/** @type {MouseEvent} */ event) => {
    const row = point(event);
    setGrip(null);
    if (grip === null || Math.abs(event.clientX - grip.x) < DRAWN) return go(row, event.shiftKey);
    setCursor(null);
    compare(session, rows[grip.row]?.sha ?? null, rows[row]?.sha ?? null);
  };
  const point = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    return picture.rowAt(event.clientX - box.left, event.clientY - box.top);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") go(shown, event.shiftKey);
    else if (event.key === "Escape" && cursor !== null) setCursor(null);
    else {
      const to = aim(event.key, shown, rows);
      if (to === null) return;
      setCursor(to);
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const here = past === null ? picture.end : past.at < 0 ? null : picture.points.xs[past.at];
  const others = comparedAt(looks.compare, store, picture).filter((each) => each !== here);
  return html`<div
    class="axis-strip"
    ref=${strip}
    role="slider"
    tabindex="0"
    aria-label="Time"
    aria-orientation="horizontal"
    aria-valuemin="1"
    aria-valuemax=${rows.length + 1}
    aria-valuenow=${shown + 1}
    aria-valuetext=${wordsOf(store, shown)}
    onClick=${click}
    onMouseDown=${(/** @type {MouseEvent} */ event) => setGrip({ x: event.clientX, row: point(event) })}
    onMouseMove=${(/** @type {MouseEvent} */ event) => setCursor(point(event))}
    onMouseLeave=${() => {
      setCursor(null);
      setGrip(null);
    }}
    onBlur=${() => setCursor(null)}
    onKeyDown=${press}
  >
    <svg width=${width} height="76" viewBox=${`0 0 ${width} 76`} aria-hidden="true">
      ${picture.drawn}
      ${picture.bars
        .filter(({ codon, lane }) => codon.codonId === chosen && lane === 0)
        .map((bar) => html`<path class=${`work is-chosen b-${bar.status}`} d=${outline(bar)} />`)}
      ${hovered !== null && grip !== null && html`<path class="drawn" d=${stretch(placeOf(picture, grip.row), placeOf(picture, hovered))} />`}
      ${hovered !== null && html`<path class="cursor" d=${`M${placeOf(picture, hovered)} 18V71`} />`}
      <path class="playhead other" d=${others.map((each) => `M${each} 18V71`).join("")} />
      ${here !== null && html`<g class="playhead">
        <path d=${`M${here} 18V71`} /><circle cx=${here} cy="18" r="3.5" />
      </g>`}
    </svg>
    ${hovered !== null && html`<${Named} store=${store} row=${hovered} x=${placeOf(picture, hovered)} width=${width} isPicking=${looks.pick !== null} />`}
  </div>`;
}

/** What lies under the pointer, or where the arrow keys are. */
function Named({ store, row, x, width, isPicking }) {
  const record = store.checkpoints[row];
  const at = Math.min(Math.max(x, 8), width - 8);
  const side = x > width / 2 ? { right: `${width - at}px` } : { left: `${at}px` };
  const does = isPicking ? "compare with it" : "Click: see it · drag or Shift-click: compare";
  return html`<p class="axis-name" style=${side} aria-hidden="true">
    ${record === undefined
      ? html`<b>The present</b>`
      : html`<b>${visible(titleOf(record))}</b> <span>${placeWords(store, record)}</span>`}
    <span class="does">${does}</span>
  </p>`;
}

function placeWords(store, record) {
  const step = record.codonId ? ` · ${visible(titleOfCodon(store.state, record.codonId))}` : "";
  return `${kindOf(record.kind).title} · ${time(record.timestamp)}${step}`;
}

function wordsOf(store, row) {
  const record = store.checkpoints[row];
  return record === undefined ? "the present" : `${visible(titleOf(record))}, ${placeWords(store, record)}`;
}

const stretch = (/** @type {number} */ one, /** @type {number} */ other) => `M${one} 18H${other}V71H${one}z`;

const placeOf = ({ points, end }, row) => points.xs[row] ?? end;

/** Where the two lie that are compared. */
function comparedAt(compared, store, { points, end }) {
  if (compared === null || end === null) return [];

  return [compared.from, compared.to].flatMap((sha) => {
    const at = sha === null ? null : pastOf(store, { sha })?.at ?? -1;
    return at === null ? [end] : at < 0 ? [] : [points.xs[at]];
  });
}

/** What of the state the picture shows, as far as it changes in place. */
function shapeOf({ state }) {
  const [newest] = state.runs;
  const codons = state.runs.reduce((/** @type {number} */ sum, /** @type {any} */ run) => sum + run.codons.length, 0);
  const last = newest?.codons.at(-1);
  return `${state.runs.length} ${codons} ${newest?.runId} ${newest?.status} ${last?.status} ${last?.endTime} ${Boolean(last?.wait)}`;
}

/** All that is drawn, but for what follows the reader. */
function pictureOf(store, standing, { times, width, now, since, answers }) {
  const { state, bySha, checkpoints: rows } = store;
  const { active, asked } = standing;
  const timeOf = (/** @type {any} */ sha) => (bySha.has(sha) ? Date.parse(bySha.get(sha).timestamp) : undefined);
  const work = workOf(state, now, timeOf);
  const known = work.bars.flatMap(({ from, to }) => [from, to]);
  const ends = [times[0] ?? Infinity, times[times.length - 1] ?? -Infinity];
  const begin = known.reduce((least, each) => Math.min(least, each), Math.min(...ends));
  const end = active === null ? known.reduce((most, each) => Math.max(most, each), ends[1]) : now;
  if (!Number.isFinite(begin)) return EMPTY;

  const ahead = aheadOf(store.figures.forecast, active === null ? end : Math.min(since, now), end, active);
  const until = ahead.at(-1)?.to ?? end;
  const room = { left: EDGE, right: width - EDGE };
  const scale = scaleOf([...work.bars, ...ahead], { begin, end: until, ...room });
  const points = pointsOf(rows, times, work, scale, rankOf);
  const place = lanePlaces(work.lanes);
  const bars = work.bars.map((bar) => ({
    ...bar,
    ...place(bar.lane),
    x: scale.x(bar.from),
    to: scale.x(bar.to),
    status: statusOf(bar.codon, bar.lane === 0 ? asked : null),
  }));
  const marks = placed(marksOf(bars, answers, asked, scale, end), room);
  const taken = takenIn(rows, points);
  const sides = work.sides.map((side) => sideOf(side, place(side.lane), scale, taken, state));
  const isTouched = (/** @type {number} */ from, /** @type {number} */ to) => marks.some((each) => each.from < to && from < each.to);
  const total = until > end + 1_000 ? { at: until, x: room.right } : null;
  const labels = labelsOf(scale, { right: room.right - (total ? 60 : 0), apart: LABELS })
    .filter(({ x, isFirst, at }) => !isTouched(x, x + (isFirst && isOtherDay(at, now) ? 90 : 56)));
  const drawn = html`<g>
    ${labels.map(({ x, at, isFirst, isFine }) => html`<text class="axis-time" x=${x} y="14">${clockOf(at, isFine, isFirst && isOtherDay(at, now))}</text>`)}
    ${total && !isTouched(total.x - 50, total.x) && html`<text class="axis-time" x=${total.x} y="14" text-anchor="end">~${clockOf(total.at, labels[0]?.isFine ?? false, isOtherDay(total.at, now))}</text>`}
    <path class="cut" d=${scale.cuts.map((x) => `M${x - 3} ${BAR.top + 11}l3 -8M${x + 1} ${BAR.top + 11}l3 -8`).join("")} />
    <path class="bridge" d=${bridges(bars).join("")} />
    <path class="fork" d=${sides.map(({ curve }) => curve).join("")} />
    ${[...grouped(bars)].map(([name, d]) => html`<path key=${name} class=${`work ${name}`} d=${d} />`)}
    ${ahead.map(({ from, to }) => html`<path class="ahead" d=${outline({ x: scale.x(from), to: scale.x(to), ...place(0) })} />`)}
    ${[...ticks(clustersOf(points, APART), place, work.lanes)].map(([name, d]) => html`<path key=${name} class=${`tick t-${name}`} d=${d} />`)}
    ${work.lanes === 1 && named(sides, room.right).map(({ x, y, words }) => html`<text class="side-name" x=${x + 8} y=${y + 11}>${words}</text>`)}
    ${marks.map((mark) => html`<g class=${`mark r-${mark.role}`} transform=${`translate(${mark.from} 3)`}>
      <${Icon} name=${mark.icon} />${mark.isTold && html`<text x="17" y="11">${mark.word}</text>`}
    </g>`)}
  </g>`;
  const laneAt = (/** @type {number} */ y) =>
    y < BELOW.top || work.lanes === 0 ? 0 : Math.min(work.lanes, 1 + Math.floor((y - BELOW.top) / (BELOW.height / work.lanes)));
  const rowAt = (/** @type {number} */ x, /** @type {number} */ y) => {
    const found = nearest(points, x, laneAt(y));
    const isPresent = x > scale.x(end) - 3 && (found < 0 || x - points.xs[found] > 6);
    return found < 0 || isPresent ? rows.length : found;
  };
  return { points, bars, drawn, end: scale.x(end), rowAt };
}

/** @type {any} */
const EMPTY = { points: { xs: [] }, bars: [], drawn: null, end: null, rowAt: () => 0 };

/** The steps that are still to come, one after the other; the one that works may take longer than expected. */
function aheadOf(forecast, from, end, active) {
  let at = from;
  const steps = [];
  for (const { codonId, ms } of forecast?.steps ?? []) {
    const isActive = codonId === active?.codonId;
    // Nothing works while it waits for a limit: that is a pause.
    const begin = Math.max(at, end, isActive && active.wait ? Date.parse(active.wait.until) : 0);
    const to = Math.max(at + (ms ?? 0), isActive ? begin : 0);
    if (to > begin) steps.push({ from: begin, to });
    at = to;
  }
  return steps;
}

/** Where a lane is drawn, from above. @param {number} lanes */
function lanePlaces(lanes) {
  const pitch = BELOW.height / Math.max(1, lanes);
  return (/** @type {number} */ lane) =>
    lane === 0 ? { y: BAR.top, height: BAR.height } : { y: BELOW.top + (lane - 1) * pitch, height: Math.min(BAR.height, pitch - 2) };
}

const rankOf = ({ kind, name }) => (kind === "error" ? FAILED : PERSONS.includes(kind) || name ? BY_PERSON : 0);

/** What a person has to see first: failures, questions, and what people answered. */
function marksOf(bars, answers, asked, scale, end) {
  const failed = bars
    .filter(({ codon, lane }) => codon.status === "failed" && lane === 0)
    .map(({ to }) => ({ x: to, rank: 3, role: "bad", icon: "failed", word: "failed" }));
  const told = answers.map(({ at, decision, by }) => ({
    x: scale.x(at),
    rank: 1,
    role: by === "client" ? "person" : "wait",
    icon: decision === "allow" ? "done" : "failed",
    word: `${decision === "allow" ? "allowed" : "denied"}${by === "client" ? "" : " by time"}`,
  }));
  const open = asked === null ? [] : [{ x: scale.x(end), rank: 4, role: "wait", icon: "waiting", word: `asks: ${visible(asked.toolName)}` }];
  return [...failed, ...told, ...open];
}

/** A path for each state, not for each of a thousand steps. */
function grouped(bars) {
  const paths = new Map();
  for (const bar of bars) {
    const name = `b-${bar.status}${bar.lane > 0 ? " is-left" : ""}`;
    paths.set(name, `${paths.get(name) ?? ""}${outline(bar)}`);
  }
  return paths;
}

/** A bar with round corners, as far as it has room for them. */
function outline({ x, to, y, height }) {
  const wide = Math.max(1.5, to - x - (to - x > 6 ? 2 : 0));
  const r = Math.min(2.5, wide / 2, height / 2);
  const [w, h] = [wide - 2 * r, height - 2 * r];
  return `M${x + r} ${y}h${w}a${r} ${r} 0 0 1 ${r} ${r}v${h}a${r} ${r} 0 0 1 ${-r} ${r}h${-w}a${r} ${r} 0 0 1 ${-r} ${-r}v${-h}a${r} ${r} 0 0 1 ${r} ${-r}z`;
}

/** Where the line to now goes on after work that was left behind. */
function bridges(bars) {
  const line = bars.filter(({ lane }) => lane === 0).toSorted((one, other) => one.x - other.x);
  const y = BAR.top + BAR.height / 2;
  return line.slice(1).flatMap(({ x }, at) => (x - line[at].to > 4 ? [`M${line[at].to} ${y}H${x}`] : []));
}

function ticks(clusters, place, lanes) {
  const paths = new Map();
  for (const { x, lane, rank, count } of clusters) {
    const { y, height } = place(lane);
    const bottom = y + height;
    const long = rank > 0 ? 7 : count > 1 ? 5 : 4;
    const d = lane === 0 || lanes === 1 ? `M${x} ${bottom + 3}v${long}` : `M${x} ${bottom}v-3`;
    paths.set(RANKS[rank], `${paths.get(RANKS[rank]) ?? ""}${d}`);
  }
  return paths;
}

/** How many checkpoints each run left behind. */
function takenIn(rows, { lanes }) {
  const taken = new Map();
  rows.forEach((/** @type {any} */ { runId }, /** @type {number} */ at) => {
    if (lanes[at] > 0) taken.set(runId, (taken.get(runId) ?? 0) + 1);
  });
  return taken;
}

/** What was left behind, where it left, and what it is called. */
function sideOf({ runId, from, to, fork }, { y, height }, scale, taken, state) {
  const [start, x] = [scale.x(fork), scale.x(from)];
  const middle = y + height / 2;
  const top = BAR.top + BAR.height;
  const curve = `M${start} ${top}C${start} ${middle} ${Math.min(start, x)} ${middle} ${x} ${middle}`;
  const attempt = state.explorations.flatMap((/** @type {any} */ each) => each.attempts).find((/** @type {any} */ each) => each.runId === runId);
  const what = attempt ? `attempt ${visible(attempt.variant?.name ?? attempt.attemptId)}` : "rolled back";
  return { x, to: scale.x(to), y, curve, words: `${what}, ${plural(taken.get(runId) ?? 0, "checkpoint")}` };
}

/** Those whose name has room up to the next one. */
function named(sides, right) {
  const order = sides.toSorted((one, other) => one.x - other.x);
  return order.filter(({ x, words }, at) => {
    const free = order[at + 1]?.x ?? right;
    return x + 16 + words.length * LETTER <= free;
  });
}

const isOtherDay = (/** @type {number} */ at, /** @type {number} */ now) => new Date(at).toDateString() !== new Date(now).toDateString();
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

function clockOf(at, isFine, hasDay) {
  const clock = time(new Date(at).toISOString());
  return `${hasDay ? `${day.format(at)} ` : ""}${isFine ? clock : clock.slice(0, 5)}`;
}

/** Where a key leads; a page is a step. */
function aim(key, at, rows) {
  const isEnd = (/** @type {any} */ row) => !KINDS[row.kind]?.isStep;
  switch (key) {
    case "ArrowRight":
    case "ArrowUp":
      return Math.min(rows.length, at + 1);
    case "ArrowLeft":
    case "ArrowDown":
      return Math.max(0, at - 1);
    case "PageUp": {
      const next = rows.findIndex((/** @type {any} */ row, /** @type {number} */ place) => place > at && isEnd(row));
      return next < 0 ? rows.length : next;
    }
    case "PageDown":
      return Math.max(0, rows.slice(0, at).findLastIndex(isEnd));
    case "Home":
      return 0;
    case "End":
      return rows.length;
    default:
      return null;
  }
}

/** @returns {[{current: HTMLDivElement | null}, number]} */
function useWidth() {
  const strip = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [width, setWidth] = useState(Math.max(200, innerWidth));
  useLayoutEffect(() => {
    const element = /** @type {HTMLDivElement} */ (strip.current);
    const measure = () => setWidth(Math.max(200, element.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [strip, width];
}
