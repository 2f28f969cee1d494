/** All commands by their words: type some of them, Enter does the first. */
import { html, useEffect, useRef, useState } from "../dom.js";
import { carryOut, commandsOf } from "../commands.js";
import { Dialog } from "../parts/dialog.js";
import { Kbd } from "../parts/basics.js";
import { standingOf, nameOf } from "../standing.js";
import { visible } from "../format.js";

const SHOWN = 12;

/** @param {{session: import("../session.js").Session, onClose: () => void}} props */
export function Palette({ session, onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => field.current?.focus(), []);
  const found = matching([...commandsOf(session), ...stepsToShow(session, text)], text).slice(0, SHOWN);
  const go = (/** @type {import("../commands.js").Command | undefined} */ command) => {
    if (command === undefined) return;
    onClose();
    carryOut(session, command);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) setAt((at + by + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") go(found[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Commands" onClose=${onClose}>
    <input
      ref=${field}
      type="text"
      role="combobox"
      aria-label="Find a command or a step"
      aria-expanded="true"
      aria-controls="commands"
      aria-activedescendant=${found[at] ? `command-${at}` : undefined}
      placeholder="Find a command or a step"
      value=${text}
      onInput=${(event) => {
        setText(event.target.value);
        setAt(0);
      }}
      onKeyDown=${press}
    />
    <ul id="commands" class="palette" role="listbox" aria-label="Commands">
      ${found.map(
        (command, row) => html`<li
          key=${command.id}
          id=${`command-${row}`}
          role="option"
          aria-selected=${row === at}
          aria-disabled=${Boolean(command.why)}
          onClick=${() => go(command)}
        >
          <span class="title">${visible(command.title)}</span>
          ${command.why && html`<span class="hint">${command.why}</span>`}
          ${command.key && html`<${Kbd}>${command.key}<//>`}
        </li>`,
      )}
      ${found.length === 0 && html`<li role="option" aria-selected="false" class="empty">Nothing matches.</li>`}
    </ul>
  <//>`;
}

/** The steps, once something was typed that may be the name of one. */
function stepsToShow(session, text) {
  if (text.trim() === "") return [];
  return standingOf(session.store).steps.map((step) => ({
    id: `step ${step.key}`,
    group: "Step",
    title: `Show ${step.isLoop ? step.name : nameOf(step.entries[0])}`,
    run: () => session.look({ step: step.entries[0].codonId, moment: null, compare: null }),
  }));
}

/** Those that have all the words, those that can be carried out first. */
function matching(commands, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return commands
    .filter(({ title, group }) => words.every((word) => `${group} ${title}`.toLowerCase().includes(word)))
    .sort((a, b) => Number(Boolean(a.why)) - Number(Boolean(b.why)));
}
