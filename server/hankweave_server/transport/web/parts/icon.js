/** The icons: a shape for each state, so that colour is never needed to tell them apart. */
import { html } from "../dom.js";

/** Strokes in a square of 14. @type {Record<string, string>} */
const PATHS = {
  done: "M2 7.5l3.2 3.2L12 3.5",
  failed: "M3 3l8 8M11 3l-8 8",
  running: "M7 1.8a5.2 5.2 0 0 1 5.2 5.2",
  waiting: "M5 3v8M9 3v8",
  pause: "M5 3v8M9 3v8",
  skipped: "M2.5 3L6.5 7l-4 4M7.5 3l4 4-4 4",
  todo: "M7 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 1 1 7 1.8",
  folded: "M5 3l4 4-4 4",
  unfolded: "M3 5l4 4 4-4",
  back: "M9 2.5L4.5 7 9 11.5",
  undo: "M5 2L2 5l3 3M2 5h6a3.5 3.5 0 0 1 0 7H5",
  again: "M12 3v3.5H8.5M12 6.5A5.2 5.2 0 1 0 11 10.5",
  minus: "M3 7h8",
  plus: "M3 7h8M7 3v8",
  dot: "M7 4.5a2.5 2.5 0 1 1 0 5a2.5 2.5 0 1 1 0-5",
  close: "M3.5 3.5l7 7M10.5 3.5l-7 7",
  search: "M6 2a4 4 0 1 1 0 8a4 4 0 1 1 0-8M9 9l3.5 3.5",
  time: "M7 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 1 1 7 1.8M7 4v3.2l2.2 1.3",
  offline: "M2 2l10 10M4 7a5 5 0 0 1 3-1.2M9.5 6.2A5 5 0 0 1 11 7.2M7 10.5v.1",
};

export const ICONS = Object.keys(PATHS);

/** @param {{name: string, label?: string}} props `label`: where no word beside it says the same. */
export function Icon({ name, label }) {
  return html`<svg
    class=${`icon i-${name}`}
    viewBox="0 0 14 14"
    width="14"
    height="14"
    role=${label ? "img" : undefined}
    aria-label=${label}
    aria-hidden=${label ? undefined : "true"}
  >
    ${name === "running" && html`<path class="track" d=${PATHS.todo} />`}
    <path d=${PATHS[name] ?? PATHS.dot} />
  </svg>`;
}
