/**
 * What an edit changes, line by line, from the two texts: for calls of tools, of which no checkpoint
 * and so no patch exists yet. Differences between checkpoints are drawn by `diff.js`.
 */
import { html } from "../dom.js";
import { unmasked } from "../format.js";

const COMPARED = 400_000; // Pairs of lines; beyond that the whole middle counts as changed.
const AROUND = 2; // Equal lines that are shown before and after a change.
const SHOWN = 400; // Lines of one change; the others are counted.

/** @typedef {{kind: "same" | "plus" | "minus" | "gap", number: number | null, text: string}} Line */

/**
 * The texts that a call would replace, and what with; null where it is no edit. `before` is null
 * where the call says only what the whole file becomes.
 * @param {any} input the arguments of the call
 * @returns {{path: string, parts: {before: string | null, after: string}[]} | null}
 */
export function editOf(input) {
  const path = input?.file_path ?? input?.path ?? input?.notebook_path;
  if (typeof path !== "string") return null;
  if (typeof input.content === "string") return { path, parts: [{ before: null, after: input.content }] };

  const edits = Array.isArray(input.edits) ? input.edits : [input];
  const parts = edits.map((/** @type {any} */ edit) => ({
    before: edit?.old_string ?? edit?.oldText,
    after: edit?.new_string ?? edit?.newText,
  }));
  const areEdits = parts.every(
    (/** @type {any} */ { before, after }) => typeof before === "string" && typeof after === "string",
  );
  return areEdits && parts.length > 0 ? { path, parts } : null;
}

/**
 * @param {string} before @param {string} after @param {number} [first] the number of the first line
 * @returns {Line[]}
 */
export function linesBetween(before, after, first = 1) {
  const [a, b] = [split(before), split(after)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail))
    tail += 1;
  const olds = a.slice(head, a.length - tail);
  const news = b.slice(head, b.length - tail);
  const kinds = [
    ...Array(head).fill("same"),
    ...script(olds, news),
    ...Array(tail).fill("same"),
  ];
  return shortened(numbered(kinds, a, b, first));
}

/** @param {Line[]} lines */
export function countLines(lines) {
  const of = (/** @type {string} */ kind) => lines.filter((line) => line.kind === kind).length;
  return { added: of("plus"), removed: of("minus") };
}

/** @param {string} text */
function split(text) {
  if (text === "") return [];
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}

/** The shortest way from one list of lines to the other. @returns {string[]} */
function script(/** @type {string[]} */ olds, /** @type {string[]} */ news) {
  const all = (/** @type {string} */ kind, /** @type {number} */ n) => Array(n).fill(kind);
  if (olds.length * news.length > COMPARED)
    return [...all("minus", olds.length), ...all("plus", news.length)];

  const width = news.length + 1;
  const longest = new Uint32Array((olds.length + 1) * width); // Of the common rest from here.
  for (let i = olds.length - 1; i >= 0; i -= 1)
    for (let j = news.length - 1; j >= 0; j -= 1)
      longest[i * width + j] =
        olds[i] === news[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const kinds = [];
  let [i, j] = [0, 0];
  while (i < olds.length && j < news.length) {
    if (olds[i] === news[j]) {
      kinds.push("same");
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
      kinds.push("minus");
      i += 1;
    } else {
      kinds.push("plus");
      j += 1;
    }
  }
  return [...kinds, ...all("minus", olds.length - i), ...all("plus", news.length - j)];
}

/** @returns {Line[]} */
function numbered(
  /** @type {string[]} */ kinds,
  /** @type {string[]} */ a,
  /** @type {string[]} */ b,
  /** @type {number} */ first,
) {
  let [i, j] = [0, 0];
  return kinds.map((kind) => {
    if (kind === "minus") return { kind, number: first + i, text: a[i++] };
    if (kind === "same") i += 1;
    return { kind: /** @type {"plus"} */ (kind), number: first + j, text: b[j++] };
  });
}

/** Without the equal lines that are far from any change. @param {Line[]} lines */
function shortened(lines) {
  const near = new Set();
  lines.forEach(({ kind }, at) => {
    if (kind !== "same") for (let by = -AROUND; by <= AROUND; by += 1) near.add(at + by);
  });
  /** @type {Line[]} */
  const kept = [];
  lines.forEach((line, at) => {
    if (near.has(at)) kept.push(line);
    else if (kept.length > 0 && kept.at(-1)?.kind !== "gap")
      kept.push({ kind: "gap", number: null, text: "" });
  });
  return kept.at(-1)?.kind === "gap" ? kept.slice(0, -1) : kept;
}

const SIGNS = { same: "", plus: "added: ", minus: "removed: ", gap: "" };

/** @param {{lines: Line[], label: string}} props */
export function Lines({ lines, label }) {
  // No landmark: a transcript has many of them, and of the same file.
  return html`<div class="lines" role="group" tabindex="0" aria-label=${label}>
    ${lines.slice(0, SHOWN).map(
      ({ kind, number, text }, at) => html`<div key=${at} class=${`of-${kind}`}>
        <span class="number" aria-hidden="true">${kind === "gap" ? "⋮" : number}</span>
        <code><span class="hidden">${SIGNS[kind]}</span>${unmasked(text)}</code>
      </div>`,
    )}
    ${lines.length > SHOWN && html`<p class="hint">and ${lines.length - SHOWN} more lines</p>`}
  </div>`;
}
