/** The agent's own words: Markdown, or JSON laid out; very long ones at first in part. */
import { html, useEffect, useState } from "../../dom.js";
import { plural, unmasked } from "../../format.js";
import { drawn, markdown } from "../../markdown.js";
import { asJson } from "./output.js";

const LONGEST = 12_000; // Characters that are shown at first.

/** @type {any} the library, once it is there: blocks come and go, and must not flicker */
let reader = null;

/** @param {{text: string, isLast?: boolean}} props `isLast`: more may come */
export function Words({ text, isLast = false }) {
  const [, draw] = useState(reader);
  const [isWhole, setWhole] = useState(text.length <= LONGEST);
  useEffect(() => {
    if (reader === null)
      markdown().then(
        (library) => draw((reader = library)),
        () => undefined, // The text itself is shown.
      );
  }, []);
  const json = asJson(text);
  const shown = isWhole ? text : text.slice(0, LONGEST);
  return html`<div class=${isLast ? "words last" : "words"}>
    ${
      json !== null
        ? html`<pre class="printed">${isWhole ? json : json.slice(0, LONGEST)}</pre>`
        : reader === null
          ? html`<p class="as-is">${unmasked(shown)}</p>`
          : drawn(reader, shown)
    }
    ${!isWhole && html`
      <button type="button" class="link" onClick=${() => setWhole(true)}>
        Show the other ${plural(text.length - LONGEST, "character")}
      </button>`}
  </div>`;
}
