/**
 * Pictures that agents made: shown as pictures, and as nothing else. What a file is, its first bytes
 * say, not its name; only the four formats of pixels are known. An SVG is a document that can hold
 * scripts, and stays the text that it is.
 */
import { html, useEffect, useState } from "../dom.js";
import { count } from "../format.js";

export const LARGEST = 8_000_000; // Bytes: they have to come over the socket, and be kept here.
const MOST_PIXELS = 50_000_000; // A file of some kilobytes can unfold to gigabytes of them.

/**
 * @typedef {{type: string, width: number, height: number}} Format
 * @param {Uint8Array} bytes the beginning of a file
 * @returns {Format | null} null for what is no picture, or does not say how large it is
 */
export function formatOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (/** @type {number} */ from, /** @type {number} */ to) =>
    String.fromCharCode(...bytes.subarray(from, to));
  try {
    if (text(0, 8) === "\x89PNG\r\n\x1a\n" && text(12, 16) === "IHDR")
      return { type: "image/png", width: view.getUint32(16), height: view.getUint32(20) };
    if (/^GIF8[79]a$/.test(text(0, 6)))
      return {
        type: "image/gif",
        width: view.getUint16(6, true),
        height: view.getUint16(8, true),
      };
    if (text(0, 3) === "\xff\xd8\xff") return jpeg(view);
    if (text(0, 4) === "RIFF" && text(8, 12) === "WEBP") return webp(view, text(12, 16));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // It ends too early.
  }
  return null;
}

/** Its size stands in the frame's header, behind segments of any length. @param {DataView} view */
function jpeg(view) {
  for (let at = 2; view.getUint8(at) === 0xff; at += 2 + view.getUint16(at + 2)) {
    const marker = view.getUint8(at + 1);
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame)
      return {
        type: "image/jpeg",
        width: view.getUint16(at + 7),
        height: view.getUint16(at + 5),
      };
  }
  return null;
}

/** @param {DataView} view @param {string} kind */
function webp(view, kind) {
  const size = (/** @type {number} */ width, /** @type {number} */ height) => ({
    type: "image/webp",
    width,
    height,
  });
  if (kind === "VP8 ")
    return size(view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff);
  if (kind === "VP8L") {
    const bits = view.getUint32(21, true);
    return size((bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1);
  }

  const of24 = (/** @type {number} */ at) => (view.getUint32(at - 1, true) >>> 8) + 1;
  return kind === "VP8X" ? size(of24(24), of24(27)) : null;
}

/**
 * @param {{format: Format, label: string, read: () => Promise<Uint8Array<ArrayBuffer>[]>}} props
 *   `read` gives the whole file.
 */
export function Picture({ format, label, read }) {
  const [address, setAddress] = useState("");
  const [failure, setFailure] = useState("");
  const { type, width, height } = format;
  const isTooLarge = width * height > MOST_PIXELS;
  useEffect(() => {
    if (isTooLarge) return undefined;

    let isCurrent = true;
    let made = "";
    read().then(
      (parts) => {
        if (!isCurrent) return;
        made = URL.createObjectURL(new Blob(parts, { type }));
        setAddress(made);
      },
      (error) => isCurrent && setFailure(error.message),
    );
    return () => {
      isCurrent = false;
      URL.revokeObjectURL(made);
    };
  }, []);
  const size = `${count(width)} × ${count(height)} pixels`;
  if (isTooLarge)
    return html`<p class="empty">This picture of ${size} is too large to show here.</p>`;
  if (failure)
    return html`<p class="empty">This picture of ${size} cannot be shown: ${failure}</p>`;
  return html`<figure class="picture">
    ${
      address === ""
        ? html`<p class="empty">Reading …</p>`
        : html`<img src=${address} alt=${label} onError=${() => setFailure("it is damaged.")} />`
    }
    <figcaption class="hint">${size}</figcaption>
  </figure>`;
}
