/**
 * The steps in their order, one line each: what became of them, how long they took and what they
 * cost, or will. A loop is one step with its rounds folded; only what can be seen is in the page.
 */
import { html, useLayoutEffect, useRef, useState } from "../dom.js";
import { clockSpan, price, visible } from "../format.js";
import { stepOf } from "../moments.js";
import { Empty } from "../parts/basics.js";
import { useMedia, useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { StepMenu } from "./step-menu.js";
import { costOfAll, nameOf, standingOf, statusOf, statusOfStep, took } from "../standing.js";

const ROW = 28;
const PHONE_ROW = 44;
const BEYOND = 10; // Rows above and below those that can be seen.
const MANY = 15; // From here on the field that filters is there without being asked for.

/**
 * @typedef {{key: string, codonId: string, name: string, status: string, entries: any[],
 *   isRound: boolean, isFolded: boolean | null}} Line `isFolded`: null for what has no rounds.
 */

/** @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props */
export function Steps({ session, looks }) {
  const { store } = session;
  const standing = standingOf(store);
  const now = useNow(1_000, standing.active !== null || store.retries.size > 0);
  const rowHeight = useMedia("(max-width: 699px)") ? PHONE_ROW : ROW;
  const [turned, setTurned] = useState(/** @type {Set<string>} */ (new Set()));
  const [text, setText] = useState("");
  // Once asked for, the field stays: if it went away with the focus, a click would miss its step.
  const [isFilterOpen, openFilter] = useState(false);
  const [menu, openMenu] = useState(/** @type {{line: Line, at: {left: number, top: number}} | null} */ (null));
  const lines = linesOf(standing, turned, text.trim().toLowerCase());
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [place, setPlace] = useState({ top: 0, height: 800 });
  const chosen = stepOf(store, looks);
  const at = placeOf(lines, chosen);

  const measure = () => {
    if (box.current !== null)
      setPlace({ top: box.current.scrollTop, height: box.current.clientHeight });
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    if (box.current !== null) observer.observe(box.current);
    return () => observer.disconnect();
  }, [lines.length === 0]);
  useLayoutEffect(() => {
    if (at >= 0) reveal(box.current, at, rowHeight);
  }, [chosen, at, rowHeight]);

  const choose = (/** @type {Line} */ line, /** @type {boolean} */ isStep = false) =>
    session.look({ step: line.codonId, moment: null, compare: null }, { isStep });
  const turn = (/** @type {Line} */ { key }) => {
    const next = new Set(turned);
    if (!next.delete(key)) next.add(key);
    setTurned(next);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const to = aim(event.key, at, lines.length);
    const line = lines[at];
    if (to !== null && lines[to]) {
      choose(lines[to], true);
      requestAnimationFrame(() => document.getElementById(`step-${lines[to].key}`)?.focus());
    } else if (line?.isFolded === (event.key === "ArrowRight") && event.key.startsWith("Arrow")) {
      turn(line);
    } else return;

    event.preventDefault();
    event.stopPropagation();
  };

  const first = Math.max(0, Math.floor(place.top / rowHeight) - BEYOND);
  const last = Math.ceil((place.top + place.height) / rowHeight) + BEYOND;
  const isFiltered = text !== "";
  return html`
    <div class=${isFilterOpen || standing.total > MANY ? "filter shown" : "filter"}>
      <input
        id="filter"
        type="search"
        aria-label="Filter the steps"
        placeholder="Filter"
        value=${text}
        onFocus=${() => openFilter(true)}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${(event) => {
          if (event.key !== "Escape") return;
          setText("");
          openFilter(false);
          event.target.blur();
        }}
      />
    </div>
    ${lines.length === 0 && html`<${Empty}>${none(store, isFiltered)}<//>`}
    <div class="list-of-steps" ref=${box} onScroll=${measure}>
      <ol aria-label="Steps in order" style=${{ height: `${lines.length * rowHeight}px` }} onKeyDown=${press}>
        ${lines.slice(first, last).map(
          (line, row) => html`<${StepRow}
            key=${line.key}
            line=${line}
            top=${(first + row) * rowHeight}
            store=${store}
            standing=${standing}
            now=${now}
            isChosen=${first + row === at}
            isReachable=${first + row === Math.max(0, at)}
            onChoose=${() => choose(line)}
            onTurn=${() => turn(line)}
            isMenuOpen=${menu?.line.key === line.key}
            onMenu=${(/** @type {{left: number, top: number}} */ at) => openMenu({ line, at })}
          />`,
        )}
      </ol>
    </div>
    ${menu && html`<${StepMenu} session=${session} codonIds=${idsOf(menu.line)} at=${menu.at} onClose=${() => openMenu(null)} />`}`;
}

/** Of a loop, the newest round and the loop itself. @param {Line} line */
const idsOf = ({ codonId, entries, isFolded }) => [...new Set([codonId, ...(isFolded === null ? [] : [entries[0].codonId])])];

function none(store, isFiltered) {
  if (!store.isLoaded) return "Reading …";
  return isFiltered ? "No step matches." : "There is no plan: checkpoints are taken on request.";
}

const SAID = {
  todo: "to do",
  running: "running",
  waiting: "waiting",
  done: "completed",
  failed: "failed",
  skipped: "skipped",
};

function StepRow({ line, top, store, standing, now, isChosen, isReachable, isMenuOpen, onChoose, onTurn, onMenu }) {
  const { key, name, status, entries, isRound, isFolded } = line;
  const codons = entries.map((each) => standing.ran.get(each.codonId)).filter(Boolean);
  const { time, cost } = figuresOf(entries, codons, store.figures.forecast, now);
  const note = noteOf(codons, store, now);
  const until = codons.at(-1)?.wait?.until;
  return html`<li
    style=${{ transform: `translateY(${top}px)` }}
    onContextMenu=${(event) => {
      event.preventDefault();
      const { left, bottom } = event.currentTarget.getBoundingClientRect();
      onMenu({ left: event.clientX || left, top: event.clientY || bottom });
    }}
  >
    <button
      type="button"
      id=${`step-${key}`}
      class=${`step s-${status}${isRound ? " round" : ""}`}
      aria-current=${isChosen ? "true" : undefined}
      aria-expanded=${isFolded === null ? undefined : !isFolded}
      tabindex=${isReachable ? 0 : -1}
      title=${visible(name)}
      onClick=${() => {
        onChoose();
        if (isFolded !== null) onTurn();
      }}
    >
      ${isRound ? html`<span class="icon"></span>` : html`<${Icon} name=${status} />`}
      <span class="name">${visible(name)}</span>
      <span class="hidden">, ${SAID[status]}</span>
      ${note && html`<span class="note-of">${note}</span>`}
      ${until
        ? html`<span class="took until" title="until it goes on">${clockSpan(Date.parse(until) - now)}</span>`
        : html`<span class="took">${time}</span>`}
      <span class="cost">${cost}</span>
    </button>
    <button
      type="button"
      class="step-menu"
      aria-label=${`Actions for ${visible(name)}`}
      aria-haspopup="menu"
      aria-expanded=${isMenuOpen}
      tabindex="-1"
      onClick=${(event) => {
        const { left, bottom } = event.currentTarget.getBoundingClientRect();
        onMenu({ left, top: bottom + 2 });
      }}
    >⋯</button>
  </li>`;
}

/** What it took, or is expected to. */
function figuresOf(entries, codons, forecast, now) {
  if (codons.length > 0)
    return {
      time: clockSpan(codons.reduce((sum, each) => sum + took(each, now), 0)),
      cost: price(costOfAll(codons)),
    };

  const expected = entries
    .map(({ codonId }) => forecast?.steps?.find((each) => each.codonId === codonId))
    .filter(Boolean);
  if (expected.length === 0) return { time: "", cost: "" };
  const sum = (key) => expected.reduce((total, each) => total + (each[key] ?? 0), 0);
  return { time: `~${clockSpan(sum("ms"))}`, cost: `~${price(sum("cost"))}` };
}

/** What is out of the ordinary about it. */
function noteOf(codons, store, now) {
  const newest = codons.at(-1);
  if (newest === undefined) return "";

  const retry = store.retries.get(newest.codonId);
  if (newest.reused) return "reused";
  if (retry && retry.at > now) return `again in ${clockSpan(retry.at - now)}`;
  return newest.attempt > 1 ? `attempt ${newest.attempt}` : "";
}

/**
 * @param {import("../standing.js").Standing} standing @param {Set<string>} turned
 * @param {string} text what they are filtered by, in small letters
 * @returns {Line[]}
 */
function linesOf(standing, turned, text) {
  const lines = standing.steps.flatMap((step) => {
    const isFolded = !turned.has(step.key);
    /** @type {Line} */
    const head = {
      key: step.key,
      codonId: (newestOf(step, standing) ?? step.entries[0]).codonId,
      name: step.isLoop ? `${step.name} ×${roundsOf(step.entries)}` : step.name,
      status: statusOfStep(step, standing),
      entries: step.entries,
      isRound: false,
      isFolded: step.isLoop ? isFolded : null,
    };
    if (!step.isLoop) return [head];

    const newest = newestOf(step, standing);
    const shown = isFolded ? (newest ? [newest] : []) : step.entries;
    return [head, ...shown.map((entry) => roundLine(entry, step, standing))];
  });
  return text === ""
    ? lines
    : lines.filter((line) =>
        `${line.name} ${line.codonId} ${SAID[line.status]}`.toLowerCase().includes(text),
      );
}

/** The round that was begun last. */
function newestOf(step, { ran }) {
  return step.entries.findLast((entry) => ran.has(entry.codonId));
}

const roundsOf = (entries) => 1 + Math.max(...entries.map((each) => each.loopContext.iteration));

const PASSED = { done: "passed", failed: "failed", skipped: "skipped", running: "running", waiting: "waits", todo: "to do" };

/** @returns {Line} */
function roundLine(entry, step, { ran, asked }) {
  const status = statusOf(ran.get(entry.codonId), asked);
  const round = `round ${entry.loopContext.iteration + 1}`;
  const isAlone = nameOf(entry) === step.name;
  return {
    key: entry.codonId,
    codonId: entry.codonId,
    name: `${isAlone ? round : `${nameOf(entry)}, ${round}`}, ${PASSED[status]}`,
    status,
    entries: [entry],
    isRound: true,
    isFolded: null,
  };
}

/** The line of a codon: its own, or that of the loop that hides it. */
function placeOf(/** @type {Line[]} */ lines, /** @type {string | null} */ codonId) {
  const own = lines.findIndex((line) => line.codonId === codonId && line.isFolded === null);
  if (own >= 0) return own;
  return lines.findIndex((line) => line.entries.some((entry) => entry.codonId === codonId));
}

function aim(key, from, count) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  if (count === 0) return null;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (steps[key] === undefined) return null;
  return Math.min(count - 1, Math.max(0, from + steps[key]));
}

function reveal(element, at, rowHeight) {
  if (element === null) return;

  const top = at * rowHeight;
  if (top < element.scrollTop) element.scrollTop = top - rowHeight;
  else if (top + rowHeight > element.scrollTop + element.clientHeight)
    element.scrollTop = Math.ceil((top + 3 * rowHeight - element.clientHeight) / rowHeight) * rowHeight; // No half row at the top.
}
