/** The transcript of a step, from its beginning to what happens now, and what is found in it. */
import { html, useEffect, useMemo, useRef, useState } from "../../dom.js";
import { count } from "../../format.js";
import { Empty } from "../../parts/basics.js";
import { Icon } from "../../parts/icon.js";
import { Trouble } from "../../parts/dialog.js";
import { useAnswer } from "../../parts/hooks.js";
import { PagedList } from "../../parts/paged-list.js";
import { Transcript, rangeOf } from "../../transcript.js";
import { Block } from "./block.js";

const REST = 300; // Milliseconds before what is typed is searched for.
const MARKED = 500; // Places that are marked at once.

/**
 * @param {{session: import("../../session.js").Session, codon: any, isActive: boolean,
 *   at?: number | null}} props
 *   `codon`: one attempt, as in the state; `at`: the event that it is shown at, null for its end
 */
export function TranscriptView({ session, codon, isActive, at = null }) {
  const { store } = session;
  const range = useAnswer(
    () => rangeOf(session.ask, codon, store.lastSeq),
    [codon.codonId, codon.startTime],
  );
  if (range.error) return html`<${Trouble} error=${range.error} />`;
  if (range.data === null) return html`<${Empty}>Reading …<//>`;
  return html`<${Pages} session=${session} codon=${codon} range=${range.data} isActive=${isActive} at=${at} />`;
}

function Pages({ session, codon, range, isActive, at }) {
  const { store } = session;
  const [version, draw] = useState(0);
  const [goal, setGoal] = useState(/** @type {{page: number, key: number} | null} */ (null));
  const [wanted, setWanted] = useState("");
  const frame = useRef(0);
  const transcript = useMemo(() => {
    const changed = () => {
      frame.current ||= requestAnimationFrame(() => {
        frame.current = 0;
        draw((n) => n + 1);
      });
    };
    return new Transcript(session.ask, range, changed);
  }, [range]);
  useEffect(() => {
    transcript.listen(store.lastSeq);
    const hear = (/** @type {any} */ event) =>
      transcript.add(event, (event.codonId ?? event.data.codonId ?? codon.codonId) === codon.codonId);
    store.hearers.add(hear);
    return () => {
      store.hearers.delete(hear);
      cancelAnimationFrame(frame.current);
    };
  }, [transcript]);
  useEffect(() => {
    let isCurrent = at !== null;
    setGoal(null);
    if (at !== null) transcript.placeAt(at).then((place) => isCurrent && place && setGoal({ ...place }));
    return () => void (isCurrent = false);
  }, [transcript, at]);

  // A block is drawn again when it, or how it stands out, has changed; not when the list scrolls.
  const drawn = useMemo(() => new WeakMap(), [session, isActive]);
  const last = transcript.at(transcript.count - 1)?.at(-1) ?? null;
  const block = (/** @type {import("../../blocks.js").Block} */ each) => {
    const look = `${each.key === goal?.key} ${each === last}`;
    const before = drawn.get(each);
    if (before?.look === look) return before.node;

    const node = html`<${Block}
      session=${session}
      block=${each}
      runs=${isActive}
      isFound=${each.key === goal?.key}
      isLast=${each === last}
    />`;
    drawn.set(each, { look, node });
    return node;
  };
  const isEmpty = transcript.count === 1 && transcript.at(0)?.length === 0;
  return html`<div class="transcript">
    <${Find} transcript=${transcript} onGoal=${setGoal} onText=${setWanted} />
    ${transcript.error && html`<${Trouble} error=${transcript.error} />`}
    ${isEmpty && html`<${Empty}>${isActive ? "The agent has said nothing yet." : "The agent said nothing."}<//>`}
    <${PagedList}
      key=${`${codon.startTime} ${at === null}`}
      source=${transcript}
      version=${version}
      label="Transcript"
      block=${block}
      goal=${goal}
      atEnd=${isActive || codon.status === "failed"}
      onDrawn=${(box) => mark(box, wanted)}
      foot=${isActive && html`<p class="caret" aria-hidden="true"></p>`}
    />
  </div>`;
}

/**
 * @param {{transcript: Transcript, onGoal: (goal: {page: number, key: number} | null) => void,
 *   onText: (text: string) => void}} props
 */
function Find({ transcript, onGoal, onText }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(/** @type {{seqs: number[], part: number, error: any} | null} */ (null));
  const [at, setAt] = useState(-1);
  const turn = useRef(0);
  useEffect(() => {
    const own = (turn.current += 1);
    setFound(null);
    setAt(-1);
    onText("");
    onGoal(null);
    const wanted = text.trim();
    if (wanted === "") return undefined;

    const timer = setTimeout(() => {
      onText(wanted);
      const told = (/** @type {number[]} */ seqs, /** @type {number} */ part) => {
        if (own !== turn.current) return false;
        setFound({ seqs, part, error: null });
        return true;
      };
      transcript.find(wanted, told).catch((error) => own === turn.current && setFound({ seqs: [], part: 1, error }));
    }, REST);
    return () => clearTimeout(timer);
  }, [text, transcript]);
  useEffect(() => () => void (turn.current = -1), []);
  const total = found?.seqs.length ?? 0;
  useEffect(() => {
    if (total > 0 && at < 0) go(0);
  }, [total > 0, at]);

  async function go(/** @type {number} */ to) {
    if (found === null || total === 0) return;
    const own = turn.current;
    const next = (to + total) % total;
    setAt(next);
    const place = await transcript.placeOf(found.seqs[next]).catch(() => null);
    if (place !== null && own === turn.current) onGoal({ ...place });
  }
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") go(event.shiftKey ? at - 1 : at + 1);
    else if (event.key === "Escape" && text !== "") setText("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<form class="find" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>
      <${Icon} name="search" /><span class="hidden">Find in this step</span>
      <input
        id="find"
        type="search"
        placeholder="Find in this step"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${press}
      />
    </label>
    ${text.trim() !== "" && html`
      <span class="counted" role="status">${words(found, at)}</span>
      <button type="button" class="quiet" aria-label="Previous" disabled=${total === 0} onClick=${() => go(at - 1)}>↑</button>
      <button type="button" class="quiet" aria-label="Next" disabled=${total === 0} onClick=${() => go(at + 1)}>↓</button>`}
  </form>`;
}

function words(found, at) {
  if (found === null) return "Searching …";
  if (found.error) return found.error.message;
  const { seqs, part } = found;
  const searched = part < 1 ? `, ${Math.round(part * 100)} % searched` : "";
  return seqs.length === 0 ? `None${searched}` : `${count(at + 1)} of ${count(seqs.length)}${searched}`;
}

/**
 * Marks a text wherever it stands, without a change of the document.
 * @param {HTMLElement} box @param {string} text
 */
function mark(box, text) {
  const { highlights } = /** @type {any} */ (CSS);
  if (highlights === undefined) return;
  if (text === "") return void highlights.delete("find");

  const wanted = text.toLowerCase();
  const ranges = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null && ranges.length < MARKED; node = walker.nextNode()) {
    const here = (node.nodeValue ?? "").toLowerCase();
    for (let from = here.indexOf(wanted); from >= 0; from = here.indexOf(wanted, from + wanted.length)) {
      const range = new Range();
      if (here.length !== node.nodeValue?.length) break; // Letters that are longer when they are small.
      range.setStart(node, from);
      range.setEnd(node, from + wanted.length);
      ranges.push(range);
    }
  }
  highlights.set("find", new /** @type {any} */ (globalThis).Highlight(...ranges));
}
