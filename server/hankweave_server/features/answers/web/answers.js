/** Which call broke something, and where a text came from: how they join the page. */
import { join } from "./places.js";
import { hearSearch } from "./searches.js";
import { standingOf } from "./standing.js";
import { SearchNotices } from "./views/search-notices.js";

join({
  commands: [
    {
      before: "next",
      of: (session) => ({
        id: "find-break",
        group: "Run",
        title: "Find what broke it…",
        key: "w",
        why: session.obstacle ?? (session.store.checkpoints.length > 0 ? null : "There is no checkpoint yet."),
        run: () => session.look({ dialog: { kind: "find-break", codon: standingOf(session.store).failed } }),
      }),
    },
    {
      before: "filter",
      of: (session) => ({
        id: "text-history",
        group: "View",
        title: "Find where a text came from…",
        key: "o",
        run: () => session.look({ dialog: { kind: "text-history" } }),
      }),
    },
  ],
  facts: [hearSearch],
  notices: [SearchNotices],
  remedies: [
    {
      isFor: ({ failureReason }) => failureReason?.type === "check-failed",
      id: "find-break",
      words: "Find what broke it",
    },
  ],
  later: [() => import("./answers-later.js")],
});
