/** A dialog of the browser's own: it keeps the focus, ends with Escape, and gives the focus back. */
import { html, useLayoutEffect, useRef } from "../dom.js";
import { unmasked } from "../format.js";

let named = 0;

/** @param {{title: string, onClose: () => void, children?: any, wide?: boolean,
 *   look?: string}} props `look`: "sheet" for one at the bottom of a narrow page */
export function Dialog({ title, onClose, children, wide = false, look = "" }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useRef(`dialog-${(named += 1)}`);
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const dialog = element.current;
    dialog?.showModal();
    focusIn(dialog);
    return () => {
      dialog?.close(); // While it is open nothing else takes the focus.
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<dialog
    ref=${element}
    tabindex="-1"
    class=${wide ? "wide" : look}
    aria-labelledby=${id.current}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
  >
    <header>
      <h2 id=${id.current}>${title}</h2>
      <button class="close" aria-label="Close" onClick=${onClose}>✕</button>
    </header>
    ${children}
  </dialog>`;
}

/** What is to be filled in or confirmed, or else the dialog: the browser would choose its cross. @param {HTMLDialogElement | null} dialog */
function focusIn(dialog) {
  const fields = /** @type {NodeListOf<HTMLElement>} */ (dialog?.querySelectorAll("input:not([type=checkbox], [type=radio]), .main"));
  const wanted = [...fields].find((each) => each.checkVisibility()) ?? dialog;
  wanted?.focus();
}

/**
 * Why nothing can be done from here right now: the banners lie behind the dialog.
 * @param {{session: import("../session.js").Session, isBusy: boolean}} props
 */
export function Obstacle({ session, isBusy }) {
  const why = session.obstacle;
  const { phase } = session.store.connection;
  if (why === null || (isBusy && phase === "open")) return null;
  return html`<p class="warn" role="alert">
    ${why} ${phase === "open" ? "" : isBusy ? "The request will be answered when the connection is back." : "The page keeps trying to reconnect."}
  </p>`;
}

/** What went wrong, and what to do. @param {{error: any}} props */
export function Trouble({ error }) {
  if (!error) return null;

  return html`<div class="trouble" role="alert">
    <p>${unmasked(error.message)}</p>
    ${error.hint && html`<p>${error.hint}</p>`}
    ${error.code === "STALE_RUN" && html`
      <p>
        The execution has moved on since you looked. Close this, see how it stands now, and decide again.
      </p>`}
    ${error.code === "CODON_RUNNING" && html`
      <p>
        Choose below what becomes of the step that runs, or wait until it has ended.
      </p>`}
  </div>`;
}
