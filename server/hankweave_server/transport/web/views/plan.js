/** The plan: codons and loops in their order, with what became of each. */
import { html, useMemo, useState } from "../dom.js";
import { compact, count, dollars, duration, unmasked, visible } from "../format.js";
import { useNow } from "../parts/hooks.js";
import { costOf, endCheckpoint, isActive, thread, tokensOf } from "../state.js";
import { Act } from "./header.js";

const AT_ONCE = 200; // Entries around the one that runs or comes next; more are shown when asked for.

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
  const ran = useMemo(
    () => new Map(thread(state).map((codon) => [codon.codonId, codon])),
    [state, store.version],
  );
  const [more, setMore] = useState({ before: AT_ONCE / 2, after: AT_ONCE });
  const plan = state.executionPlan;
  const place = plan.findIndex((entry) => !isDone(ran.get(entry.codonId)));
  const at = place < 0 ? plan.length - 1 : place;
  const first = Math.max(0, at - more.before);
  const last = Math.min(plan.length, at + more.after);
  if (plan.length === 0) {
    return html`
      <p class="empty">
        ${store.isLoaded ? "There is no plan: checkpoints are taken on request." : "Reading …"}
      </p>`;
  }

  return html`<ol class="codons" tabindex="0" aria-label="Codons in order">
    ${first > 0 && html`
      <li class="rest">
        <button onClick=${() => setMore({ ...more, before: more.before + AT_ONCE })}>
          ${count(first)} before these
        </button>
      </li>`}
    ${plan.slice(first, last).map((entry, row) => {
      const loop = entry.loopContext;
      const before = plan[first + row - 1]?.loopContext;
      const begins =
        loop && (before?.loopId !== loop.loopId || before?.iteration !== loop.iteration);
      return html`
        ${begins && html`
          <li key=${`loop-${loop.loopId}-${loop.iteration}`} class="loop">
            ↻ ${visible(loop.loopId)}, iteration ${loop.iteration + 1}
          </li>`}
        <${Codon}
          key=${entry.codonId}
          session=${session}
          entry=${entry}
          codon=${ran.get(entry.codonId)}
          retry=${retries.get(entry.codonId)}
          now=${now}
          isLive=${isLive}
          isWorking=${isWorking}
        />`;
    })}
    ${last < plan.length && html`
      <li class="rest">
        <button onClick=${() => setMore({ ...more, after: more.after + AT_ONCE })}>
          ${count(plan.length - last)} after these
        </button>
      </li>`}
  </ol>`;
}

const isDone = (codon) => codon !== undefined && !isActive(codon);

function Codon({ session, entry, codon, retry, now, isLive, isWorking }) {
  const status = codon?.status ?? "waiting";
  const sha = codon && endCheckpoint(codon);
  const words = doing(codon, retry, now);
  const figures = codon
    ? [duration(took(codon, now)), dollars(costOf(codon)), `${compact(tokensOf(codon))} tokens`]
    : [];
  return html`
    <li
      class=${`codon s-${status}${entry.loopContext ? " looped" : ""}`}
      aria-current=${codon && isActive(codon) ? "step" : undefined}
    >
    <span class="state-sign" aria-hidden="true">${SIGNS[status] ?? "•"}</span>
    <div class="what">
      <span class="name">${visible(entry.codon?.name ?? entry.codonId)}</span>
      <span class="id">${visible(entry.codonId)}</span>
      <span class="status">${words}${codon?.attempt > 1 ? `, attempt ${codon.attempt}` : ""}</span>
      ${figures.length > 0 && html`<span class="numbers">${figures.join(" · ")}</span>`}
      ${codon?.failureReason && html`
        <span class="why">
          ${unmasked(codon.failureReason.message ?? codon.failureReason.type)}
        </span>`}
      ${(codon?.warnings ?? []).map((warning) => html`
        <span class="why">Warning: ${unmasked(warning)}</span>`)}
    </div>
    ${
      isLive &&
      html`<div class="buttons">
      ${sha && html`
        <button
          aria-label=${`Look at the end of ${entry.codonId}`}
          onClick=${() => session.look({ tab: "time", moment: { sha } })}
        >
          Look
        </button>`}
      ${codon?.wait && html`
        <${Act}
          session=${session}
          onClick=${() =>
            session.act(`${entry.codonId} continues.`, "codon.start", { codonId: entry.codonId })}
        >
          Continue now
        <//>`}
      ${!codon && !isWorking && html`
        <${Act}
          session=${session}
          onClick=${() => session.act(`${entry.codonId} starts.`, "codon.start", { codonId: entry.codonId })}
        >
          Start<span class="hidden"> ${entry.codonId}</span>
        <//>`}
    </div>`
    }
  </li>`;
}

function doing(codon, retry, now) {
  const { wait, status } = codon ?? {};
  if (wait) return `waits ${duration(Date.parse(wait.until) - now)} for a ${wait.kind} limit`;
  return retry && retry.at > now ? `again in ${duration(retry.at - now)}` : (status ?? "waiting");
}

function took(codon, now) {
  const end = codon.endTime ? Date.parse(codon.endTime) : now;
  const waits = codon.wait ? now - Date.parse(codon.wait.since) : 0;
  return end - Date.parse(codon.startTime) - (codon.waitedMs ?? 0) - Math.max(0, waits);
}
