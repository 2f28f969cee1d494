/** The notices of searches for a failure. */
import { html, useEffect } from "../dom.js";
import { brief, plural, visible } from "../format.js";
import { Act, Button } from "../parts/basics.js";
import { Icon } from "../parts/icon.js";
import { changeSearch, loadSearches, searchesOf } from "../searches.js";
import { standingOf, titleOfCodon } from "../standing.js";

/** @param {import("../session.js").Session} session */
export const stopSearch = (session) => session.act("The search was stopped.", "bisect.stop");

/**
 * Searches, begun by any client or by a check of a step: how far they are, or what they have found.
 * @param {{session: import("../session.js").Session}} props
 */
export function SearchNotices({ session }) {
  const { store } = session;
  // Nothing else of the page depends on them.
  useEffect(() => {
    if (store.isLoaded) loadSearches(store).catch(() => undefined);
  }, [store, store.isLoaded, store.execution]);
  return searchesOf(store).filter((each) => !each.isSeen).map((each) => html`<${SearchNotice} key=${each.bisectId} session=${session} search=${each} />`);
}

/** @param {{session: import("../session.js").Session, search: import("../searches.js").Search}} props */
function SearchNotice({ session, search }) {
  const { bisectId, command, tried, ended } = search;
  const show = () => session.look({ dialog: { kind: "find-break", codon: standingOf(session.store).failed } });
  const dismiss = () => changeSearch(session.store, bisectId, () => ({ isSeen: true }));
  return html`<section class=${`banner ${ended === null ? "r-accent" : "r-plain"}`} aria-label=${`Search for the first failure of ${visible(command)}`}>
    <${Icon} name="search" />
    <p role="status">
      ${ended === null
        ? html`Searching for the first failure of <code>${visible(command)}</code>: ${plural(tried.length, "run")} so far.`
        : html`The search for the first failure of <code>${visible(command)}</code> has ended. ${visible(outcomeOf(session.store.state, ended))}`}
    </p>
    <span class="ways">
      <${Button} onClick=${show}>Show the search<//>
      ${ended === null
        ? html`<${Act} session=${session} onClick=${() => stopSearch(session)}>Stop the search<//>`
        : html`<${Button} onClick=${dismiss}>Dismiss<//>`}
    </span>
  </section>`;
}

/** The end of a search in a sentence. @param {any} state @param {any} ended */
function outcomeOf(state, { message, checkpointSha: sha, codonId, summary, suspects = [] }) {
  if (message) return message;
  if (!sha) return `It is one of ${plural(suspects.length, "checkpoint")}.`;
  return `It first failed after ${summary ?? brief(sha)}${codonId ? ` in ${titleOfCodon(state, codonId)}` : ""}.`;
}
