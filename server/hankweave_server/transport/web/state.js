/**
 * The execution's state: folded from transitions as the server folds them, and asked.
 *
 * Only what the page shows is folded. The state is changed in place: a copy for each token of an
 * agent would be felt.
 */

const ACTIVE = new Set([
  "preparing",
  "starting",
  "initializing",
  "running",
  "completing-sentinels",
]);
const NOTED = {
  "rig-setup": "rigSetupCheckpoint",
  completed: "completionCheckpoint",
  error: "errorCheckpoint",
  skipped: "skipCheckpoint",
};
const COUNTS = ["inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens"];

/** @returns {any} */
export function emptyState() {
  return {
    runs: [],
    currentRunId: null,
    executionPlan: [],
    undo: [],
    redo: [],
    edits: {},
    explorations: [],
  };
}

/** Of the wire, which leaves out what is empty. @param {any} state */
export function asState(state) {
  return { ...emptyState(), ...state };
}

/**
 * @param {any} state
 * @param {{type: string, data: any}} transition
 */
export function fold(state, { type, data }) {
  switch (type) {
    case "RunStarted":
      // A run that no codon of it has begun in may begin anew elsewhere.
      state.runs = [data.run, ...state.runs.filter((run) => run.runId !== data.run.runId)];
      if (data.run.status === "running") state.currentRunId = data.run.runId;
      break;
    case "RunCompleted":
      return endRun(state, data, "completed");
    case "RunFailed":
      return endRun(state, data, "failed");
    case "RunCrashed":
      endRun(state, data, "crashed");
      return clearRun(state, data);
    case "CurrentRunCleared":
      return clearRun(state, data);
    case "CodonStarted":
      runNamed(state, data.runId)?.codons.push(data.codon);
      break;
    case "CodonTransitioned":
      return replaceCodon(state, data.runId, data.codon);
    case "CostsIncremented":
      return count(activeOf(state, data), data);
    case "CostsUpdated":
      Object.assign(activeOf(state, data) ?? {}, {
        currentCost: data.cost,
        currentTokens: data.tokens,
      });
      break;
    case "CodonWaitChanged":
      Object.assign(activeOf(state, data) ?? {}, {
        wait: data.wait ?? null,
        waitedMs: data.waitedMs ?? 0,
      });
      break;
    case "SentinelStatesUpdated":
      Object.assign(newest(state, data.runId, data.codonId) ?? {}, { sentinels: data.sentinels });
      break;
    case "CheckpointCreated":
      return noteCheckpoint(state, data.checkpoint);
    case "InitialCheckpointSet":
      state.initialCheckpoint = data.checkpointSha;
      break;
    case "PlanSet":
      state.executionPlan = data.executionPlan;
      break;
    case "PlanChanged":
      state.executionPlan = changedPlan(state.executionPlan, data);
      break;
    case "TimeTravelled":
      return travel(state, data);
    case "TravelsForgotten": {
      const gone = new Set(data.operationIds);
      state.undo = state.undo.filter((made) => !gone.has(made.operationId));
      state.redo = state.redo.filter((made) => !gone.has(made.operationId));
      break;
    }
    case "ExplorationSet": {
      const { exploration } = data;
      const at = state.explorations.findIndex(
        (each) => each.explorationId === exploration.explorationId,
      );
      state.explorations =
        at < 0
          ? [...state.explorations, exploration]
          : state.explorations.map((each, index) => (index === at ? exploration : each));
      break;
    }
    case "RunImported": {
      // Behind the newest run, which the thread ends with.
      const [newest, ...older] = state.runs;
      state.runs = [newest, data.run, ...older];
      break;
    }
    case "EditsNoticed":
      Object.assign(state.edits, data.edits);
      break;
    case "EditsOvertaken":
      for (const path of data.paths) delete state.edits[path];
      break;
  }
}

/** @param {any} state @param {string | null} runId */
export function runNamed(state, runId) {
  return state.runs.find((run) => run.runId === runId);
}

/** @param {any} codon */
export const isActive = (codon) => ACTIVE.has(codon.status);

/** @param {any} state */
export function activeCodon(state) {
  const run = runNamed(state, state.currentRunId);
  return run?.codons.findLast(isActive) ?? null;
}

/** USD, with what its sentinels cost. @param {any} codon */
export function costOf(codon) {
  const own = codon.finalCost ?? codon.partialCost ?? codon.currentCost ?? 0;
  return own + (codon.sentinels?.totalCost ?? 0);
}

/** @param {any} codon */
export function tokensOf(codon) {
  const tokens = codon.finalTokens ?? codon.partialTokens ?? codon.currentTokens;
  return tokens ? COUNTS.reduce((sum, key) => sum + (tokens[key] ?? 0), 0) : 0;
}

/** Of all runs: what was rolled back was paid for, too. @param {any} state */
export function totals(state) {
  let cost = 0;
  let tokens = 0;
  for (const codon of state.runs.flatMap((run) => run.codons)) {
    cost += costOf(codon);
    tokens += tokensOf(codon);
  }
  return { cost, tokens };
}

/** The attempt of each run that an exploration tried. @param {any} state @returns {Map<string, string>} */
export function attemptRuns({ explorations }) {
  const attempts = explorations.flatMap((/** @type {any} */ each) => each.attempts);
  return new Map(attempts.flatMap(({ attemptId, runId, earlierRuns = [] }) => [...earlierRuns, runId].map((id) => [id, attemptId])));
}

/**
 * The parts of the cost, in USD, of what leads to nothing: work that rollbacks left behind, and
 * attempts that were not adopted. As the server has it, a failed try of a step counts as its work.
 * @param {any} state
 */
export function unusedCosts(state) {
  const kept = new Set(thread(state));
  const tried = attemptRuns(state);
  const unused = { rolledBack: 0, attempts: 0 };
  for (const { runId, codons } of state.runs) {
    const isAside = tried.has(runId) && !codons.some((codon) => kept.has(codon));
    const left = codons.filter((codon) => !kept.has(codon) && (isAside || codon.status !== "failed"));
    unused[tried.has(runId) ? "attempts" : "rolledBack"] += left.reduce((sum, codon) => sum + costOf(codon), 0);
  }
  return unused;
}

/** The codons on the one line that leads to now, oldest first. @param {any} state */
export function thread(state) {
  const runs = new Map(state.runs.map((run) => [run.runId, run]));
  const line = [];
  for (let run = state.runs[0]; run !== undefined;) {
    line.push(run);
    runs.delete(run.runId);
    run = runs.get(run.startingConditions?.source?.runId);
  }
  /** @type {any[]} */
  const entries = []; // Changed in place: a past may have thousands of runs.
  for (const run of line.reverse()) {
    const source = run.startingConditions?.source;
    entries.length = source ? numberUpTo(entries, source) : 0;
    entries.push(...run.codons);
  }
  return entries;
}

/** The attempt whose run is on the thread. @param {any} state @param {any} exploration */
export function adoptedOf(state, exploration) {
  const runs = new Map(state.runs.map((run) => [run.runId, run]));
  const ran = new Set(thread(state));
  const isOnThread = (attempt) => runs.get(attempt.runId)?.codons.some((codon) => ran.has(codon));
  return exploration.attempts.find(isOnThread);
}

/** As the server ranks them: score, the judge's place, cost, time. @param {any} exploration */
export function bestOf({ attempts, judgement, score }) {
  const place = ({ attemptId }) =>
    (judgement?.order ?? []).findIndex((group) => group.includes(attemptId));
  const rank = (each) => [
    -(each.score ?? 0),
    Math.max(0, place(each)),
    each.cost ?? 0,
    each.durationMs ?? Infinity,
  ];
  const isBefore = (a, b) => {
    const at = a.findIndex((value, index) => value !== b[index]);
    return at >= 0 && a[at] < b[at];
  };
  return attempts
    .filter((each) => each.status === "completed" && (score == null || each.score != null))
    .reduce((best, each) => (best && !isBefore(rank(each), rank(best)) ? best : each), undefined);
}

/** @param {any} codon */
export function endCheckpoint(codon) {
  return codon.completionCheckpoint ?? codon.errorCheckpoint ?? codon.skipCheckpoint ?? null;
}

function numberUpTo(entries, source) {
  const at = source.checkpointSha
    ? entries.findLastIndex((codon) => endCheckpoint(codon) === source.checkpointSha)
    : -1;
  if (at >= 0) return entries[at].codonId === source.afterCodon ? at + 1 : at;

  return entries.findLastIndex((codon) => codon.codonId === source.afterCodon) + 1;
}

function changedPlan(plan, { at, removed, added = [] }) {
  const codons = new Map(plan.map((entry) => [entry.codonId, entry.codon]));
  const entries = added.map(({ like, codon, ...entry }) => ({
    ...entry,
    codon: codon ?? codons.get(like),
  }));
  return [...plan.slice(0, at), ...entries, ...plan.slice(at + removed)];
}

function endRun(state, { runId, endTime }, status) {
  Object.assign(runNamed(state, runId) ?? {}, { status, endTime });
}

function clearRun(state, { runId }) {
  if (state.currentRunId === runId) state.currentRunId = null;
}

function replaceCodon(state, runId, codon) {
  const codons = runNamed(state, runId)?.codons ?? [];
  const at = codons.findLastIndex((each) => each.codonId === codon.codonId && isActive(each));
  if (at >= 0) codons[at] = codon;
}

function activeOf(state, { runId, codonId }) {
  const codons = runNamed(state, runId)?.codons ?? [];
  return codons.findLast((each) => each.codonId === codonId && isActive(each));
}

function newest(state, runId, codonId) {
  return runNamed(state, runId)?.codons.findLast((each) => each.codonId === codonId);
}

function count(codon, { cost, tokens, messages = 0 }) {
  if (codon === undefined) return;

  codon.currentCost = (codon.currentCost ?? 0) + cost;
  codon.assistantMessageCount = (codon.assistantMessageCount ?? 0) + messages;
  const before = codon.currentTokens ?? {};
  codon.currentTokens = Object.fromEntries(
    COUNTS.map((key) => [key, (before[key] ?? 0) + (tokens[key] ?? 0)]),
  );
}

function noteCheckpoint(state, { sha, kind, coordinate }) {
  const codon = newest(state, coordinate.runId, coordinate.codonId);
  if (codon !== undefined && NOTED[kind]) codon[NOTED[kind]] = sha;
}

function travel(state, { direction, travel: made, restoredEdits = {} }) {
  if (direction === "back") {
    state.undo = [...state.undo, made];
    state.redo = [];
  } else if (direction === "undo") {
    state.undo = state.undo.slice(0, -1);
    state.redo = [...state.redo, made];
  } else {
    state.redo = state.redo.slice(0, -1);
    state.undo = [...state.undo, made];
  }
  for (const path of Object.keys(made.edits ?? {})) delete state.edits[path];
  Object.assign(state.edits, restoredEdits);
}
