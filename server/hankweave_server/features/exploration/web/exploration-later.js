/** What joins after the first paint. */
import { Attempts, AttemptsLink, explorationOf } from "./views/attempts.js";
import { DiscardDialog } from "./views/discard.js";

/** @type {import("./places.js").Part} */
export default {
  dialogs: [{ kind: "discard", view: DiscardDialog }],
  tabs: [
    {
      name: "attempts",
      title: "Attempts",
      countOf: (state, codonId) => explorationOf(state, codonId)?.attempts.length ?? null,
      view: Attempts,
    },
  ],
  asides: [AttemptsLink],
};
