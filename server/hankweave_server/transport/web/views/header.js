/** The status bar: what, how far, in what state, how long, how much; and what can be done next. */
import { html } from "../dom.js";
import { commandOf } from "../commands.js";
import { price, roughly, visible } from "../format.js";
import { Button, Pill, Progress } from "../parts/basics.js";
import { useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { folderOf, nameOfExecution, standingOf, workedFor } from "../standing.js";
import { rolledBackCost } from "../state.js";
import { showExecutions } from "./executions.js";

/** @param {{session: import("../session.js").Session, isOpen: boolean}} props
 *   `isOpen`: whether a step is, which on a phone hides the others.
 */
export function Header({ session, isOpen }) {
  const { store } = session;
  const standing = standingOf(store);
  const { condition } = standing;
  return html`<header class="top">
    ${isOpen && html`
      <button
        class="quiet to-steps"
        aria-label="Back to the steps"
        onClick=${() => session.look({ step: null, moment: null, compare: null, tab: "transcript" })}
      >
        <${Icon} name="back" />
      </button>`}
    ${store.connection.mode === "readandwrite" && html`<button class="quiet to-executions" onClick=${showExecutions}>Executions</button>`}
    <${Name} store=${store} />
    <span class="state" role="status" aria-label="Current activity">
      <${Pill} role=${condition.role} icon=${condition.icon}>${condition.words}<//>
    </span>
    <${Advance} session=${session} standing=${standing} />
    <${Spent} session=${session} standing=${standing} />
    <${Controls} session=${session} standing=${standing} />
  </header>`;
}

function Name({ store }) {
  const folder = folderOf(store.server?.executionPath);
  const name = nameOfExecution(store);
  const { runs } = store.state;
  return html`<div class="name" title=${store.server?.executionPath}>
    ${name !== folder && folder && html`
      <span class="folder">${visible(folder)}</span><span class="slash"> / </span>`}
    <h1>${visible(name)}</h1>
    ${runs.length > 1 && html`<span class="run"> / run ${runs.length}</span>`}
  </div>`;
}

/** How far it is, and how long it has worked and will. */
function Advance({ session, standing }) {
  const { store } = session;
  const { active, number, done, total, condition } = standing;
  const now = useNow(1_000, active !== null);
  const left = store.figures.forecast?.remainingMs ?? null;
  if (total === 0) return html`<p class="advance"></p>`;

  const at = active === null && standing.failed === null ? done : number;
  const rest = active !== null && left !== null ? `, about ${roughly(left)} left` : "";
  return html`<p class="advance">
    <span><b>${at}</b> of ${total}</span>
    <${Progress}
      done=${done}
      total=${total}
      role=${condition.role === "plain" ? "accent" : condition.role}
      label="Steps that are done"
    />
    <span class="worked" title=${store.figures.forecast?.basis}>
      ${roughly(workedFor(standing, now))}${rest}
    </span>
  </p>`;
}

function Spent({ session, standing }) {
  const { figures, state } = session.store;
  const { budgetUsd, forecast } = figures;
  const left = rolledBackCost(state);
  const end = standing.active !== null ? (forecast?.costAtEnd ?? null) : null;
  return html`<button
    class="quiet spent"
    title="Cost by step and over time"
    onClick=${commandOf(session, "cost").run}
  >
    <b>${price(standing.cost)}</b>${budgetUsd !== null && html` <span>of ${price(budgetUsd)}</span>`}
    ${left > 0 && html`<span class="more"> · ${price(left)} rolled back</span>`}
    ${end !== null && html`<span class="more"> · about ${price(end)} at the end</span>`}
  </button>`;
}

/** The one or two actions of the moment; the palette has all. */
function Controls({ session, standing }) {
  const { store } = session;
  const isOver = standing.total > 0 && standing.done === standing.total;
  const isReady = store.isLoaded && standing.active === null && standing.failed === null && !isOver;
  const shown = standing.active !== null ? ["skip", "stop"] : isReady ? ["next"] : [];
  return html`<div class="controls" role="group" aria-label="Actions">
    ${shown.map((id) => {
      const { title, key, why, run } = commandOf(session, id);
      return html`<${Button} key=${id} hotkey=${key} why=${why} onWhy=${session.say} onClick=${run}>
        ${title}
      <//>`;
    })}
    <button
      class="commands"
      aria-keyshortcuts="Control+K Meta+K"
      onClick=${() => session.look({ dialog: { kind: "palette" } })}
    >
      ⌘K<span class="hidden">, all commands</span>
    </button>
  </div>`;
}
