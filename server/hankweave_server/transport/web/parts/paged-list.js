/**
 * Blocks of different heights on pages that come when they are looked at, of which only those that
 * can be seen are in the document.
 *
 * The place is a block and a distance from its top, not a number of pixels from the beginning: what
 * is above changes its height when it comes, or when it is seen for the first time, and what one
 * reads stays where it is. The scroll bar follows the place. Browsers know no element of more than
 * some ten million pixels: a longer list scrolls as any other, and the bar is to scale.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../dom.js";

const GUESS = 72;
const EMPTY = 8; // Of a page without a block.
const BEYOND = 500; // Pixels above and below what is seen.
const TALLEST = 8_000_000;
const MOVED = 0.6; // Pixels; a smaller difference is the browser's rounding.
const REST = "onscrollend" in globalThis ? 2_000 : 200; // Milliseconds, where nobody tells of the end.

/**
 * @typedef {{count: number, at: (page: number) => {key: number}[] | undefined,
 *   want: (first: number, last: number) => void}} Source
 * @typedef {{page: number, key: number | null, offset: number}} Place `key`: null for the page's top.
 *
 * @param {{source: Source, version: number, label: string, block: (block: any) => any,
 *   goal?: {page: number, key: number} | null, onDrawn?: (box: HTMLElement) => void,
 *   atEnd?: boolean, foot?: any}} props
 *   `goal`: the block to go to, a new object each time; `atEnd`: begins, and stays, at its end.
 */
export function PagedList({ source, version, label, block, goal = null, onDrawn, atEnd = false, foot }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const shown = useRef(/** @type {HTMLDivElement | null} */ (null));
  const own = useRef(/** @type {Geometry | null} */ (null));
  const [, draw] = useState(0);
  const redraw = () => draw((n) => n + 1);
  own.current ??= new Geometry(source, atEnd, redraw);
  const geometry = own.current;
  geometry.source = source;

  const view = geometry.view();
  useEffect(() => source.want(view.pages[0], view.pages[1]), [source, version, ...view.pages]);
  useEffect(() => {
    if (goal === null) return;
    geometry.goTo(goal);
    redraw();
  }, [goal]);
  useLayoutEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const observer = new ResizeObserver(() => {
      geometry.height = element.clientHeight;
      redraw();
    });
    geometry.height = element.clientHeight;
    observer.observe(element);
    return () => {
      observer.disconnect();
      clearTimeout(geometry.timer);
    };
  }, []);
  const scroll = () => {
    if (box.current !== null && geometry.scrolled(box.current)) redraw();
  };
  useLayoutEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const inner = /** @type {HTMLDivElement} */ (shown.current);
    // Before it is painted, it is drawn again with the heights that were not known.
    if (geometry.measure(inner)) {
      redraw();
      return;
    }
    if (geometry.wasMoved(element)) {
      scroll();
      return;
    }
    geometry.align(element, inner, view.top);
    onDrawn?.(inner);
  });

  const toEnd = () => {
    geometry.goTo(null);
    redraw();
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== box.current || (event.key !== "Home" && event.key !== "End")) return;

    event.preventDefault(); // A browser would go there pixel by pixel, and to where the end was.
    if (event.key === "End") return toEnd();
    geometry.goTo({ page: 0, key: null });
    redraw();
  };
  return html`<div class="flow-frame">
    <div class="flow" ref=${box} tabindex="0" role="log" aria-live="off" aria-label=${label} onScroll=${scroll} onScrollEnd=${() => geometry.rest()} onKeyDown=${press}>
      <div class="flow-space" style=${{ height: `${geometry.space}px` }}>
        <div class="flow-shown" ref=${shown}>
          ${view.items.map((item) =>
            item.block === null
              ? html`<div key=${`page-${item.page}`} class="coming" style=${{ height: `${item.height}px` }}></div>`
              : html`<div key=${item.block.key} data-key=${item.block.key}>${block(item.block)}</div>`,
          )}
          ${view.isEnd && foot && html`<div key="foot" data-key="foot">${foot}</div>`}
        </div>
      </div>
    </div>
    ${!geometry.follows && atEnd && html`<button type="button" class="to-end" onClick=${toEnd}>Newest ↓</button>`}
  </div>`;
}

/** Where everything is, in pixels from the beginning of the whole list. */
class Geometry {
  /** @param {Source} source @param {boolean} follows @param {() => void} rested after scrolling */
  constructor(source, follows, rested) {
    this.source = source;
    this.rested = rested;
    this.follows = follows;
    this.height = 600; // Of what is seen.
    /** @type {Place} */
    this.place = { page: 0, key: null, offset: 0 };
    /** @type {Map<number, number>} of blocks, by key */
    this.heights = new Map();
    /** @type {Map<number, number>} of pages that were there once */
    this.pages = new Map();
    /** @type {number[]} where each page begins, and the last one ends, as it was drawn */
    this.tops = [0];
    this.foot = 0;
    this.total = 0;
    this.space = 1; // Pixels of the document that stand for the whole.
    this.top = 0;
    this.scrollTop = 0; // What we know of, to tell a person's scrolling from our own.
    this.timer = 0;
    this.isScrolling = false;
  }

  heightOf(key) {
    return this.heights.get(key) ?? GUESS;
  }

  /** @param {number} page @param {number} usual */
  #pageHeight(page, usual) {
    const blocks = this.source.at(page);
    if (blocks === undefined) return this.pages.get(page) ?? usual;

    let sum = blocks.length === 0 ? EMPTY : 0;
    for (const { key } of blocks) sum += this.heightOf(key);
    this.pages.set(page, sum);
    return sum;
  }

  /** What pages have measured so far, for one that is not there yet. */
  #usual() {
    let [sum, number] = [0, 0];
    for (const height of this.pages.values()) {
      sum += height;
      number += 1;
      if (number === 50) break;
    }
    return number === 0 ? this.height * 2 : Math.max(EMPTY, sum / number);
  }

  #topsNow() {
    const usual = this.#usual();
    const tops = [0];
    for (let page = 0; page < this.source.count; page += 1) tops.push(tops[page] + this.#pageHeight(page, usual));
    return tops;
  }

  #roomFor() {
    return Math.min(TALLEST, Math.max(this.total, 1));
  }

  /** What is to be drawn, and where its top is, from the top of what is seen; computed once for each frame. */
  view() {
    const tops = (this.tops = this.#topsNow());
    const count = this.source.count;
    this.total = tops[count] + this.foot;
    if (!this.isScrolling) this.space = this.#roomFor();
    const limit = Math.max(0, this.total - this.height);
    // What is wanted near the end stays wanted while the heights below it are only guessed.
    const top = this.follows ? limit : Math.min(limit, Math.max(0, this.#topOf(this.place, tops)));
    if (this.follows) this.place = this.#placeAt(top, tops);
    this.top = top;

    /** @type {{page: number, block: any, height: number}[]} */
    const items = [];
    let first = /** @type {number | null} */ (null);
    const begin = this.#pageAt(Math.max(0, top - BEYOND), tops);
    let page = begin;
    for (; page < count && tops[page] < top + this.height + BEYOND; page += 1) {
      const blocks = this.source.at(page);
      let y = tops[page];
      for (const block of blocks ?? [null]) {
        const height = block === null ? tops[page + 1] - tops[page] : this.heightOf(block.key);
        if (y + height >= top - BEYOND && y <= top + this.height + BEYOND) {
          first ??= y;
          items.push({ page, block, height });
        }
        y += height;
      }
    }
    const isEnd = page >= count && tops[count] <= top + this.height + BEYOND;
    return { items, top: (first ?? tops[count]) - top, pages: [begin, Math.max(begin, page - 1)], isEnd };
  }

  #pageAt(y, tops) {
    let [low, high] = [0, tops.length - 2];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  /** @param {Place} place @param {number[]} tops */
  #topOf({ page, key, offset }, tops) {
    let y = tops[Math.min(page, tops.length - 2)] ?? 0;
    if (key === null) return y + offset;

    for (const block of this.source.at(page) ?? []) {
      if (block.key === key) return y + offset;
      y += this.heightOf(block.key);
    }
    return (tops[page] ?? 0) + Math.max(0, offset); // It is gone; its page is where it was.
  }

  /** @returns {Place} */
  #placeAt(top, tops) {
    const page = this.#pageAt(top, tops);
    let y = tops[page] ?? 0;
    for (const block of this.source.at(page) ?? []) {
      const height = this.heightOf(block.key);
      if (y + height > top) return { page, key: block.key, offset: top - y };
      y += height;
    }
    return { page, key: null, offset: top - (tops[page] ?? 0) };
  }

  /** @param {{page: number, key: number | null} | null} goal null for the end */
  goTo(goal) {
    this.isScrolling = false;
    this.follows = goal === null;
    if (goal !== null) this.place = { ...goal, offset: goal.key === null ? 0 : -this.height / 4 };
  }

  /** Notes what was drawn; whether any height was unknown or has changed. @param {HTMLElement} inner */
  measure(inner) {
    let isNew = false;
    for (const child of inner.children) {
      const key = child.getAttribute("data-key");
      if (key === null) continue;

      const { height } = child.getBoundingClientRect();
      if (key === "foot") {
        isNew ||= Math.abs(this.foot - height) > 0.5;
        this.foot = height;
      } else if (Math.abs((this.heights.get(Number(key)) ?? -1) - height) > 0.5) {
        this.heights.set(Number(key), height);
        isNew = true;
      }
    }
    if (this.heights.size > 50_000) this.heights.clear();
    return isNew;
  }

  /**
   * Puts what was drawn where it belongs, and the scroll bar where the place is.
   * @param {HTMLElement} box @param {HTMLElement} inner @param {number} top
   */
  align(box, inner, top) {
    const room = Math.max(1, this.space - this.height);
    const wanted =
      this.total > this.space ? (this.top / Math.max(1, this.total - this.height)) * room : this.top;
    // It would end the movement that somebody has begun.
    if (Math.abs(wanted - box.scrollTop) > 0.5 && !this.isScrolling) box.scrollTop = wanted;
    this.scrollTop = box.scrollTop;
    inner.style.transform = `translateY(${box.scrollTop + top}px)`;
  }

  /** Whether a person has scrolled, and the browser has yet to report it. @param {HTMLElement} box */
  wasMoved(box) {
    const known = Math.min(this.scrollTop, box.scrollHeight - box.clientHeight); // As a shorter list moves it.
    return Math.abs(box.scrollTop - known) >= MOVED;
  }

  /** Nobody scrolls any more. */
  rest() {
    clearTimeout(this.timer);
    if (!this.isScrolling) return;

    this.isScrolling = false;
    // Meanwhile the bar and its room were left as they were.
    const isOff = Math.abs(this.top - this.scrollTop) > 0.5;
    if (isOff || this.space !== this.#roomFor()) this.rested();
  }

  /** Somebody, or `align`, has scrolled; whether anything is to be drawn. @param {HTMLElement} box */
  scrolled(box) {
    const { scrollTop, scrollHeight, clientHeight } = box;
    const by = scrollTop - this.scrollTop;
    if (Math.abs(by) < MOVED) return false;

    this.scrollTop = scrollTop;
    this.follows = scrollTop + clientHeight >= scrollHeight - 4;
    this.isScrolling = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.rest(), REST);
    const { tops } = this; // Of what is seen.
    const isJump = Math.abs(by) > 2 * this.height || scrollTop <= 0;
    const to = isJump
      ? (scrollTop / Math.max(1, scrollHeight - clientHeight)) * (this.total - this.height)
      : this.top + by;
    this.place = this.#placeAt(Math.max(0, to), tops);
    return true;
  }
}
