/** One moment: its files, what it changed, how it differs from now, its state, its events. */
import { html, useState } from "../dom.js";
import { brief, count, laidOut, moment as asMoment, visible } from "../format.js";
import { Sign, kindOf, titleOf } from "../kinds.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer, useStore } from "../parts/hooks.js";
import { asState } from "../state.js";
import { stateAtEnd } from "../moments.js";
import { Changes } from "./changes.js";
import { EventList } from "./event-list.js";
import { FileTree } from "./file-tree.js";
import { Act } from "../parts/basics.js";
import { Plan } from "./plan.js";

const REST = 120; // Milliseconds: who scrubs asks only for where he stops.
const FILES = 1_000;
const PRUNED = "This checkpoint was pruned and can no longer be restored.";
const TABS = {
  files: "Files",
  before: "Changed here",
  now: "Compared with now",
  state: "State",
  events: "Events",
};

/**
 * @param {{session: import("../session.js").Session, moment: any, before: string | null,
 *   onStep: (by: number) => void}} props
 *   `before`: what it is compared with, if that is not the checkpoint it was made upon.
 */
export function MomentView({ session, moment, before, onStep }) {
  const { store } = session;
  useStore(store);
  const [tab, setTab] = useState("files");
  const key = "sha" in moment ? `${moment.sha} ${moment.path ?? ""}` : moment.seq;
  const where = "sha" in moment ? { checkpointSha: moment.sha } : { seq: moment.seq };
  const answer = useAnswer(() => look(session, where, before), [key, before], REST);
  const view = answer.data;
  const sha = "sha" in moment ? moment.sha : view?.coordinate?.checkpointSha;
  const record = store.bySha.get(sha);
  const none = store.pruned.has(sha) ? PRUNED : sha ? null : "There is no checkpoint here.";
  return html`
    <header class="at">
      <button aria-label="Previous checkpoint" title="Key [" onClick=${() => onStep(-1)}>‹</button>
      <button aria-label="Next checkpoint" title="Key ]" onClick=${() => onStep(1)}>›</button>
      <h2>${record && html`<${Sign} kind=${record.kind} /> `}${heading(moment, record)}</h2>
      <p class="facts">${facts(moment, record, sha)}</p>
      ${none === PRUNED && html`<p class="warn" role="alert">${PRUNED}</p>`}
      <div class="actions" role="group" aria-label="Actions for this moment">
        <${Act}
          session=${session}
          reason=${none}
          onClick=${() => session.look({ dialog: { kind: "rollback", target: { sha } } })}
        >
          Roll back to here …
        <//>
        <${Act}
          session=${session}
          reason=${none}
          onClick=${() => session.look({ dialog: { kind: "branch", sha } })}
        >
          Branch …
        <//>
        <${Act}
          session=${session}
          reason=${none}
          onClick=${() => session.look({ dialog: { kind: "pin", sha } })}
        >
          ${record?.pinned ? "Pinned …" : "Pin …"}
        <//>
      </div>
    </header>
    <div
      class="tabs"
      role="tablist"
      aria-label="Views of this moment"
      onKeyDown=${(event) => turn(event, tab, setTab)}
    >
      ${Object.entries(TABS).map(
        ([each, title]) =>
          html`
            <button
              key=${each}
              id=${`tab-${each}`}
              role="tab"
              aria-selected=${each === tab}
              aria-controls="of-moment"
              tabindex=${each === tab ? 0 : -1}
              onClick=${() => setTab(each)}
            >
              ${title}${numberOf(each, view)}
            </button>`,
      )}
    </div>
    <div
      id="of-moment"
      class="panel"
      role="tabpanel"
      aria-labelledby=${`tab-${tab}`}
      aria-busy=${answer.isAsking}
    >
      <${Trouble} error=${answer.error} />
      ${view === null && answer.isAsking && html`<p class="empty">Reading …</p>`}
      ${view !== null && html`
        <${Panel}
          key=${`${tab} ${key}`}
          session=${session}
          tab=${tab}
          view=${view}
          where=${where}
          sha=${sha}
          record=${record}
          path=${"sha" in moment ? moment.path : null}
        />`}
    </div>`;
}

async function look(session, where, before) {
  const { checkpointSha: sha } = where;
  const [view, previous, ended] = await Promise.all([
    session.ask("replay.view", { ...where, compare: ["previous", "now"], limit: FILES }),
    sha && before ? session.ask("checkpoint.diff", { from: before, to: sha, limit: FILES }) : null,
    stateAtEnd(session.ask, session.store.bySha.get(sha)),
  ]);
  return { ...view, previous: previous ?? view.previous, state: ended ?? view.state };
}

function Panel({ session, tab, view, where, sha, record, path }) {
  const { events, state, previous, now } = view;
  if (tab === "files")
    return html`
      <${FileTree} session=${session} view=${view} where=${where} sha=${sha} first=${path ?? null} />`;
  if (tab === "before")
    return previous
      ? html`
        <p class="hint">
          From ${brief(previous.from)}, the checkpoint shown before it, to this moment.
        </p><${Changes} session=${session} page=${previous} />`
      : html`<p class="empty">This is the first checkpoint: there is nothing before it.</p>`;
  if (tab === "now")
    return now
      ? html`
        <p class="hint">
          From this moment to the work tree as it is now.
        </p><${Changes} session=${session} page=${now} />`
      : html`<p class="empty">There is nothing to compare.</p>`;
  if (tab === "state") return html`<${Then} state=${state} record=${record} />`;
  return events
    ? html`
      <p class="hint">
        From the beginning of the run to this moment: events ${count(events.from)} to ${count(events.to)}.
      </p><${EventList} session=${session} since=${events.from - 1} until=${events.to} id="event-then" />`
    : html`<p class="empty">The journal does not reach back to this moment.</p>`;
}

function Then({ state, record }) {
  if (state === null)
    return html`<p class="empty">The journal does not reach back to this moment.</p>`;

  return html`<div class="then">
    <${Plan} state=${asState(state)} at=${record ? Date.parse(record.timestamp) : Date.now()} />
    <details>
      <summary>
        All of it, as in state.json
      </summary><pre tabindex="0" aria-label="The state">${laidOut(state)}</pre>
    </details>
  </div>`;
}

function heading(moment, record) {
  if (record && "sha" in moment) return visible(titleOf(record));
  return "seq" in moment ? `After event ${moment.seq}` : brief(moment.sha);
}

function facts(moment, record, sha) {
  if (!record) return sha ? `Files of checkpoint ${brief(sha)}` : "";

  const parts = [kindOf(record.kind).title, asMoment(record.timestamp), brief(record.sha)];
  if (record.codonId) parts.unshift(`codon ${visible(record.codonId)}`);
  if (record.partial) parts.push("partial: some files could not be captured");
  return ("seq" in moment ? `Files of: ` : "") + parts.join(" · ");
}

function numberOf(tab, view) {
  if (view === null) return "";
  if (tab === "files") return ` (${count(view.stats.files)})`;
  if (tab === "before" && view.previous) return ` (${count(view.previous.stats.files)})`;
  if (tab === "now" && view.now) return ` (${count(view.now.stats.files)})`;
  return "";
}

function turn(event, tab, setTab) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;

  event.preventDefault();
  event.stopPropagation();
  const names = Object.keys(TABS);
  const next = names[(names.indexOf(tab) + step + names.length) % names.length];
  setTab(next);
  document.getElementById(`tab-${next}`)?.focus();
}
