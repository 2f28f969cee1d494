/** The plan: codons and loops in their order, with what became of each. */
import { html, useMemo } from "../dom.js";
import { compact, dollars, duration, visible } from "../format.js";
import { useNow } from "../parts/hooks.js";
import { costOf, endCheckpoint, isActive, thread, tokensOf } from "../state.js";
import { Act } from "./header.js";

const SIGNS = {
  completed: "✓",
  failed: "✗",
  skipped: "»",
  waiting: "○",
  preparing: "◔",
  starting: "◔",
  initializing: "◑",
  running: "▶",
  "completing-sentinels": "◕",
};

/**
 * @param {{session: import("../session.js").Session, state: any, retries?: Map<string, any>,
 *   isLive?: boolean, at?: number}} props `at`: when it was so, where that is not now.
 */
export function Plan({ session, state, retries = new Map(), isLive = false, at: then }) {
  const { store } = session;
  const isWorking = state.runs.some((run) => run.codons.some(isActive));
  const clock = useNow(1_000, isLive && isWorking);
  const now = then ?? clock;
  const ran = useMemo(() => new Map(thread(state).map((codon) => [codon.codonId, codon])), [state, store.version]);
  if (state.executionPlan.length === 0) {
    return html`<p class="empty">${store.isLoaded ? "There is no plan: checkpoints are taken when somebody asks." : "Reading …"}</p>`;
  }

  return html`<ol class="codons" tabindex="0" aria-label="Codons in their order">
    ${state.executionPlan.map((entry, at) => {
      const loop = entry.loopContext;
      const before = state.executionPlan[at - 1]?.loopContext;
      const begins = loop && (before?.loopId !== loop.loopId || before?.iteration !== loop.iteration);
      return html`
        ${begins && html`<li key=${`loop-${loop.loopId}-${loop.iteration}`} class="loop">↻ ${visible(loop.loopId)}, iteration ${loop.iteration + 1}</li>`}
        <${Codon} key=${entry.codonId} session=${session} entry=${entry} codon=${ran.get(entry.codonId)} retry=${retries.get(entry.codonId)} now=${now} isLive=${isLive} isWorking=${isWorking} />`;
    })}
  </ol>`;
}

function Codon({ session, entry, codon, retry, now, isLive, isWorking }) {
  const status = codon?.status ?? "waiting";
  const sha = codon && endCheckpoint(codon);
  const words = retry && retry.at > now ? `again in ${duration(retry.at - now)}` : status;
  const figures = codon ? [duration(took(codon, now)), dollars(costOf(codon)), `${compact(tokensOf(codon))} tokens`] : [];
  return html`<li class=${`codon s-${status}${entry.loopContext ? " looped" : ""}`} aria-current=${codon && isActive(codon) ? "step" : undefined}>
    <span class="state-sign" aria-hidden="true">${SIGNS[status] ?? "•"}</span>
    <div class="what">
      <span class="name">${visible(entry.codon?.name ?? entry.codonId)}</span>
      <span class="id">${visible(entry.codonId)}</span>
      <span class="status">${words}${codon?.attempt > 1 ? `, attempt ${codon.attempt}` : ""}</span>
      ${figures.length > 0 && html`<span class="numbers">${figures.join(" · ")}</span>`}
      ${codon?.failureReason && html`<span class="why">${codon.failureReason.message ?? codon.failureReason.type}</span>`}
    </div>
    ${isLive && html`<div class="buttons">
      ${sha && html`<button aria-label=${`Look at the end of ${entry.codonId}`} onClick=${() => session.look({ tab: "time", moment: { sha } })}>Look</button>`}
      ${!codon && !isWorking && html`<${Act} session=${session} onClick=${() => session.act(`${entry.codonId} starts.`, "codon.start", { codonId: entry.codonId })}>Start<span class="hidden"> ${entry.codonId}</span><//>`}
    </div>`}
  </li>`;
}

function took(codon, now) {
  return (codon.endTime ? Date.parse(codon.endTime) : now) - Date.parse(codon.startTime);
}
