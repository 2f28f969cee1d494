/** How to start a run: as a command to be pasted, for a hank that has run before or for another. */
import { html, useState } from "../dom.js";
import { visible } from "../format.js";
import { Dialog } from "../parts/dialog.js";

/** @param {{rows: import("hankweave").ListedExecution[], onClose: () => void}} props */
export function NewRun({ rows, onClose }) {
  const known = knownOf(rows);
  const [at, setAt] = useState(0);
  const [said, setSaid] = useState("");
  const command = commandOf(known[at]);
  const copy = () =>
    navigator.clipboard.writeText(command).then(
      () => setSaid("Copied."),
      () => setSaid("The browser does not allow it: select the text."),
    );
  return html`<${Dialog} title="New run" onClose=${onClose}>
    <p>A run is started in a terminal, on the machine that it works on. Its page opens at the address that the command prints.</p>
    ${known.length > 0 && html`<label>
      Hank <select value=${at} onChange=${(event) => setAt(Number(event.target.value))}>
        ${known.map(({ hank, data, hankName }, each) => html`<option key=${each} value=${each}>${visible(hankName ?? hank)}${data ? ` on ${visible(data)}` : ""}</option>`)}
        <option value=${known.length}>another one</option>
      </select>
    </label>`}
    <pre tabindex="0" aria-label="How to start it">${command}</pre>
    <footer>
      <span class="hint" role="status">${said}</span>
      <button type="button" class="main" autofocus onClick=${copy}>Copy</button>
    </footer>
  <//>`;
}

/** Each hank with its data once, those used last first. */
function knownOf(/** @type {import("hankweave").ListedExecution[]} */ rows) {
  /** @type {Map<string, {hank: string, data: string | null, hankName: string | null}>} */
  const found = new Map();
  for (const { hank, data = null, hankName = null } of rows)
    if (hank && !found.has(`${hank}\n${data}`)) found.set(`${hank}\n${data}`, { hank, data, hankName });
  return [...found.values()];
}

function commandOf(/** @type {{hank: string, data: string | null} | undefined} */ chosen) {
  if (chosen === undefined) return "hankweave run path/to/hank.json path/to/data";
  return ["hankweave run", quoted(chosen.hank), ...(chosen.data ? [quoted(chosen.data)] : [])].join(" ");
}

/** As a shell reads it. @param {string} path */
export function quoted(path) {
  return /^[\w/.+-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}
