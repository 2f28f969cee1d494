/** The status bar: what, how far, in what state, how long, how much; and what can be done next. */
import { html } from "../dom.js";
import { commandOf } from "../commands.js";
import { dollars, duration, price, roughly, time, visible } from "../format.js";
import { Button, Pill, Progress, StepsSoFar, Tip } from "../parts/basics.js";
import { useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { folderOf, nameOfExecution, standingOf, workedFor } from "../standing.js";

/** @param {{session: import("../session.js").Session, isOpen: boolean}} props
 *   `isOpen`: whether a step is, which on a phone hides the others.
 */
export function Header({ session, isOpen }) {
  const { store } = session;
  const standing = standingOf(store);
  const { condition } = standing;
  return html`<header class=${isOpen ? "top open" : "top"}>
    ${isOpen && html`
      <button
        class="quiet to-steps"
        aria-label="Back to the steps"
        onClick=${() => session.look({ step: null, moment: null, compare: null, tab: "transcript" })}
      >
        <${Icon} name="back" />
      </button>`}
    ${store.connection.mode === "readandwrite" && html`
      <button class="quiet to-executions" onClick=${() => session.look({ index: true })}>
        <${Icon} name="back" /><span>Executions</span>
      </button><span class="slash">/</span>`}
    <${Name} store=${store} runs=${standing.runs} />
    <span class="state" role="status" aria-label="Current activity" title=${condition.detail ?? condition.words}>
      <${Pill} role=${condition.role} icon=${condition.icon}>${condition.words}<//>
    </span>
    <${Advance} session=${session} standing=${standing} />
    <${Spent} session=${session} standing=${standing} />
    <${Controls} session=${session} standing=${standing} />
  </header>`;
}

const LEAST = 16; // Letters of a name that are shown however little room there is.

/** @param {{store: import("../store.js").Store, runs: number}} props */
function Name({ store, runs }) {
  const path = store.server?.executionPath;
  const folder = folderOf(path);
  const name = nameOfExecution(store);
  const least = { "--letters": Math.min(LEAST, name.length), "--run": runs > 1 ? `/ run ${runs}`.length : 0 };
  return html`<div class="name" style=${least} title=${path === undefined ? name : `${name}\n${path}`}>
    <h1>${visible(name)}</h1>
    ${name !== folder && folder && html`
      <span class="folder"> / ${visible(folder)}</span>`}
    ${runs > 1 && html`<span class="run"> / run ${runs}</span>`}
  </div>`;
}

/** How far it is, and how long it has worked and will. */
function Advance({ session, standing }) {
  const { store } = session;
  const { active, at, total, condition } = standing;
  const now = useNow(1_000, active !== null);
  const { forecast } = store.figures;
  const left = isOpenEnded(standing) ? (forecast?.remainingMs ?? null) : null;
  if (total === 0) return html`<p class="advance"></p>`;

  const worked = workedFor(standing, now);
  const tip = [
    `Worked for ${duration(worked)}, without waits.`,
    left !== null && `About ${roughly(left)} left, until about ${time(new Date(now + left).toISOString()).slice(0, 5)}.`,
    basisOf(forecast, standing),
  ];
  return html`<p class="advance">
    <${StepsSoFar} at=${at} total=${total} role=${condition.role === "plain" ? "accent" : condition.role} />
    <${Tip} text=${sentences(tip)}>
      ${(/** @type {string} */ id) => html`<span class="worked" tabindex="0" aria-describedby=${id}>
        ${roughly(worked)}${left !== null && `, about ${roughly(left)} left`}
      </span>`}
    <//>
  </p>`;
}

/** What was paid, rolled back work included: the number of `hankweave status` and of the report. */
function Spent({ session, standing }) {
  const { figures } = session.store;
  const { budgetUsd, forecast } = figures;
  const { cost, unused } = standing;
  const end = isOpenEnded(standing) ? (forecast?.costAtEnd ?? null) : null;
  const tip = [
    `${dollars(cost)} paid${budgetUsd === null ? "" : ` of a budget of ${dollars(budgetUsd)}`}.`,
    unused.rolledBack > 0 && `${dollars(unused.rolledBack)} of it for work that was rolled back.`,
    unused.attempts > 0 && `${dollars(unused.attempts)} of it for attempts that were not adopted.`,
    end !== null && `About ${dollars(end)} at the end.`,
    basisOf(forecast, standing),
  ];
  return html`<div class="money">
    ${budgetUsd !== null && html`<${Progress} done=${cost} total=${budgetUsd} role=${roleOf(cost, budgetUsd)} label="Budget that is spent" />`}
    <${Tip} text=${sentences(tip)}>
      ${(/** @type {string} */ id) => html`<button class="quiet spent" aria-describedby=${id} onClick=${commandOf(session, "cost").run}>
        <b>${price(cost)}</b>${budgetUsd !== null && html` <span>of ${price(budgetUsd)}</span>`}
        ${end !== null && html`<span class="more"> · about ${price(end)} at the end</span>`}
        ${unused.rolledBack > 0 && html`<span class="more"> · ${price(unused.rolledBack)} rolled back</span>`}
        ${unused.attempts > 0 && html`<span class="more"> · ${price(unused.attempts)} for attempts</span>`}
      </button>`}
    <//>
  </div>`;
}

const NEARLY = 0.8; // Of the budget.

/** @param {number} cost @param {number} budget */
function roleOf(cost, budget) {
  if (cost >= budget) return "bad";
  return cost >= NEARLY * budget ? "wait" : "accent";
}

/** Whether steps are still to come: one runs, or has failed and can be retried. */
const isOpenEnded = (/** @type {any} */ { active, failed }) => active !== null || failed !== null;

/** Where the estimate comes from. */
const basisOf = (/** @type {any} */ forecast, /** @type {any} */ standing) =>
  isOpenEnded(standing) && forecast?.basis && `Estimated ${forecast.basis}.`;

/** @param {any[]} parts */
const sentences = (parts) => parts.filter(Boolean).join(" ");

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
      <span class="wide">⌘K</span><span class="hidden">, all commands</span>
    </button>
  </div>`;
}
