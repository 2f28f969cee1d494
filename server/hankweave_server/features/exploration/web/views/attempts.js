/** The attempts at a step, side by side: what each cost and changed, and what becomes of them. */
import { html, useState } from "../dom.js";
import { count, dollars, duration, plural, unmasked, visible } from "../format.js";
import { Act, Delta, Empty, Pill } from "../parts/basics.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer, useStore } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";
import { adoptedOf, bestOf } from "../state.js";
import { Changes } from "./changes.js";

const HEADINGS = ["Attempt", "State", "Score", "Cost", "Time", "Files", "Lines"];
const OPEN = 3; // Files that show their differences at once.

/** @type {Record<string, [string, string]>} role and icon of each state */
const LOOKS = {
  adopted: ["accent", "done"],
  best: ["good", "done"],
  completed: ["plain", "done"],
  running: ["accent", "running"],
  waiting: ["plain", "todo"],
  failed: ["bad", "failed"],
  discarded: ["plain", "minus"],
};

/** The newest exploration of a step; null where it was never explored. @param {any} state @param {string | null} codonId */
export function explorationOf(state, codonId) {
  return state.explorations.findLast((/** @type {any} */ each) => each.codonId === codonId) ?? null;
}

/** The way to the attempts, beside any step. @param {{session: import("../session.js").Session}} props */
export function AttemptsLink({ session }) {
  const [newest] = session.store.state.explorations.slice(-1);
  if (newest === undefined) return null;

  const { attempts, codonId, endedAt } = newest;
  const ended = attempts.filter((/** @type {any} */ { status }) => !isOpen(status)).length;
  const adopted = adoptedOf(session.store.state, newest);
  const stands = adopted ? "one adopted" : endedAt ? "none adopted" : `${ended} of ${attempts.length} ended`;
  return html`<h2>Attempts</h2>
    <p class="attempts-link">
      <button type="button" class="link" onClick=${() => session.look({ step: codonId, tab: "attempts", moment: null })}>
        ${plural(attempts.length, "attempt")} at ${visible(titleOfCodon(session.store.state, codonId))}
      </button><span class="facts"> · ${stands}</span>
    </p>`;
}

/** @param {{session: import("../session.js").Session, codonId: string | null}} props */
export function Attempts({ session, codonId }) {
  const { state } = useStore(session.store);
  const exploration = explorationOf(state, codonId);
  const [chosen, choose] = useState(/** @type {string | null} */ (null));
  if (exploration === null) return html`<${Empty}>Nothing was tried several times at this step.<//>`;

  const { attempts, endedAt, judgement } = exploration;
  const adopted = adoptedOf(state, exploration);
  const best = bestOf(exploration);
  const selected =
    attempts.find((/** @type {any} */ each) => each.attemptId === chosen) ??
    adopted ?? best ?? attempts.find((/** @type {any} */ each) => each.checkpointSha) ?? attempts[0];
  const standing = (/** @type {any} */ each) => (each === adopted ? "adopted" : each === best ? "best" : (each.status ?? "waiting"));
  const ended = attempts.filter((/** @type {any} */ { status }) => !isOpen(status)).length;
  const press = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = by && attempts[attempts.indexOf(selected) + by];
    if (!next) return;

    event.preventDefault();
    event.stopPropagation();
    choose(next.attemptId);
    document.getElementById(`attempt-${next.attemptId}`)?.focus();
  };
  return html`<section class="attempts" aria-label="Attempts">
    <p class="facts">
      ${endedAt ? "All have ended" : `${ended} of ${attempts.length} have ended`}${exploration.score ? html` · scored by <code>${visible(exploration.score)}</code>` : ""}${exploration.judge ? ` · judged by ${visible(exploration.judge)}` : ""}
    </p>
    <div class="table"><table onKeyDown=${press}>
      <thead><tr>${HEADINGS.map((name, at) => html`<th scope="col" key=${name} class=${at > 1 ? "number" : ""}>${name}</th>`)}</tr></thead>
      <tbody>
        ${attempts.map((/** @type {any} */ each) => html`<${AttemptRow}
          key=${each.attemptId}
          attempt=${each}
          standing=${standing(each)}
          isSelected=${each === selected}
          onChoose=${() => choose(each.attemptId)}
        />`)}
      </tbody>
    </table></div>
    ${judgement?.error && html`<p class="hint">No judgement: ${unmasked(judgement.error)}</p>`}
    <${Selected}
      key=${`${selected.attemptId} ${selected.checkpointSha}`}
      session=${session}
      exploration=${exploration}
      attempt=${selected}
      standing=${standing(selected)}
    />
  </section>`;
}

const isOpen = (/** @type {string} */ status = "waiting") => status === "waiting" || status === "running";

/** @param {any} attempt */
const nameOfAttempt = ({ variant = {}, attemptId }) => visible(variant.name ?? variant.model ?? attemptId);

function AttemptRow({ attempt, standing, isSelected, onChoose }) {
  const { attemptId, score, cost = 0, durationMs, files, added, removed = 0 } = attempt;
  const [role, icon] = LOOKS[standing] ?? ["plain", "dot"];
  return html`<tr class=${isSelected ? "selected" : ""} onClick=${onChoose}>
    <th scope="row">
      <button
        type="button"
        id=${`attempt-${attemptId}`}
        class="link"
        aria-pressed=${isSelected}
        tabindex=${isSelected ? 0 : -1}
        title=${attemptId}
      >${nameOfAttempt(attempt)}</button>
    </th>
    <td><${Pill} role=${role} icon=${icon}>${standing}<//></td>
    <td class="number">${score === undefined ? "" : count(score)}</td>
    <td class="number">${dollars(cost)}</td>
    <td class="number">${durationMs === undefined ? "" : duration(durationMs)}</td>
    <td class="number">${files ?? ""}</td>
    <td class="number">${added === undefined ? "" : html`<${Delta} added=${added} removed=${removed} />`}</td>
  </tr>`;
}

/** One attempt: what it changed, and what becomes of it. */
function Selected({ session, exploration, attempt, standing }) {
  const { attemptId, checkpointSha: sha, message } = attempt;
  const [otherId, compareWith] = useState("");
  const answer = useAnswer(
    async () => (sha ? session.ask("exploration.compare", otherId ? { attemptId: otherId, otherId: attemptId } : { attemptId }) : null),
    [sha, otherId],
  );
  const others = exploration.attempts.filter((/** @type {any} */ each) => each !== attempt && each.checkpointSha);
  const reasons = (exploration.judgement?.reasons ?? []).filter((/** @type {any} */ each) => each.attemptId === attemptId);
  const none = sha ? null : isOpen(attempt.status) ? "It has not ended yet." : "It left no result.";
  const ask = (/** @type {object} */ dialog) => () => session.look({ dialog });
  return html`<section class="attempt" aria-label=${`Attempt ${nameOfAttempt(attempt)}`}>
    <header>
      <h3>${nameOfAttempt(attempt)}</h3>
      <label>
        <span class="hint">compared with </span>
        <select value=${otherId} onChange=${(event) => compareWith(event.target.value)}>
          <option value="">where it began</option>
          ${others.map((/** @type {any} */ each) => html`<option key=${each.attemptId} value=${each.attemptId}>${nameOfAttempt(each)}</option>`)}
        </select>
      </label>
      <span class="ways">
        <${Act} session=${session} look="danger" reason=${attempt.status === "discarded" ? "It is discarded already." : null} label=${`Discard attempt ${attemptId}`}
          onClick=${ask({ kind: "discard", exploration, attempt })}>Discard…<//>
        <${Act} session=${session} look="primary" reason=${standing === "adopted" ? "It is adopted already." : none} label=${`Adopt attempt ${attemptId}`}
          onClick=${ask({ kind: "rollback", target: { sha, attemptId } })}>Adopt…<//>
      </span>
    </header>
    ${message && html`<p class="warn">${unmasked(message)}</p>`}
    ${reasons.map((/** @type {any} */ { text }) => html`<p class="hint" key=${text}>${unmasked(text)}</p>`)}
    <div class="attempt-changes">
      ${none && html`<${Empty}>${none}<//>`}
      <${Trouble} error=${answer.error} />
      ${sha && answer.data === null && !answer.error && html`<${Empty}>Comparing …<//>`}
      ${answer.data !== null && html`<${Changes} key=${`${answer.data.from} ${answer.data.to}`} session=${session} page=${answer.data} open=${OPEN} />`}
    </div>
  </section>`;
}
