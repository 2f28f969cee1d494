/** The top of the page: is there a connection, what goes on, what it has cost, what can be done. */
import { html } from "../dom.js";
import { compact, dollars, duration } from "../format.js";
import { useNow } from "../parts/hooks.js";
import { activeCodon, rolledBackCost, totals } from "../state.js";
import { showExecutions } from "./executions.js";

/** @param {{session: import("../session.js").Session}} props */
export function Header({ session }) {
  const { state } = session.store;
  const { cost, tokens } = totals(state);
  const left = rolledBackCost(state);
  return html`<header class="top">
    <h1>Hankweave</h1>
    ${session.store.connection.mode === "readandwrite" && html`<button onClick=${showExecutions}>Executions</button>`}
    <${Connection} session=${session} />
    <p class="doing" aria-label="Current activity">${doing(session.store)}</p>
    <dl class="figures">
      <div>
        <dt>Cost</dt>
        <dd>
          ${left > 0 ? `${dollars(cost - left)} (+${dollars(left)} rolled back)` : dollars(cost)}
        </dd>
      </div>
      <div><dt>Tokens</dt><dd>${compact(tokens)}</dd></div>
      <div><dt>Run</dt><dd><${Elapsed} run=${state.runs[0]} /></dd></div>
    </dl>
    <${Controls} session=${session} />
  </header>`;
}

function Elapsed({ run }) {
  const now = useNow(1_000, run !== undefined && !run.endTime);
  if (run === undefined) return "—";

  const end = run.endTime ? Date.parse(run.endTime) : now;
  return duration(end - Date.parse(run.startTime));
}

function Connection({ session }) {
  const { phase, mode, retryAt } = session.store.connection;
  const now = useNow(500, phase === "waiting");
  const wait = Math.max(0, Math.ceil(((retryAt ?? now) - now) / 1_000));
  const words = {
    open: mode === "readonly" ? "connected, looking only" : "connected",
    connecting: "connecting",
    waiting: `connection lost, trying again in ${wait} s`,
    closed: "closed",
    refused: "refused",
  };
  return html`<div class=${`connection c-${phase}`}>
    <span class="lamp" aria-hidden="true">${phase === "open" ? "●" : "○"}</span>
    <span role="status">${phase === "waiting" ? "connection lost" : words[phase]}</span>
    ${
      phase === "waiting" &&
      html`<span aria-hidden="true"> · again in ${wait} s</span>
      <button onClick=${() => session.client.retryNow()}>Try now</button>`
    }
  </div>`;
}

const ENDS = {
  completed: "The run has completed.",
  failed: "The run has failed.",
  crashed: "The run crashed.",
};

function doing(store) {
  const { state, rollback } = store;
  if (!store.isLoaded) return "Reading …";
  if (rollback !== null) return `${rollback.message} (${rollback.step} of ${rollback.of})`;

  const codon = activeCodon(state);
  if (codon !== null)
    return `${codon.codonId}: ${codon.status}${codon.attempt > 1 ? `, attempt ${codon.attempt}` : ""}`;
  if (state.runs.length === 0) return "Nothing has run yet.";
  const current = state.runs.find((run) => run.runId === state.currentRunId);
  if (current?.status !== "running") return ENDS[state.runs[0].status] ?? "There is no current run.";
  return store.isIdle ? "Idle" : "Between two codons";
}

function Controls({ session }) {
  const { store } = session;
  const active = activeCodon(store.state);
  const idle = active !== null ? `Codon ${active.codonId} is running.` : null;
  const nothing = active === null ? "No codon is running." : null;
  const { undo, redo } = store.state;
  return html`<div class="controls" role="group" aria-label="Actions">
    <${Act}
      session=${session}
      reason=${idle}
      onClick=${() => session.act("The next codon starts.", "codon.next")}
    >
      Start next
    <//>
    <${Act}
      session=${session}
      reason=${nothing}
      onClick=${() => session.look({ dialog: { kind: "skip", codonId: active.codonId } })}
    >
      Skip …
    <//>
    <${Act}
      session=${session}
      reason=${nothing}
      onClick=${() => session.look({ dialog: { kind: "stop", codonId: active.codonId } })}
    >
      Stop …
    <//>
    <${Act}
      session=${session}
      reason=${idle}
      onClick=${() => session.act("The newest codon runs again.", "codon.redo")}
    >
      Redo codon
    <//>
    <${Act} session=${session} onClick=${() => session.look({ dialog: { kind: "checkpoint" } })}>
      Checkpoint …
    <//>
    <${Act}
      session=${session}
      reason=${undo.length ? null : "There is no rollback to undo."}
      onClick=${() => session.look({ dialog: { kind: "rollback", target: { direction: "undo" } } })}
    >
      Undo rollback …
    <//>
    <${Act}
      session=${session}
      reason=${redo.length ? null : "There is no undo to redo."}
      onClick=${() => session.look({ dialog: { kind: "rollback", target: { direction: "redo" } } })}
    >
      Redo rollback …
    <//>
  </div>`;
}

/**
 * A button that changes something. Where it cannot, it stays where it is and says why: it can be
 * reached, and read, and does nothing.
 * @param {{session: import("../session.js").Session, reason?: string | null, onClick: () => void,
 *   children?: any, main?: boolean}} props
 */
export function Act({ session, reason = null, onClick, children, main = false }) {
  const why = session.obstacle ?? reason;
  return html`<button
    class=${main ? "main" : ""}
    aria-disabled=${why !== null}
    title=${why ?? undefined}
    onClick=${() => (why === null ? onClick() : session.say(why))}
  >${children}</button>`;
}
