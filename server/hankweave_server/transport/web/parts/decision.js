/**
 * What asks for a decision: a card beside what it is about or, where there is no room, a sheet over
 * the page. Enter carries it out, Escape leaves it; everything else stays within reach.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../dom.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icon.js";

/** What Enter presses or opens where the focus is on it. */
const PRESSED = "button, a, summary, select, textarea";

let named = 0;

/**
 * @param {{title: any, isSheet: boolean, onClose: () => void, onEnter?: () => void, children?: any,
 *   isReport?: boolean}} props `isReport`: it tells what was done, and takes no focus.
 */
export function Decision({ title, isSheet, onClose, onEnter, children, isReport = false }) {
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useRef(`decision-${(named += 1)}`);
  useLayoutEffect(() => {
    if (isSheet || isReport) return undefined;

    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    card.current?.focus();
    card.current?.scrollIntoView({ block: "nearest" });
    return () => {
      if (before?.isConnected) before.focus();
    };
  }, []);
  useKeys(onEnter, isSheet ? undefined : onClose);
  if (isSheet) return html`<${Dialog} title=${title} onClose=${onClose} look="sheet">${children}<//>`;

  return html`<section
    ref=${card}
    class="decision card raised"
    role=${isReport ? "status" : "dialog"}
    tabindex="-1"
    aria-labelledby=${id.current}
    onMouseDown=${keepFocus}
  >
    <header>
      <h2 id=${id.current}>${title}</h2>
      <button type="button" class="close quiet" aria-label="Close" onClick=${onClose}>✕</button>
    </header>
    ${children}
  </section>`;
}

/** Whoever opens a list by the mouse still means the decision with Enter. @param {MouseEvent} event */
function keepFocus(event) {
  const { target } = event;
  if (target instanceof Element && target.closest("[aria-expanded], summary") !== null) event.preventDefault();
}

/** @param {(() => void) | undefined} enter @param {(() => void) | undefined} escape */
function useKeys(enter, escape) {
  const newest = useRef({ enter, escape });
  newest.current = { enter, escape };
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      const { key, ctrlKey, metaKey, altKey, repeat } = event;
      if (ctrlKey || metaKey || altKey) return;

      const target = /** @type {Element} */ (event.target);
      const isTaken = key === "Enter" ? repeat || target.closest(PRESSED) !== null : target.closest("[role=menu]") !== null;
      const act = key === "Enter" ? newest.current.enter : key === "Escape" ? newest.current.escape : undefined;
      if (act === undefined || isTaken) return;

      event.preventDefault();
      event.stopImmediatePropagation();
      act();
    };
    // Before the keys of the page.
    addEventListener("keydown", press, true);
    return () => removeEventListener("keydown", press, true);
  }, []);
}

/**
 * One of the things that follow: how much of it, and what exactly where that is asked for.
 * @param {{icon: string, role: string, title: any, value: any, isNone?: boolean, children?: any}} props
 */
export function Consequence({ icon, role, title, value, isNone = false, children }) {
  const [isOpen, setOpen] = useState(false);
  const words = html`<span class=${`r-${role}`}><${Icon} name=${icon} /></span>
    <span class="what">${title}</span> <span class="value">${value}</span>`;
  if (isNone || !children) return html`<li class="consequence none"><div class="line">${words}</div></li>`;

  return html`<li class="consequence">
    <button type="button" class="line" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${words}</button>
    ${isOpen && html`<div class="exactly">${children}</div>`}
  </li>`;
}
