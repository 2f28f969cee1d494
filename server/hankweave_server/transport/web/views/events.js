/** The journal: all events, or those one searches for. */
import { html, useEffect, useState } from "../dom.js";
import { count } from "../format.js";
import { useAnswer } from "../parts/hooks.js";
import { questionOf } from "../journal.js";
import { EventList } from "./event-list.js";

const REST = 250;
const NOTHING = { text: "", type: "", codonId: "", isExact: false };

/** @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props */
export function EventsView({ session, looks }) {
  const { store } = session;
  const [wanted, setWanted] = useState(looks.query ?? NOTHING);
  const [question, setQuestion] = useState(() => questionOf(wanted));
  useEffect(() => {
    const timer = setTimeout(() => setQuestion(questionOf(wanted)), REST);
    return () => clearTimeout(timer);
  }, [wanted]);
  useEffect(() => void (looks.query = wanted), [wanted]);
  const types = useAnswer(
    () => session.ask("events.query", { reduce: { type: "count", groupBy: ["type"] } }),
    [store.isLoaded],
  );
  const codons = [
    ...new Set(store.state.runs.flatMap((run) => run.codons.map((codon) => codon.codonId))),
  ];
  const change = (key) => (event) => setWanted({ ...wanted, [key]: event.target.value });
  return html`<section class="events" aria-label="Events">
    <form class="bar" role="search" onSubmit=${(event) => event.preventDefault()}>
      <h2>Events</h2>
      <label>
        Search <input id="search" type="search" placeholder="words in an event" value=${wanted.text} onInput=${change("text")} />
      </label>
      <label title="Distinguish upper and lower case">
        <input
          type="checkbox"
          checked=${wanted.isExact}
          onChange=${(event) => setWanted({ ...wanted, isExact: event.target.checked })}
        /> Match case
      </label>
      <label>Type <select value=${wanted.type} onChange=${change("type")}>
        <option value="">all</option>
        ${(types.data?.rows ?? []).map((row) => html`
          <option key=${row.type} value=${row.type}>
            ${row.type} (${count(row.count)})
          </option>`)}
      </select></label>
      <label>Codon <select value=${wanted.codonId} onChange=${change("codonId")}>
        <option value="">all</option>
        ${codons.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select></label>
      ${question !== null && html`
        <button type="button" onClick=${() => setWanted(NOTHING)}>
          All events
        </button>`}
      <span class="counted">
        ${count(store.lastSeq)} in the journal${question === null ? "" : "; matches newest first"}
      </span>
    </form>
    ${store.isLoaded && html`
      <${EventList}
        session=${session}
        id="event"
        since=${0}
        until=${store.lastSeq}
        question=${question}
        atEnd=${true}
      />`}
  </section>`;
}
