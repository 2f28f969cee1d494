/** What can be done with one step, where it stands in the list: by the button of its row, or a right click. */
import { html, useLayoutEffect, useRef } from "../dom.js";
import { carryOut, commandsOfStep } from "../commands.js";
import { visible } from "../format.js";

/**
 * @param {{session: import("../session.js").Session, codonIds: string[], at: {left: number, top: number},
 *   onClose: () => void}} props `codonIds`: that of the row and, of a loop, its first
 */
export function StepMenu({ session, codonIds, at, onClose }) {
  const menu = useRef(/** @type {HTMLUListElement | null} */ (null));
  const items = () => [.../** @type {HTMLUListElement} */ (menu.current).querySelectorAll("button")];
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const list = /** @type {HTMLUListElement} */ (menu.current);
    list.style.top = `${Math.min(at.top, innerHeight - list.offsetHeight - 8)}px`;
    items()[0]?.focus();
    return () => {
      if (before?.isConnected && list.contains(document.activeElement)) before.focus();
    };
  }, []);
  const press = (/** @type {KeyboardEvent} */ event) => {
    const all = items();
    const from = all.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const to = { ArrowDown: from + 1, ArrowUp: from - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") onClose();
    else if (to !== undefined) all[to % all.length].focus();
    else return;

    event.preventDefault();
    event.stopPropagation();
  };
  const commands = codonIds.flatMap((codonId) => commandsOfStep(session, codonId));
  return html`<ul
    ref=${menu}
    class="menu"
    role="menu"
    aria-label="What can be done with the step"
    style=${{ left: `${at.left}px`, top: `${at.top}px` }}
    onKeyDown=${press}
    onFocusOut=${(event) => event.relatedTarget instanceof Node && !menu.current?.contains(event.relatedTarget) && onClose()}
  >
    ${commands.map((command) => html`<li key=${command.title} role="none">
      <button
        type="button"
        role="menuitem"
        tabindex="-1"
        aria-disabled=${Boolean(command.why)}
        title=${command.why ?? undefined}
        onClick=${() => {
          onClose();
          carryOut(session, command);
        }}
      >${visible(command.title)}</button>
    </li>`)}
  </ul>`;
}
