/** Explorations: the attempts at a codon, side by side, and what to do with their results. */
import { html } from "../dom.js";
import { count, dollars, duration, unmasked, visible } from "../format.js";
import { adoptedOf, bestOf } from "../state.js";

const HEADINGS = ["Attempt", "State", "Score", "Cost", "Time", "Files", "Lines"];

/** @param {{session: import("../session.js").Session}} props */
export function Attempts({ session }) {
  const { state } = session.store;
  const [newest] = state.explorations.slice(-1);
  if (newest === undefined) return null;

  return html`
    <section class="attempts" aria-label="Attempts">
      <h2>Attempts</h2>
      <${Exploration} session=${session} exploration=${newest} />
    </section>`;
}

function Exploration({ session, exploration }) {
  const { attempts, codonId, endedAt, judgement } = exploration;
  const adopted = adoptedOf(session.store.state, exploration);
  const best = bestOf(exploration);
  const ended = attempts.filter(({ status = "waiting" }) => !isOpen(status)).length;
  return html`
    <p class="empty">
      ${visible(codonId)}: ${endedAt ? "ended" : `${ended} of ${attempts.length} ended`}
    </p>
    <table>
      <thead><tr>${HEADINGS.map((name) => html`<th scope="col">${name}</th>`)}<td></td></tr></thead>
      <tbody>
        ${attempts.map((attempt) => html`
          <${Attempt}
            key=${attempt.attemptId}
            session=${session}
            attempt=${attempt}
            standing=${attempt === adopted ? "adopted" : attempt === best ? "best" : attempt.status}
          />`)}
      </tbody>
    </table>
    ${judgement?.error && html`<p class="why">No judgement: ${unmasked(judgement.error)}</p>`}`;
}

const isOpen = (status) => status === "waiting" || status === "running";

function Attempt({ session, attempt, standing = "waiting" }) {
  const { attemptId, checkpointSha: sha, variant = {}, message } = attempt;
  const name = visible(variant.name ?? variant.model ?? attemptId);
  const lines = attempt.added === undefined ? "" : `+${attempt.added} −${attempt.removed ?? 0}`;
  return html`<tr class=${`attempt a-${standing}`}>
    <th scope="row" title=${attemptId}>${name}</th>
    <td>${standing}${message && html`<span class="why">${unmasked(message)}</span>`}</td>
    <td>${attempt.score === undefined ? "" : count(attempt.score)}</td>
    <td>${dollars(attempt.cost ?? 0)}</td>
    <td>${attempt.durationMs === undefined ? "" : duration(attempt.durationMs)}</td>
    <td>${attempt.files ?? ""}</td>
    <td>${lines}</td>
    <td class="buttons">
      ${sha && html`
        <button
          aria-label=${`Look at attempt ${attemptId}`}
          onClick=${() => session.look({ tab: "checkpoints", moment: { sha } })}
        >
          Look
        </button>`}
      ${sha && standing !== "adopted" && html`
        <button
          aria-label=${`Adopt attempt ${attemptId}`}
          onClick=${() => session.look({ dialog: { kind: "rollback", target: { sha, attemptId } } })}
        >
          Adopt …
        </button>`}
    </td>
  </tr>`;
}
