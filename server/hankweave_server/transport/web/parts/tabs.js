/** Tabs, and the arrow keys that go from one to the next. */
import { html, useLayoutEffect, useRef } from "../dom.js";

/**
 * @param {{id: string, label: string, tabs: [string, any][], selected: string,
 *   onSelect: (tab: string) => void, panel: string}} props
 *   `tabs`: the name of each and its title; `panel`: the id of what they turn.
 */
export function Tabs({ id, label, tabs, selected, onSelect, panel }) {
  const turn = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;

    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex(([name]) => name === selected);
    const [next] = tabs[(at + step + tabs.length) % tabs.length];
    onSelect(next);
    document.getElementById(`${id}-${next}`)?.focus();
  };
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const tab = /** @type {HTMLElement | null | undefined} */ (list.current?.querySelector("[aria-selected=true]"));
    if (tab && list.current) list.current.scrollLeft = tab.offsetLeft + tab.offsetWidth - list.current.clientWidth;
  }, [selected]);
  return html`<div ref=${list} class="tabs" role="tablist" aria-label=${label} onKeyDown=${turn}>
    ${tabs.map(
      ([name, title]) => html`<button
        key=${name}
        type="button"
        id=${`${id}-${name}`}
        role="tab"
        aria-selected=${name === selected}
        aria-controls=${panel}
        tabindex=${name === selected ? 0 : -1}
        onClick=${() => onSelect(name)}
      >${title}</button>`,
    )}
  </div>`;
}
