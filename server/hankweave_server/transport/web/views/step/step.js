/** The selected step: what it is, and all that it said, changed and led to. */
import { carryOut, commandsOfStep } from "../../commands.js";
import { html, useEffect, useMemo, useRef, useState } from "../../dom.js";
import { count, dollars, plural, visible } from "../../format.js";
import { At, Empty } from "../../parts/basics.js";
import { useAnswer } from "../../parts/hooks.js";
import { Tabs } from "../../parts/tabs.js";
import { at } from "../../places.js";
import { TABS } from "../../session.js";
import { costOf, isActive as isActiveCodon, thread } from "../../state.js";
import { rangeOf } from "../../transcript.js";
import { StepChanges, boundsOf, useStepDiff } from "./changes.js";
import { StepCheckpoints, checkpointsOf } from "./checkpoints.js";
import { StepEvents } from "./events.js";
import { StepFiles } from "./files.js";
import { TranscriptView } from "./transcript.js";

const AGENTS = { claude: "Claude Code", codex: "Codex", acp: "ACP agent", command: "Program", scripted: "Scripted" };
const COUNTED = 50_000; // Events of a step whose calls are counted by the server.

/**
 * @param {{session: import("../../session.js").Session, looks: import("../../session.js").Looks,
 *   codonId: string | null, runId?: string, past?: import("../../moments.js").Past | null,
 *   over?: Record<string, any>}} props
 *   `codonId`: null where nothing is selected, and nothing has run; `runId`: by default, that of
 *   the line that leads to now; `past`: the moment at which it is shown; `over`: views that take the
 *   place of tabs.
 */
export function StepView({ session, looks, codonId, runId, past = null, over = {} }) {
  const { store } = session;
  const tries = useMemo(() => triesOf(store.state, codonId, runId), [store.version, codonId, runId]);
  const [chosen, choose] = useState(/** @type {string | null} */ (null));
  useEffect(() => choose(null), [codonId, runId, past?.sha]);
  const then = past === null ? undefined : tries.findLast(({ codon }) => Date.parse(codon.startTime) <= (past.time ?? 0));
  const attempt = tries.find(({ codon }) => codon.startTime === chosen) ?? then ?? tries.at(-1);
  const entry = store.state.executionPlan.find((/** @type {any} */ each) => each.codonId === codonId);
  const joined = at("tabs").flatMap((each) => {
    const counted = each.countOf(store.state, codonId);
    return counted === null ? [] : [{ ...each, counted }];
  });
  const tabs = [...TABS, ...joined.map(({ name }) => name)];
  const tab = tabs.includes(looks.tab) ? looks.tab : "transcript";
  const isActive = attempt !== undefined && isActiveCodon(attempt.codon);
  const records = attempt ? checkpointsOf(store, attempt) : [];
  const bounds = attempt ? boundsOf(store, attempt, past?.sha) : null;
  const diff = useStepDiff(session, bounds, isActive && past === null);
  if (codonId === null && past === null && tab !== "events" && tab !== "checkpoints")
    return html`<${Empty}>${store.isLoaded ? "Nothing has run yet." : "Reading …"}<//>`;

  const titles = {
    transcript: "Transcript",
    changes: numbered("Changes", bounds === null ? undefined : diff.data?.stats.files),
    files: "Files",
    checkpoints: numbered("Checkpoints", records.length),
    events: "Events",
    ...Object.fromEntries(joined.map(({ name, title, counted }) => [name, numbered(title, counted)])),
  };
  const own = over[tab] ?? joined.find(({ name }) => name === tab)?.view;
  const key = `${codonId} ${attempt?.run.runId} ${attempt?.codon.startTime}`;
  return html`<div class="step-view">
    <${Head} session=${session} entry=${entry} codonId=${codonId} attempt=${attempt} tries=${tries} choose=${choose} title=${past === null ? "The whole run" : "Between the steps"} />
    <${Tabs}
      id="of"
      label="Views of the step"
      panel="of-step"
      selected=${tab}
      onSelect=${(/** @type {string} */ each) => session.look({ tab: each })}
      tabs=${tabs.map((each) => [each, titles[each]])}
    />
    <div id="of-step" class=${`panel tab-${tab}`} role="tabpanel" aria-labelledby=${`of-${tab}`}>
      ${own ? html`<${own} session=${session} looks=${looks} bounds=${bounds} codonId=${codonId} />` : shownIn(tab, { past, isChosen: looks.step !== null, key, session, attempt, isActive, records, bounds, diff, codonId })}
    </div>
  </div>`;
}

function shownIn(tab, { past, isChosen, key, session, attempt, isActive, records, bounds, diff, codonId }) {
  if (tab === "events") {
    return isChosen
      ? html`<${StepEvents} key=${key} session=${session} codonId=${codonId} attempt=${attempt} />`
      : html`<${StepEvents} key=${`all ${past?.seq}`} session=${session} codonId=${null} until=${past?.seq} />`;
  }
  if (tab === "checkpoints")
    return html`<${StepCheckpoints} session=${session} records=${records} past=${past} />`;
  if (attempt === undefined) return html`<${Empty}>${past === null ? "This step has not begun yet." : "No step was at work at this moment."}<//>`;

  switch (tab) {
    case "changes":
      return html`<${StepChanges} key=${key} session=${session} bounds=${bounds} diff=${diff} />`;
    case "files":
      return html`<${StepFiles} key=${key} session=${session} records=${records} />`;
    default:
      return html`<${TranscriptView} key=${key} session=${session} codon=${attempt.codon} isActive=${isActive} at=${past?.seq ?? null} />`;
  }
}

const numbered = (/** @type {string} */ title, /** @type {number | undefined} */ n) =>
  html`${title}${n ? html` <span class="number">${count(n)}</span>` : ""}`;

/**
 * The attempts at a step in one run, oldest first.
 * @returns {{run: any, codon: any}[]}
 */
function triesOf(state, codonId, runId) {
  const onThread = new Set(thread(state));
  const runs = state.runs.filter(
    (/** @type {any} */ run) =>
      run.codons.some((/** @type {any} */ codon) => codon.codonId === codonId && (runId ? run.runId === runId : onThread.has(codon))),
  );
  const run = runs[0] ?? state.runs.find((/** @type {any} */ each) => each.codons.some((codon) => codon.codonId === codonId));
  if (run === undefined) return [];

  return run.codons.filter((/** @type {any} */ each) => each.codonId === codonId).map((/** @type {any} */ codon) => ({ run, codon }));
}

function Head({ session, entry, codonId, attempt, tries, choose, title }) {
  const codon = attempt?.codon;
  const plan = entry?.codon;
  const round = entry?.loopContext ? `, round ${entry.loopContext.iteration + 1}` : "";
  const agent = AGENTS[plan?.agent?.type] ?? "";
  const isSame = agent.toLowerCase() === plan?.model?.toLowerCase();
  const who = [agent, isSame ? "" : plan?.model].filter(Boolean).map(visible).join(", ");
  const calls = useCalls(session, codon);
  const [before] = commandsOfStep(session, codonId);
  const facts = [
    who,
    codon && (tries.length > 1 ? html`<${Tries} tries=${tries} codon=${codon} choose=${choose} />` : `attempt ${codon.attempt ?? 1}`),
    codon && html`started <${At} at=${codon.startTime} />`,
    calls !== null && plural(calls, "call"),
    codon && dollars(costOf(codon)),
    plan && html`<button type="button" class="link" onClick=${() => session.look({ dialog: { kind: "prompt", codonId } })}>prompt</button>`,
    codon && html`<button type="button" class="link" onClick=${() => carryOut(session, before)}>back to before this step</button>`,
  ].filter(Boolean);
  return html`<header class="of-step">
    <h2>${visible(plan?.name ?? codonId ?? title)}${round && html`<span class="quiet">${round}</span>`}</h2>
    <p class="facts">
      ${facts.map((each, at) => html`${each}${at < facts.length - 1 ? "\u00a0· " : ""}`)}
    </p>
  </header>`;
}

function Tries({ tries, codon, choose }) {
  return html`<label class="tries"><span class="hidden">Attempt</span>
    <select value=${codon.startTime} onChange=${(event) => choose(event.target.value)}>
      ${tries.map(({ codon: each }) => html`<option key=${each.startTime} value=${each.startTime}>attempt ${each.attempt ?? 1}</option>`)}
    </select>
  </label>`;
}

/** How many calls of tools have ended; null while, or where, nobody has counted. */
function useCalls(session, codon) {
  const { store } = session;
  const [, draw] = useState(0);
  const heard = useRef(/** @type {number[]} */ ([])); // The seqs of their results, since this is shown.
  const key = codon ? `${codon.codonId} ${codon.startTime}` : "";
  useEffect(() => {
    heard.current = [];
    const hear = (/** @type {any} */ { seq, type, data }) => {
      if (type !== "tool.result" || data.codonId !== codon?.codonId) return;
      heard.current.push(seq);
      draw(seq);
    };
    store.hearers.add(hear);
    return () => void store.hearers.delete(hear);
  }, [key]);
  const { data } = useAnswer(
    async () => {
      if (codon === undefined) return null;
      const { since, until } = await rangeOf(session.ask, codon, store.lastSeq);
      if (until - since > COUNTED) return null;
      const { counts } = await session.ask("events.query", { types: ["tool.result"], since, until, count: true });
      return { count: counts?.["tool.result"] ?? 0, until };
    },
    [key, store.isLoaded],
    300,
  );
  return data ? data.count + heard.current.filter((seq) => seq > data.until).length : null;
}
