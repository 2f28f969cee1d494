/** The decision that is asked for, or what was done, if any: in the right column, or over the page. */
import { html } from "../dom.js";
import { useMedia } from "../parts/hooks.js";
import { RetryCard } from "./retry.js";
import { RollbackCard, RollbackReport } from "./rollback.js";

export const DECISIONS = ["rollback", "retry"];

/**
 * @param {{session: import("../session.js").Session, looks: import("../session.js").Looks,
 *   isSheet?: boolean}} props `isSheet`: the place over the page; each shows it where the other has no room
 */
export function DecisionPlace({ session, looks: { dialog, report }, isSheet = false }) {
  if (useMedia("(max-width: 999px)") !== isSheet) return null;

  const place = { session, isSheet, onClose: () => session.look({ dialog: null }) };
  switch (dialog?.kind) {
    case "rollback":
      return html`<${RollbackCard} key=${JSON.stringify(dialog.target)} ...${place} target=${dialog.target} />`;
    case "retry":
      return html`<${RetryCard} key=${`retry ${dialog.codonId}`} ...${place} codonId=${dialog.codonId} />`;
    default:
      return dialog === null && report !== null && html`<${RollbackReport} ...${place} report=${report} onClose=${() => session.look({ report: null })} />`;
  }
}
