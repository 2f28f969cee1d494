/** The search for the call that broke something: a command, its results one by one, and the way back. */
import { html, useEffect, useState } from "../dom.js";
import { brief, plural, visible } from "../format.js";
import { Act } from "../parts/basics.js";
import { Dialog, Obstacle, Trouble } from "../parts/dialog.js";
import { useAnswer, useStore } from "../parts/hooks.js";
import { changeSearch, searchesOf } from "../searches.js";
import { standingOf, titleOfCodon } from "../standing.js";
import { Changes } from "./changes.js";
import { stopSearch } from "./search-notices.js";
import { detailOf, showCall } from "./who-wrote.js";

const WORDS = { passes: "passes", fails: "fails", skipped: "cannot be judged" };
const FILES = 20;

/**
 * @param {{session: import("../session.js").Session, codon: any, onClose: () => void}} props
 *   `codon`: the step that has failed, if one has: the command of its check is proposed
 */
export function FindBreak({ session, codon, onClose }) {
  const store = useStore(session.store);
  const [command, setCommand] = useState(() => proposed(store.state, codon));
  const ran = [...standingOf(store).ran.keys()];
  const [good, setGood] = useState(() => ran[ran.indexOf(codon?.codonId) - 1] ?? "");
  const [error, setError] = useState(/** @type {any} */ (null));
  const [own, setOwn] = useState(/** @type {string | null} */ (null));
  const [isAsked, setAsked] = useState(false);
  const searches = searchesOf(store);
  // Until one is begun here, the newest: another client may have begun it, or a check of a step.
  const shown = (own === null ? searches.at(-1) : searches.find((each) => each.bisectId === own)) ?? null;
  const { bisectId = null, tried = [], ended = null } = shown ?? {};
  const isRunning = isAsked || (ended === null && (own !== null || shown !== null));
  useEffect(() => {
    if (bisectId !== null && ended !== null) changeSearch(store, bisectId, () => ({ isSeen: true }));
  }, [bisectId, ended]);
  const start = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (session.obstacle !== null || isRunning) return;

    setAsked(true);
    setError(null);
    try {
      const begun = await session.ask("bisect.start", { command, ...(good && { good }), ...session.guard });
      setOwn(begun.bisectId);
    } catch (failure) {
      setError(failure);
    }
    setAsked(false);
  };
  return html`<${Dialog} title="Find what broke it" onClose=${onClose} wide=${true}>
    <form onSubmit=${start}>
      <p>A command that fails now is run on copies of earlier checkpoints, to find the first one at which it fails. Your files are not touched.</p>
      <label>Command <input type="text" required value=${command} onInput=${(event) => setCommand(event.target.value)} /></label>
      <label>Passes <select value=${good} onChange=${(event) => setGood(event.target.value)}>
        <option value="">at the beginning</option>
        ${ran.map((each) => html`<option key=${each} value=${each}>at the end of ${visible(titleOfCodon(store.state, each))}</option>`)}
      </select></label>
      <${Trouble} error=${error} />
      <${Obstacle} session=${session} isBusy=${isRunning} />
      ${own === null && shown !== null && html`<p>
        ${ended === null ? "A search is running" : "The last search was"} for the first failure of <code>${visible(shown.command)}</code>.
      </p>`}
      ${!isAsked && tried.length > 0 && html`<ol class="tried" aria-label="Results">
        ${tried.map((each) => html`<li key=${each.runs}>
          <code>${brief(each.checkpointSha)}</code> ${WORDS[each.verdict]} <span class="hint">${visible(each.lastLine)}</span>
        </li>`)}
      </ol>`}
      <p role="status">${isRunning && `Searching: ${plural(isAsked ? 0 : tried.length, "run")} so far.`}</p>
      ${!isAsked && ended !== null && html`<${Result} key=${ended.bisectId} session=${session} ended=${ended} />`}
      <footer>
        ${isRunning
          ? html`<${Act} session=${session} onClick=${() => stopSearch(session)}>Stop<//>`
          : html`<button type="button" onClick=${onClose}>Close</button>`}
        <button type="submit" class="main" disabled=${isRunning} aria-disabled=${session.obstacle !== null}>${isRunning ? "Searching …" : "Find it"}</button>
      </footer>
    </form>
  <//>`;
}

/** What was found: the call, its change, and what can be done about it. */
function Result({ session, ended }) {
  const { checkpointSha: sha, parentSha, codonId, summary, suspects, message, runs } = ended;
  const found = useAnswer(async () => {
    if (!sha || !parentSha) return null;
    const page = await session.ask("checkpoint.diff", { from: parentSha, to: sha, limit: FILES });
    return { page, author: await authorIn(session, sha, page.files) };
  }, [sha]);
  if (message) return html`<p class="warn" role="alert">${visible(message)}</p>`;
  if (!sha) return html`<p class="warn" role="alert">It is one of ${plural(suspects.length, "checkpoint")}: ${suspects.map(brief).join(", ")}. The command could judge none of them.</p>`;

  const { page = null, author = null } = found.data ?? {};
  const shown = author ?? { by: "agent", codonId, eventSeq: session.store.bySha.get(sha)?.seq, checkpointSha: sha };
  const back = () => session.look({ dialog: { kind: "rollback", target: { sha: parentSha } } });
  return html`<section class="broke" aria-label="What broke it">
    <p>
      It first failed after <strong>${visible(author?.call ?? summary ?? brief(sha))}</strong>${codonId && html` in <strong>${visible(titleOfCodon(session.store.state, codonId))}</strong>`}. <span class="hint">${author ? detailOf({ ...author, call: null }) : brief(sha)} · ${plural(runs, "run")}</span>
    </p>
    <p class="ways">
      <button type="button" disabled=${page === null && !found.error} onClick=${() => showCall(session, shown)}>Show the call</button>
      ${parentSha && html`<button type="button" onClick=${back}>Back to just before it…</button>`}
    </p>
    <${Trouble} error=${found.error} />
    ${page && html`<${Changes} session=${session} page=${page} open=${1} />`}
  </section>`;
}

/** Who changed the files of a checkpoint, as the lines that it brought say. */
async function authorIn(session, sha, files) {
  for (const { path, status } of files) {
    if (status === "deleted") continue;
    const { ranges } = await session.ask("file.blame", { path, at: sha });
    const own = ranges.find((/** @type {any} */ each) => each.checkpointSha === sha);
    if (own !== undefined) return own;
  }
  return null;
}

/** The command of the check that failed. @param {any} state @param {any} codon */
function proposed(state, codon) {
  const found = /^Check (\d+) of \d+ failed/.exec(codon?.failureReason?.message ?? "");
  const entry = state.executionPlan.find((/** @type {any} */ each) => each.codonId === codon?.codonId);
  const check = found && entry?.codon.checks?.[Number(found[1]) - 1];
  return check?.onFailure?.bisect ?? check?.run ?? "";
}
