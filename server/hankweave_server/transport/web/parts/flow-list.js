/**
 * A list of entries of different heights, of which only those that can be seen are in the page.
 * What an entry measures is known once it was seen; until then it is guessed. It stays at its end
 * while it grows, unless somebody has scrolled up.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../dom.js";

const GUESS = 56;
const BEYOND = 600; // Pixels.

/**
 * @param {{entries: {key: number}[], version: number, label: string, entry: (entry: any) => any}} props
 */
export function FlowList({ entries, version, label, entry }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const heights = useRef(/** @type {Map<number, number>} */ (new Map()));
  const follows = useRef(true);
  const [place, setPlace] = useState({ top: 0, height: 600 });
  const [, measured] = useState(0);
  const [isBehind, setBehind] = useState(false);

  const { first, last, above, total } = visible(entries, heights.current, place);

  const look = () => {
    if (box.current === null) return; // Told late: the list is gone.

    const { scrollTop, clientHeight, scrollHeight } = box.current;
    follows.current = scrollTop + clientHeight >= scrollHeight - 40;
    setBehind(!follows.current);
    setPlace((before) =>
      before.top === scrollTop && before.height === clientHeight
        ? before
        : { top: scrollTop, height: clientHeight },
    );
  };
  const toEnd = () => {
    follows.current = true;
    if (box.current !== null) box.current.scrollTop = box.current.scrollHeight;
    look();
  };
  useEffect(() => {
    const observer = new ResizeObserver(() => (follows.current ? toEnd() : look()));
    observer.observe(/** @type {HTMLDivElement} */ (box.current));
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    let isNew = false;
    for (const child of element.querySelectorAll("[data-key]")) {
      const key = Number(child.getAttribute("data-key"));
      const height = /** @type {HTMLElement} */ (child).offsetHeight;
      if (heights.current.get(key) !== height) {
        heights.current.set(key, height);
        isNew = true;
      }
    }
    if (heights.current.size > 4 * entries.length + 1_000) heights.current.clear();
    if (isNew) measured((n) => n + 1);
    if (follows.current) element.scrollTop = element.scrollHeight;
  });

  return html`<div class="flow-frame">
    <div
      class="flow"
      ref=${box}
      tabindex="0"
      role="log"
      aria-live="off"
      aria-label=${label}
      onScroll=${look}
      data-version=${version}
    >
      <div class="flow-space" style=${{ height: `${total}px` }}>
        <div class="flow-shown" style=${{ transform: `translateY(${above}px)` }}>
          ${entries.slice(first, last + 1).map((each) => html`
            <div key=${each.key} data-key=${each.key}>
              ${entry(each)}
            </div>`)}
        </div>
      </div>
    </div>
    ${isBehind && html`<button class="to-end" onClick=${toEnd}>Newest ↓</button>`}
  </div>`;
}

function visible(entries, heights, { top, height }) {
  let y = 0;
  let first = 0;
  let above = 0;
  let last = -1;
  let total = 0;
  let isFound = false;
  for (let at = 0; at < entries.length; at += 1) {
    const own = heights.get(entries[at].key) ?? GUESS;
    if (!isFound && y + own >= top - BEYOND) {
      isFound = true;
      first = at;
      above = y;
    }
    if (y <= top + height + BEYOND) last = at;
    y += own;
    total = y;
  }
  return { first, last, above, total };
}
