/** The moment of the past that is shown: what it is, what came since, and what can be done with it. */
import { html, useMemo, useState } from "../dom.js";
import { commandOf } from "../commands.js";
import { brief, plural, recently, roughly, visible } from "../format.js";
import { Sign, kindOf, titleOf } from "../kinds.js";
import { keptIn, nowSha, pastOf } from "../moments.js";
import { Button, Tag } from "../parts/basics.js";
import { useAnswer, useNow, useNowAndThen, useStore } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";

const REST = 150; // Milliseconds: who goes from one to the next asks only for where he stops.
const OFTEN = 1_000;
export const PRUNED = "This checkpoint was pruned and can no longer be restored.";

/** @param {{session: import("../session.js").Session}} props */
export function Past({ session }) {
  const past = pastOf(session.store, session.looks.moment);
  return past && html`<${Shown} session=${session} past=${past} />`;
}

/** @param {{session: import("../session.js").Session, past: import("../moments.js").Past}} props */
function Shown({ session, past }) {
  const { record, isPruned } = past;
  const act = (/** @type {string} */ id, /** @type {string} */ words, look = "") => {
    const { key, why = null, run } = commandOf(session, id);
    return html`<${Button} look=${look} hotkey=${look === "" ? key : undefined} why=${why} onWhy=${session.say} onClick=${run}>${words}<//>`;
  };
  const go = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string} */ sign) =>
    html`<${Button} look="quiet" label=${label} hotkey=${commandOf(session, id).key} onClick=${commandOf(session, id).run}>${sign}<//>`;
  if (session.looks.pick !== null && session.looks.pick === past.sha) return html`<${Picking} session=${session} past=${past} />`;
  return html`<section class="banner past r-accent" aria-label="The past">
    <span class="turn">
      ${go("earlier", "Previous checkpoint", "‹")}${go("later", "Next checkpoint", "›")}
    </span>
    <p>
      <span role="status">${isPruned ? html`<strong>${PRUNED}</strong>` : what(session.store, past)}</span>
      <span class="hint">
        ${record !== null && html`<${Since} key=${past.sha} session=${session} past=${past} /> · `}
        ${act("pin", record?.pinned ? "pinned…" : "pin…", "link")} · ${act("state", "state…", "link")}
      </span>
    </p>
    <span class="ways">
      ${act("compare", "Compare with now")}
      ${act("pick", "Compare with…")}
      ${act("branch", "Branch from here")}
      ${act("here", "Back to here…")}
      ${act("live", "Live")}
    </span>
  </section>`;
}

/** The choice of the other one, that a moment is compared with. */
function Picking({ session, past: { record } }) {
  const { run } = commandOf(session, "compare");
  return html`<section class="banner past r-accent" aria-label="The past">
    <p role="status">
      Choose the checkpoint to compare ${record === null ? "this one" : html`<${Sign} kind=${record.kind} /> <code>${visible(titleOf(record))}</code>`} with, on the time axis or in the list of checkpoints.
    </p>
    <span class="ways">
      <${Button} hotkey="v" onClick=${run}>With now<//>
      <${Button} hotkey="Esc" onClick=${() => session.look({ pick: null })}>Cancel<//>
    </span>
  </section>`;
}

/** In words: when, after what, in which step. */
function what({ state }, { sha, seq, record }) {
  if (record === null) return html`You see ${sha === null ? `event ${seq}` : html`checkpoint <code>${brief(sha)}</code>`}.`;

  const clock = recently(record.timestamp);
  const isOfEvent = seq !== record.seq;
  return html`You see <strong>${clock}</strong>, ${isOfEvent ? `event ${seq}, with the files of` : "after"} <${Sign} kind=${record.kind} /> <code title=${`${kindOf(record.kind).title}, ${record.sha}`}>${visible(titleOf(record))}</code>${record.codonId && html` in <strong>${visible(titleOfCodon(state, record.codonId))}</strong>`}.
    ${record.pinned && html` <${Tag} role="plain">pinned<//>`}
    ${record.partial && html` <span class="tag bad" title="Some files could not be captured.">partial</span>`}
    ${!keptIn(state)(record) && html` <${Tag} role="plain">rolled back<//>`}`;
}

/** What has become of it since. */
function Since({ session, past }) {
  const store = useStore(session.store);
  const now = useNow(30_000);
  const [asked, ask] = useState(0);
  useNowAndThen(() => ask((n) => n + 1), OFTEN, [store.checkpointsVersion, store.filesVersion]);
  const { data, error } = useAnswer(
    () => session.ask("checkpoint.diff", { from: past.sha, limit: 1 }),
    [past.sha, asked],
    REST,
  );
  const { checkpoints, state } = store;
  const after = useMemo(
    () => checkpoints.slice(past.at + 1).filter(keptIn(state)).length,
    [past.at, store.checkpointsVersion, state.runs],
  );
  const isNow = past.sha === nowSha(store, checkpoints);
  const parts = [
    `${roughly(now - past.time)} ago`,
    isNow ? "the newest" : `${plural(after, "checkpoint")} since`,
    error ? error.message : data && filesSince(data.stats.files),
  ];
  return parts.filter(Boolean).join(" · ");
}

const filesSince = (/** @type {number} */ files) =>
  files === 0 ? "no file differs from now" : `${plural(files, "file")} ${files === 1 ? "differs" : "differ"} from now`;
