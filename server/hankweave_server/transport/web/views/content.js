/** One file as it was: as text, as the picture that it is, or not at all. */
import { html, useMemo, useState } from "../dom.js";
import { bytes, unmasked, visible } from "../format.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer } from "../parts/hooks.js";
import { LARGEST, Picture, formatOf } from "../parts/picture.js";
import { at } from "../places.js";

const PART = 200_000; // Bytes of a text that are shown at a time.
const PIECE = 524_288; // Bytes of a picture that are asked for at once: the most of an answer.

/** @param {{session: import("../session.js").Session, sha: string, path: string}} props */
export function Content({ session, sha, path }) {
  const [parts, setParts] = useState(/** @type {any[]} */ ([]));
  const [error, setError] = useState(/** @type {any} */ (null));
  const ask = (offset, length) =>
    session.ask("checkpoint.readFile", { checkpointSha: sha, path, offset, length });
  const first = useAnswer(() => ask(0, PART), [sha, path]);
  const all = useMemo(() => (first.data ? [first.data, ...parts] : []), [first.data, parts]);
  const text = useMemo(() => textOf(all), [all]);
  if (first.error) return html`<${Trouble} error=${first.error} />`;
  if (first.data === null) return html`<p class="empty">Reading …</p>`;

  const { size } = first.data;
  const next = all.at(-1).nextOffset;
  const goOn = () =>
    ask(next, PART).then((part) => {
      setParts([...parts, part]);
      setError(null);
    }, setError);
  return html`<div class="content">
    <h3>${visible(path)} <span class="size">${bytes(size)}</span></h3>
    ${
      text === null
        ? html`<${Bytes} path=${path} first=${first.data} ask=${ask} />`
        : html`<div class="written">
            ${at("margins").map((Margin) => html`<${Margin} session=${session} sha=${sha} path=${path} />`)}
            <pre tabindex="0" aria-label=${`Content of ${visible(path)}`}>${unmasked(text)}</pre>
          </div>`
    }
    <${Trouble} error=${error} />
    ${text !== null && next !== undefined && html`<button onClick=${goOn}>More of it</button>`}
  </div>`;
}

/** What is no text: a picture, or nothing that can be shown. */
function Bytes({ path, first, ask }) {
  const begin = useMemo(() => bytesOf(first), [first]);
  const format = formatOf(begin);
  if (format !== null && first.size <= LARGEST) {
    const read = () => whole(begin, first.nextOffset, ask);
    return html`<${Picture} format=${format} label=${`Picture ${visible(path)}`} read=${read} />`;
  }

  return html`<p class="empty">
    This is ${format ? "a picture too large to show here" : "not text"}; it is kept byte for byte, and a rollback restores it.
  </p>`;
}

async function whole(begin, next, ask) {
  const parts = [begin];
  for (let offset = next; offset !== undefined;) {
    const part = await ask(offset, PIECE);
    parts.push(bytesOf(part));
    offset = part.nextOffset;
  }
  return parts;
}

/**
 * Ranges of a file as one text; null where it is none. A range can begin and end within a letter,
 * and then does not come as text.
 * @param {any[]} parts
 */
function textOf(parts) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const goesOn = parts.at(-1)?.nextOffset !== undefined;
  try {
    const words = parts.map((part) => decoder.decode(bytesOf(part), { stream: true }));
    if (!goesOn) decoder.decode();
    const text = words.join("");
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** @param {{content: string, encoding: string}} part */
function bytesOf({ content, encoding }) {
  if (encoding === "utf-8") return new TextEncoder().encode(content);
  return Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
}
