/** The events of a step, or of the whole run: newest first, in plain words, a call with its result. */
import { html, useEffect, useMemo, useRef, useState } from "../../dom.js";
import { count } from "../../format.js";
import { Found } from "../../journal.js";
import { Icon } from "../../parts/icon.js";
import { Trouble } from "../../parts/dialog.js";
import { Since } from "../../parts/basics.js";
import { useAnswer, useNow } from "../../parts/hooks.js";
import { VirtualList } from "../../parts/virtual-list.js";
import { paired, sentenceOf } from "../../sentences.js";
import { rangeOf } from "../../transcript.js";

const ROW = 28;
const REST = 250;
const LIVE_KEPT = 2_000;
const COUNTED = 200_000; // Events of a journal whose types are counted.

const COUNTS = ["filetree.updated", "state.snapshot"];
const TICKS = ["CostsIncremented", "CostsUpdated", "SentinelStatesUpdated", "ExtensionCountUpdated"];

// What a program counts, and what is told in other words beside it.
const isBookkeeping = (/** @type {any} */ { type, data }) =>
  COUNTS.includes(type) || TICKS.includes(data.transition?.type);

/**
 * @param {{session: import("../../session.js").Session, codonId: string | null,
 *   attempt?: {run: any, codon: any}, until?: number | null}} props
 *   `codonId`: null for those of the whole execution; `until`: the newest, null for now
 */
export function StepEvents({ session, codonId, attempt, until: newest = null }) {
  const isChosen = codonId !== null;
  const { store } = session;
  const [text, setText] = useState("");
  const [wanted, setWanted] = useState("");
  const [type, setType] = useState("");
  const [at, setAt] = useState(-1);
  const [version, draw] = useState(0);
  const live = useRef(/** @type {any[]} */ ([]));
  useEffect(() => {
    const timer = setTimeout(() => setWanted(text.trim()), REST);
    return () => clearTimeout(timer);
  }, [text]);
  const range = useAnswer(
    async () => {
      const last = store.lastSeq;
      return attempt === undefined
        ? { since: 0, until: newest ?? last, isOpen: newest === null }
        : rangeOf(session.ask, attempt.codon, last);
    },
    [codonId, attempt?.codon.startTime, newest, store.isLoaded],
  );
  const source = useMemo(() => {
    if (range.data === null) return null;
    const { since, until } = range.data;
    live.current = [];
    const query = {
      types: type ? [type] : undefined,
      codonId: codonId ?? undefined,
      text: wanted || undefined,
      since,
      until,
    };
    return new Found(session.ask, query, () => draw((n) => n + 1), (event) => type !== "" || !isBookkeeping(event));
  }, [range.data, wanted, type]);
  useEffect(() => {
    if (range.data === null || !range.data.isOpen || wanted !== "" || type !== "") return undefined;
    const hear = (/** @type {any} */ event) => {
      if (event.seq <= range.data.until || isBookkeeping(event)) return;
      if (codonId !== null && (event.codonId ?? event.data.codonId) !== codonId) return;
      live.current.unshift(event);
      if (live.current.length > LIVE_KEPT) live.current.length = LIVE_KEPT;
      draw((n) => n + 1);
    };
    store.hearers.add(hear);
    return () => void store.hearers.delete(hear);
  }, [range.data, wanted, type]);
  const types = useAnswer(
    async () =>
      store.lastSeq > COUNTED ? {} : ((await session.ask("events.query", { count: true })).counts ?? {}),
    [store.isLoaded],
    REST,
  );
  const rows = useMemo(
    () => (source === null ? [] : paired([...live.current, ...source.events])),
    [source, version],
  );
  const see = (/** @type {number} */ _first, /** @type {number} */ last) =>
    void source?.want(0, last + Math.max(0, source.count - rows.length));
  useEffect(() => see(0, 60), [source]);
  const now = useNow(10_000);
  const root = store.server?.agentRootPath;
  const open = (/** @type {number} */ row) =>
    session.look({ dialog: { kind: "event", event: rows[row].result ?? rows[row].event } });
  return html`<div class="step-events">
    <form class="find" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>
        <${Icon} name="search" /><span class="hidden">Search the events</span>
        <input
          id="search"
          type="search"
          placeholder=${isChosen ? "Search the events" : `Search ${count(newest ?? store.lastSeq)} events`}
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        />
      </label>
      <label>
        <span class="hidden">Type</span>
        <select value=${type} onChange=${(event) => setType(event.target.value)}>
          <option value="">all types</option>
          ${Object.entries(types.data ?? {}).sort().map(([name, number]) => html`<option key=${name} value=${name}>${name} (${count(number)})</option>`)}
        </select>
      </label>
      ${isChosen && html`<button type="button" class="link" onClick=${() => session.look({ step: null })}>of the whole run</button>`}
    </form>
    ${(range.error ?? source?.error) && html`<${Trouble} error=${range.error ?? source?.error} />`}
    <${VirtualList}
      id="own-event"
      count=${rows.length}
      rowHeight=${ROW}
      label="Events, newest first"
      selected=${at}
      onSelect=${setAt}
      onOpen=${open}
      onRange=${see}
      empty=${source === null || source.hasMore ? "Reading …" : "No event matches."}
      row=${(/** @type {number} */ row) => drawn(rows[row], root, now)}
    />
  </div>`;
}

function drawn(row, root, now) {
  const { what, words, role } = sentenceOf(row, root);
  return html`<${Since} at=${row.event.timestamp} now=${now} />
    <span class=${`what ${role && `r-${role}`}`}>${what}</span>
    <span class="gist">${words}</span>`;
}
