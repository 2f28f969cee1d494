/** The kinds of checkpoints: what each is called, and its shape, so that colour is never needed. */
import { html } from "./dom.js";

const RING = "M8 2a6 6 0 1 1 0 12A6 6 0 1 1 8 2zm0 2.4a3.6 3.6 0 1 0 0 7.2a3.6 3.6 0 1 0 0-7.2z";

/** @type {Record<string, {title: string, path: string, isStep?: boolean}>} */
export const KINDS = {
  initial: { title: "the beginning", path: RING },
  "rig-setup": { title: "rig set up", path: "M8 1l7 7-7 7-7-7z" },
  completed: { title: "codon completed", path: "M8 2a6 6 0 1 1 0 12A6 6 0 1 1 8 2z" },
  error: {
    title: "codon failed",
    path: "M3.5 1.5L8 6l4.5-4.5 2 2L10 8l4.5 4.5-2 2L8 10l-4.5 4.5-2-2L6 8 1.5 3.5z",
  },
  skipped: { title: "codon skipped", path: "M2 2l6 6-6 6zM8 2l6 6-6 6z" },
  exit: { title: "server stopped", path: "M2.5 2.5h11v11h-11z" },
  tool: {
    title: "after a tool call",
    path: "M8 4.5a3.5 3.5 0 1 1 0 7a3.5 3.5 0 1 1 0-7z",
    isStep: true,
  },
  turn: { title: "after a message", path: "M2.5 6.2h11v3.6h-11z", isStep: true },
  manual: {
    title: "taken by hand",
    path: "M8 1l2 5h5l-4 3.3 1.5 5.2L8 11.4 3.5 14.5 5 9.3 1 6h5z",
  },
  safety: { title: "saved for safety", path: "M8 1l6 2v5c0 3.5-2.5 6-6 7-3.500-1-6-3.500-6-7V3z" },
};

const UNKNOWN = { title: "checkpoint", path: RING };

/** @param {string} kind */
export const kindOf = (kind) => KINDS[kind] ?? { ...UNKNOWN, title: kind };

/** The sign of a kind, alone. @param {{kind: string}} props */
export function Sign({ kind }) {
  return html`<svg class=${`sign k-${kind}`} viewBox="0 0 16 16" aria-hidden="true">
    <path d=${kindOf(kind).path} />
  </svg>`;
}

const LABELLED_BY_PEOPLE = ["manual", "completed"];

/**
 * What a checkpoint is called: the rule of `domain/checkpoints/titles.py`.
 * @param {any} checkpoint
 */
export function titleOf({ kind, name, label, summary, codonId, coordinate }) {
  if (name) return name;
  if (label && LABELLED_BY_PEOPLE.includes(kind)) return stepOf(label);
  return summary || [occasionOf(kind, label), codonId ?? coordinate?.codonId].filter(Boolean).join(" · ");
}

/** Return a label without the mark by which Architect finds its own checkpoints. */
function stepOf(label) {
  return label.replace(/^architect:checkpoint:/, "");
}

/** Why one of an older version was taken; those of tools were labelled with the call after them. */
function occasionOf(kind, label) {
  if (!label || kind === "tool" || LABELLED_BY_PEOPLE.includes(kind)) return kindOf(kind).title;
  return stepOf(label.split(";")[0]);
}
