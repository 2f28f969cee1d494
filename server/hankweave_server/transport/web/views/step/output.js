/** What a tool or a program printed: its last lines, all of it on demand, its pictures. */
import { colouredParts } from "../../ansi.js";
import { html, useMemo, useState } from "../../dom.js";
import { count, laidOut, plural } from "../../format.js";
import { useAnswer } from "../../parts/hooks.js";
import { Picture, formatOf } from "../../parts/picture.js";

const LINES = 12;
const TAIL = 6_000; // Characters of a long result that are read for its last lines.
const PIECE = 200_000;
const WIDE = 2_000; // Characters of a line.
const SETTLED = 200; // Milliseconds that something must be seen before more of it is read.
const KEPT = 100;

/** Answers that were given once: blocks leave the page, and come back. @type {Map<string, Promise<any>>} */
const answers = new Map();

function once(session, seq, offset) {
  const key = `${session.store.execution} ${seq} ${offset}`;
  if (!answers.has(key)) {
    if (answers.size > KEPT) answers.clear();
    const answer = session.ask("codon.readResult", { seq, offset, length: TAIL });
    answer.catch(() => answers.delete(key));
    answers.set(key, answer);
  }
  return /** @type {Promise<any>} */ (answers.get(key));
}

/** Lines with their colours. @param {{text: string, isBad?: boolean, label: string}} props */
export function Printed({ text, isBad = false, label }) {
  const parts = useMemo(() => colouredParts(text), [text]);
  const isPlain = parts.every(({ look }) => look === "");
  return html`<pre class="printed" aria-label=${label}>${
    isBad && isPlain
      ? parts.flatMap((part) => marked(part.text))
      : parts.map(({ text: words, look }) => (look ? html`<span class=${look}>${words}</span>` : words))
  }</pre>`;
}

const TELLING = /\b(error|fail(ed|ure)?|exception|panic|fatal)\b|^E\s/i;

/** The lines that say what is wrong. @param {string} text */
function marked(text) {
  return text
    .split("\n")
    .flatMap((line, at) => [at > 0 ? "\n" : "", TELLING.test(line) ? html`<span class="of-bad">${line}</span>` : line]);
}

/** The lines of a program, the last of them at first. @param {{lines: string[], label: string}} props */
export function Lines({ lines, label }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? lines : lines.slice(-LINES);
  return html`
    ${lines.length > LINES && html`
      <${Fold} isOpen=${isWhole} onTurn=${() => setWhole(!isWhole)}>
        ${isWhole ? "Show the last lines" : `${plural(lines.length - LINES, "line")} before`}
      <//>`}
    <${Printed} text=${shown.map((line) => line.slice(0, WIDE)).join("\n")} label=${label} />`;
}

function Fold({ isOpen, onTurn, children }) {
  return html`<button type="button" class="link fold" aria-expanded=${isOpen} onClick=${onTurn}>${children}</button>`;
}

/**
 * @param {{session: import("../../session.js").Session, result: any}} props `result`: the event.
 */
export function Output({ session, result }) {
  const { result: text, truncated, originalLength, isError } = result.data;
  const [isWhole, setWhole] = useState(false);
  const isPicture = text.startsWith('{"type":"image"');
  const tail = useAnswer(
    () =>
      truncated || isPicture
        ? once(session, result.seq, isPicture ? 0 : Math.max(0, originalLength - TAIL))
        : Promise.resolve(null),
    [result.seq],
    SETTLED,
  );
  if (isPicture) return html`<${Pictures} answer=${tail} />`;
  if (isWhole) return html`<${Whole} session=${session} result=${result} onClose=${() => setWhole(false)} />`;

  const known = tail.data?.content ?? (truncated ? text.slice(0, -3) : text);
  const laid = truncated ? null : asJson(known);
  const lines = (laid ?? known).replace(/\n+$/, "").split("\n");
  const isTail = tail.data !== null || !truncated;
  const shown = isTail ? lines.slice(-LINES) : lines.slice(0, LINES);
  const isMore = truncated || lines.length > LINES || shown.some((line) => line.length > WIDE);
  const words = shown.map((line) => line.slice(0, WIDE)).join("\n");
  if (words.trim() === "" && !isMore) return html`<p class="hint quiet">no output</p>`;
  return html`
    ${isMore && isTail && html`
      <${Fold} isOpen=${false} onTurn=${() => setWhole(true)}>
        ${truncated ? `Show all ${count(originalLength)} characters` : `Show all ${plural(lines.length, "line")}`}
      <//>`}
    <${Printed} text=${words} isBad=${isError} label="Output" />
    ${tail.error && html`
      <p class="hint quiet">The first ${count(known.length)} of ${count(originalLength)} characters. ${tail.error.message}</p>`}`;
}

function Whole({ session, result, onClose }) {
  const { truncated, result: text } = result.data;
  const [parts, setParts] = useState(/** @type {any[]} */ ([]));
  const first = useAnswer(
    () =>
      truncated
        ? session.ask("codon.readResult", { seq: result.seq, offset: 0, length: PIECE })
        : Promise.resolve({ content: text }),
    [result.seq],
  );
  const all = first.data ? [first.data, ...parts] : [];
  const next = all.at(-1)?.nextOffset;
  const whole = all.map((part) => part.content).join("");
  const goOn = () =>
    session.try(async () => {
      const part = await session.ask("codon.readResult", { seq: result.seq, offset: next, length: PIECE });
      setParts([...parts, part]);
    });
  return html`
    <${Fold} isOpen=${true} onTurn=${onClose}>Show the last lines<//>
    <div class="whole" tabindex="0" role="group" aria-label="All of the output">
      ${first.data === null && !first.error && html`<p class="empty">Reading …</p>`}
      ${first.error && html`<p class="empty">${first.error.message}</p>`}
      <${Printed} text=${(next === undefined && asJson(whole)) || whole} isBad=${result.data.isError} label="Output" />
      ${next !== undefined && html`<button type="button" onClick=${goOn}>More of it</button>`}
    </div>`;
}

function Pictures({ answer }) {
  if (answer.error) return html`<p class="empty">${answer.error.message}</p>`;
  if (answer.data === null) return html`<p class="empty">Reading …</p>`;

  return answer.data.images.map((/** @type {any} */ { data }, /** @type {number} */ at) => {
    const bytes = bytesOf(data);
    const format = bytes && formatOf(bytes);
    return format
      ? html`<${Picture} key=${at} format=${format} label="Picture that the tool returned" read=${async () => [bytes]} />`
      : html`<p class="empty">A picture of a kind that is not shown here.</p>`;
  });
}

/** @param {string} text base64 */
function bytesOf(text) {
  try {
    return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Laid out, if it is JSON of more than one value; null otherwise. @param {string} text */
export function asJson(text) {
  const [first] = text.trimStart();
  if ((first !== "{" && first !== "[") || text.length > PIECE) return null;

  try {
    return laidOut(JSON.parse(text));
  } catch {
    return null;
  }
}
