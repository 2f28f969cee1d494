/**
 * A unified diff, drawn by diff2html. Its HTML is not trusted: it is parsed where nothing runs, and
 * built again from the few elements and the one attribute that a diff needs.
 */
import { html, useEffect, useMemo, useRef, useState } from "../dom.js";
import { unmasked } from "../format.js";

const LONGEST = 300_000; // Characters; beyond that the text itself is shown.
const COMPARED = 30_000; // Up to here, what changed within a line is marked, too.
const ELEMENTS = new Set(["DIV", "SPAN", "TABLE", "TBODY", "TR", "TD", "INS", "DEL"]);

/** @type {Promise<any> | null} */
let library = null;

function diff2html() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("../vendor/diff2html.min.js", import.meta.url).href;
    script.onload = () => resolve(/** @type {any} */ (globalThis).Diff2Html);
    script.onerror = () => {
      library = null;
      reject(new Error("diff2html could not be loaded."));
    };
    document.head.append(script);
  });
  return library;
}

/** @param {{patch: string, label: string}} props */
export function Diff({ patch: raw, label }) {
  const patch = useMemo(() => unmasked(raw), [raw]);
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [isPlain, setPlain] = useState(patch.length > LONGEST);
  useEffect(() => {
    if (isPlain) return undefined;

    let isCurrent = true;
    diff2html().then(
      (library) => isCurrent && place.current?.replaceChildren(drawn(library, patch)),
      () => isCurrent && setPlain(true),
    );
    return () => {
      isCurrent = false;
    };
  }, [patch, isPlain]);
  if (isPlain) return html`<pre class="plain" tabindex="0" aria-label=${label}>${patch}</pre>`;
  // No landmark: the same file can be compared in several places.
  return html`<div class="diff" ref=${place} tabindex="0" role="group" aria-label=${label}></div>`;
}

function drawn(library, patch) {
  const text = library.html(patch, {
    drawFileList: false,
    outputFormat: "line-by-line",
    matching: patch.length < COMPARED ? "lines" : "none",
  });
  const parsed = new DOMParser().parseFromString(text, "text/html");
  const fragment = document.createDocumentFragment();
  for (const table of parsed.querySelectorAll(".d2h-diff-table")) fragment.append(copied(table));
  if (!fragment.hasChildNodes())
    fragment.append("Nothing to compare line by line: the file is binary, or too large.");
  return fragment;
}

/** Between the elements of a table there is white space for whoever reads its source. */
const isCode = (element) => element.closest(".d2h-code-line-ctn, .d2h-code-line-prefix") !== null;

/** @param {Element} element */
function copied(element) {
  const copy = document.createElement(element.tagName);
  const name = element.getAttribute("class");
  if (name !== null) copy.setAttribute("class", name);
  for (const child of element.childNodes) {
    if (child instanceof Text) copy.append(isCode(element) ? child.data : child.data.trim());
    else if (child instanceof Element && ELEMENTS.has(child.tagName)) copy.append(copied(child));
    else copy.append(child.textContent ?? "");
  }
  return copy;
}
