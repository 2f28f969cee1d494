/** What the keys do. Whoever is disturbed by keys without Ctrl or Alt can turn them off. */
import { html, useState } from "../dom.js";
import { Dialog } from "../parts/dialog.js";
import { nowSha } from "../moments.js";

const TABS = ["live", "time", "events", "cost"];
const OFF = "hankweave.keys";
const NOWHERE = "Choose a checkpoint under Time first.";

const KEYS = [
  ["1 2 3 4", "Live, Time, Events, Cost"],
  ["[ ]", "previous or next checkpoint; [ starts at the newest"],
  ["← →, Page, Home, End", "the same, on the timeline"],
  ["↑ ↓, Page, Home, End, Enter", "in any list"],
  ["r", "roll back to the selected moment"],
  ["b", "branch from it"],
  ["p", "pin and name it"],
  ["u", "undo the last rollback"],
  ["c", "take a checkpoint"],
  ["/", "search the events"],
  ["Esc", "close a dialog"],
  ["?", "this help"],
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
  const target = /** @type {Element} */ (event.target);
  const isTyping = target.matches("input, select, textarea");
  if (ctrlKey || metaKey || altKey || isTyping || session.looks.dialog !== null || !areKeysOn())
    return;

  const done = act(key, session);
  if (done) event.preventDefault();
}

function act(key, session) {
  const { moment } = session.looks;
  const sha = moment && "sha" in moment ? moment.sha : null;
  const tab = TABS[Number(key) - 1];
  if (tab !== undefined) return (session.look({ tab }), true);

  switch (key) {
    case "[":
      return step(session, "Previous checkpoint");
    case "]":
      return step(session, "Next checkpoint");
    case "r":
      return ask(session, { kind: "rollback", target: { sha } }, sha === null && NOWHERE);
    case "b":
      return ask(session, { kind: "branch", sha }, sha === null && NOWHERE);
    case "p":
      return ask(session, { kind: "pin", sha }, sha === null && NOWHERE);
    case "u":
      return ask(
        session,
        { kind: "rollback", target: { direction: "undo" } },
        session.store.state.undo.length === 0 && "There is no rollback to undo.",
      );
    case "c":
      return ask(session, { kind: "checkpoint" });
    case "?":
      return (session.look({ dialog: { kind: "help" } }), true);
    case "/":
      session.look({ tab: "events" });
      requestAnimationFrame(() => document.getElementById("search")?.focus());
      return true;
    default:
      return false;
  }
}

/** @param {import("../session.js").Session} session @param {any} dialog @param {string | false} [reason] */
function ask(session, dialog, reason = false) {
  const why = session.obstacle ?? (reason || null);
  if (why === null) session.look({ dialog });
  else session.say(why);
  return true;
}

/**
 * From now, one step back is the newest checkpoint, and there is none forward.
 * @param {import("../session.js").Session} session @param {string} label
 */
function step(session, label) {
  const { tab, moment } = session.looks;
  if (moment !== null) {
    if (tab === "time") return press(label);
    session.look({ tab: "time" });
    return true;
  }
  const sha = nowSha(session.store, session.store.checkpoints);
  if (sha === null) session.say("There is no checkpoint yet.");
  else if (label === "Next checkpoint") session.say("This is the present: [ goes back in time.");
  else session.look({ tab: "time", moment: { sha } });
  return true;
}

/** @param {string} label */
function press(label) {
  const button = /** @type {HTMLElement | null} */ (
    document.querySelector(`button[aria-label="${label}"]`)
  );
  button?.click();
  return button !== null;
}

/** @param {{onClose: () => void}} props */
export function HelpDialog({ onClose }) {
  const [isOn, setOn] = useState(areKeysOn());
  const turn = (event) => {
    setOn(event.target.checked);
    try {
      localStorage.setItem(OFF, event.target.checked ? "on" : "off");
    } catch {
      setOn(true);
    }
  };
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, what]) => html`
      <div key=${key}>
        <dt><kbd>${key}</kbd></dt><dd>${what}</dd>
      </div>`)}</dl>
    <label><input type="checkbox" checked=${isOn} onChange=${turn} /> Enable single-key shortcuts</label>
  <//>`;
}
