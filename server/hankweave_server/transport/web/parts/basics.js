/** The small components that every view is made of; `gallery.html` shows each in every state. */
import { html, useRef } from "../dom.js";
import { ago, count, moment, time } from "../format.js";
import { Icon } from "./icon.js";

/** A key, as it is printed on it. @param {{children?: any}} props */
export function Kbd({ children }) {
  return html`<kbd aria-hidden="true">${children}</kbd>`;
}

/**
 * A button that says what it does and, on it, the key that does the same. Where it cannot do it, it
 * stays where it is and says why: it can be reached, and read, and does nothing.
 * @param {{children?: any, onClick?: (event: Event) => void, hotkey?: string, look?: string,
 *   why?: string | null, onWhy?: (why: string) => void, label?: string, type?: string,
 *   isBusy?: boolean}} props `look`: "primary" for the one of a view, "danger", "quiet" or "link".
 */
export function Button({ children, onClick, hotkey, look = "", why = null, onWhy, ...rest }) {
  const { label, type = "button", isBusy = false } = rest;
  return html`<button
    type=${type}
    class=${look}
    disabled=${isBusy}
    aria-disabled=${why !== null}
    aria-label=${label}
    aria-keyshortcuts=${hotkey}
    title=${why ?? undefined}
    onClick=${(/** @type {Event} */ event) => (why === null ? onClick?.(event) : onWhy?.(why))}
  >${children}${hotkey && html`<${Kbd}>${hotkey}<//>`}</button>`;
}

/**
 * A button that changes something on the server: it knows the obstacles that hold for all of them.
 * @param {{session: import("../session.js").Session, reason?: string | null, onClick: () => void,
 *   children?: any, hotkey?: string, look?: string, label?: string}} props
 */
export function Act({ session, reason = null, ...rest }) {
  return html`<${Button} ...${rest} why=${session.obstacle ?? reason} onWhy=${session.say} />`;
}

/** A state in words, with its icon. @param {{role: string, icon?: string, children?: any}} props */
export function Pill({ role, icon, children }) {
  return html`<span class=${`pill r-${role}`}>
    ${icon && html`<${Icon} name=${icon} />`}<span>${children}</span>
  </span>`;
}

/** A word beside a name. @param {{role?: string, children?: any}} props */
export function Tag({ role = "", children }) {
  return html`<span class=${`tag ${role && `r-${role}`}`}>${children}</span>`;
}

/** How many lines came and went; without the side that has none. @param {{added: number, removed: number}} props */
export function Delta({ added, removed }) {
  return html`<span class="delta">
    ${(added > 0 || removed === 0) && html`<span class="plus">+${count(added)}</span>`} ${removed > 0 && html`<span class="minus">−${count(removed)}</span>`}
  </span>`;
}

let tips = 0;

/**
 * What is said about something while it is pointed at or has the focus.
 * @param {{text: string, children: (id: string) => any}} props `children`: what it is about, which
 *   names the id as its description.
 */
export function Tip({ text, children }) {
  const id = useRef("");
  id.current ||= `tip-${(tips += 1)}`;
  return html`<span class="tipped">
    ${children(id.current)}<span id=${id.current} role="tooltip" class="tip">${text}</span>
  </span>`;
}

/** When something was; the day is told while it is pointed at. @param {{at: string}} props */
export function At({ at }) {
  return html`<time datetime=${at} title=${moment(at)}>${time(at)}</time>`;
}

/** How long ago something was; the date and the time are told while it is pointed at. @param {{at: string, now: number}} props */
export function Since({ at, now }) {
  return html`<time datetime=${at} title=${moment(at)}>${ago(at, now)}</time>`;
}

/** @param {{done: number, total: number, role?: string, label: string}} props */
export function Progress({ done, total, role = "accent", label }) {
  return html`<progress
    class=${`meter r-${role}`}
    max=${total || 1}
    value=${Math.min(done, total || 1)}
    aria-label=${label}
  ></progress>`;
}

/**
 * How far a plan is: the step that runs or has failed, from 1, or else the number of those that are
 * done. The bar is that number, too, wherever it is shown.
 * @param {{at: number, total: number, role?: string}} props
 */
export function StepsSoFar({ at, total, role }) {
  return html`<span class="so-far"><b>${at}</b> of ${total}</span>
    <${Progress} done=${at} total=${total} role=${role} label="Steps" />`;
}

/**
 * What belongs together, with a head of its own; `isRaised` is for the one that asks for a decision.
 * @param {{title: any, aside?: any, children?: any, role?: string, isRaised?: boolean, label?: string}} props
 */
export function Card({ title, aside, children, role = "", isRaised = false, label }) {
  return html`<article
    class=${`card ${role && `r-${role}`} ${isRaised ? "raised" : ""}`}
    aria-label=${label}
  >
    <header>${title}${aside && html`<span class="aside">${aside}</span>`}</header>
    ${children}
  </article>`;
}

/** One line of a list: what it is, and its figures at the end. @param {any} props */
export function Row({ icon, title, figures = [], isSelected = false, onClick }) {
  return html`<button
    type="button"
    class="line-row"
    aria-current=${isSelected ? "true" : undefined}
    onClick=${onClick}
  >
    ${icon && html`<${Icon} name=${icon} />`}
    <span class="name">${title}</span>
    ${figures.map((/** @type {any} */ each) => html`<span class="figure">${each}</span>`)}
  </button>`;
}

/** Where there is nothing, why, and what to do. @param {{children?: any}} props */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}
