/** What the keys do. Whoever is disturbed by keys without Ctrl or Alt can turn them off. */
import { html, useState } from "../dom.js";
import { carryOut, commandsOf } from "../commands.js";
import { Dialog } from "../parts/dialog.js";

const OFF = "hankweave.keys";

/** What Enter presses or opens where the focus is on it; the selected step is open already. */
const PRESSED =
  "button:not(.step[aria-current]:not([aria-expanded])), a, summary, input, [role=listbox], [role=slider]";

const OTHERS = [
  ["⌘K", "or Ctrl K: all commands"],
  ["↑ ↓", "in the steps and in any list, as Page, Home and End; ← → fold a loop"],
  ["← →", "on the time: choose a checkpoint, Enter shows it, Shift Enter compares it"],
  ["Esc", "close a dialog; back to the present"],
];

/** Whoever lets no page keep anything has them on. */
export function areKeysOn() {
  try {
    return localStorage.getItem(OFF) !== "off";
  } catch {
    return true;
  }
}

/** @param {KeyboardEvent} event @param {import("../session.js").Session} session */
export function keyPressed(event, session) {
  const { key, ctrlKey, metaKey, altKey } = event;
  if (session.looks.dialog !== null || session.store.connection.phase === "refused") return;

  if (key === "k" && (ctrlKey || metaKey) && !altKey) {
    event.preventDefault();
    session.look({ dialog: { kind: "palette" } });
    return;
  }
  const target = /** @type {Element} */ (event.target);
  const isTyping = target.matches("input:not([type=checkbox], [type=radio]), select, textarea");
  if (key === "Escape" && !isTyping) return leave(session);
  const isOther = key === "Enter" && target.closest(PRESSED) !== null;
  if (ctrlKey || metaKey || altKey || isTyping || isOther || !areKeysOn()) return;

  const command = commandsOf(session).find((each) => each.key === key);
  if (command === undefined) return;

  event.preventDefault();
  carryOut(session, command);
}

/** One step back to the present. @param {import("../session.js").Session} session */
function leave(session) {
  const { pick, compare, moment } = session.looks;
  if (pick !== null) session.look({ pick: null });
  else if (compare !== null) session.look({ compare: null });
  else if (moment !== null) session.look({ moment: null, step: null });
}

/** @param {{session: import("../session.js").Session, onClose: () => void}} props */
export function HelpDialog({ session, onClose }) {
  const [isOn, setOn] = useState(areKeysOn());
  const turn = (event) => {
    setOn(event.target.checked);
    try {
      localStorage.setItem(OFF, event.target.checked ? "on" : "off");
    } catch {
      setOn(true);
    }
  };
  const keys = commandsOf(session)
    .flatMap(({ key, title }) => (key === undefined ? [] : [[key, title]]));
  return html`<${Dialog} title="Keys" onClose=${onClose} wide=${true}>
    <dl class="keys">${[...keys, ...OTHERS].map(([key, what]) => html`
      <div key=${key}>
        <dt><kbd>${key}</kbd></dt><dd>${what}</dd>
      </div>`)}</dl>
    <label><input type="checkbox" checked=${isOn} onChange=${turn} /> Enable single-key shortcuts</label>
  <//>`;
}
