/** A list of rows of one height, of which only those that can be seen are in the page. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../dom.js";

const BEYOND = 8; // Rows above and below what is seen, so that a quick scroll shows no gap.

/**
 * @param {{count: number, rowHeight: number, label: string, row: (at: number) => any,
 *   selected: number, onSelect: (at: number) => void, onOpen?: (at: number) => void, onRange?: (first: number, last: number) => void,
 *   id: string, empty?: string, atEnd?: boolean}} props
 *   `atEnd`: begins at its last row, and stays there while it grows.
 */
export function VirtualList(props) {
  const { count, rowHeight, label, row, selected, onSelect, onOpen, onRange, id } = props;
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [place, setPlace] = useState({ top: 0, height: 600 });
  const sticks = useRef(props.atEnd ?? false);
  const first = Math.max(0, Math.floor(place.top / rowHeight) - BEYOND);
  const last = Math.min(count - 1, Math.ceil((place.top + place.height) / rowHeight) + BEYOND);

  const measure = () => {
    if (box.current === null) return; // Told late: the list is gone.

    const { scrollTop, clientHeight, scrollHeight } = box.current;
    if (props.atEnd) sticks.current = scrollTop + clientHeight >= scrollHeight - rowHeight;
    setPlace((before) =>
      before.top === scrollTop && before.height === clientHeight
        ? before
        : { top: scrollTop, height: clientHeight },
    );
  };
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(/** @type {HTMLDivElement} */ (box.current));
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    if (element !== null && sticks.current) element.scrollTop = element.scrollHeight;
  }, [count]);
  useEffect(() => onRange?.(first, last), [first, last]);
  useEffect(() => reveal(box.current, selected, rowHeight), [selected]);

  const press = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor(place.height / rowHeight) - 1);
    const to = aim(event.key, selected, count, page);
    if (to !== null) onSelect(to);
    else if (event.key === "Enter" && selected >= 0) onOpen?.(selected);
    else return;

    event.preventDefault();
    event.stopPropagation();
  };
  const shown = [];
  for (let at = first; at <= last; at += 1) {
    shown.push(html`<div
      key=${at}
      id=${`${id}-${at}`}
      class=${at === selected ? "row selected" : "row"}
      role="option"
      aria-selected=${at === selected}
      aria-setsize=${count}
      aria-posinset=${at + 1}
      style=${{ transform: `translateY(${at * rowHeight}px)`, height: `${rowHeight}px` }}
      onClick=${() => {
        onSelect(at);
        onOpen?.(at);
      }}
    >
      ${row(at)}
    </div>`);
  }
  return html`<div class="list" ref=${box} onScroll=${measure}>
    <div
      class="rows"
      role="listbox"
      tabindex="0"
      aria-label=${label}
      aria-activedescendant=${selected >= first && selected <= last ? `${id}-${selected}` : undefined}
      style=${{ height: `${Math.max(1, count) * rowHeight}px` }}
      onKeyDown=${press}
    >
      ${shown}
      ${count === 0 && html`
        <div class="empty" role="option" aria-selected="false">
          ${props.empty ?? "Nothing yet."}
        </div>`}
    </div>
  </div>`;
}

function aim(key, from, count, page) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
  if (count === 0) return null;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (steps[key] === undefined) return null;
  return Math.min(count - 1, Math.max(0, from + steps[key]));
}

function reveal(element, at, rowHeight) {
  if (element === null || at < 0) return;

  const top = at * rowHeight;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + rowHeight > element.scrollTop + element.clientHeight) {
    element.scrollTop = top + rowHeight - element.clientHeight;
  }
}
