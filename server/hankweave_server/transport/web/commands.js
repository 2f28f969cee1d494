/**
 * All that a person can do from here, once: for the keys, the palette, the help and the buttons.
 * A command that cannot be carried out now says why instead.
 */
import { TABS } from "./session.js";
import { areNotificationsOn, turnNotifications } from "./views/attention.js";
import { nowSha, pastOf, stepOf } from "./moments.js";
import { at } from "./places.js";
import { schemeOf, turnScheme } from "./scheme.js";
import { standingOf, titleOfCodon } from "./standing.js";

/**
 * @typedef {{id: string, group: string, title: string, key?: string, why?: string | null,
 *   run: () => void}} Command
 *   `key`: as `KeyboardEvent.key` has it; `why`: why it cannot be done now.
 */

/** @param {import("./session.js").Session} session @returns {Command[]} */
export function commandsOf(session) {
  const own = [...decisions(session), ...steering(session), ...travels(session), ...views(session)];
  const joined = at("commands");
  return own.flatMap((each) => [...joined.filter(({ before }) => before === each.id).map(({ of }) => of(session)), each]);
}

/** @param {import("./session.js").Session} session @param {string} id */
export function commandOf(session, id) {
  return /** @type {Command} */ (commandsOf(session).find((each) => each.id === id));
}

/** @param {import("./session.js").Session} session @param {Command} command */
export function carryOut(session, { why = null, run }) {
  if (why === null) run();
  else session.say(why);
}

/** Answers to what waits for a person. @returns {Command[]} */
function decisions(/** @type {import("./session.js").Session} */ session) {
  const { asked } = standingOf(session.store);
  const why = asked === null ? "No agent asks for permission." : session.obstacle;
  const { requestId, suggestion = null } = asked ?? {};
  const answer = (/** @type {string} */ done, /** @type {object} */ data) =>
    session.act(done, "permission.answer", { requestId, decision: "allow", ...data });
  const choose = () => session.look({ dialog: { kind: "always", asked } });
  return [
    {
      id: "allow",
      group: "Permission",
      title: "Allow once",
      key: "a",
      why,
      run: () => answer("Allowed.", {}),
    },
    {
      id: "always",
      group: "Permission",
      title: suggestion === null ? "Always allow such calls…" : `Always allow ${suggestion}`,
      key: "A",
      why,
      run:
        suggestion === null
          ? choose
          : () => answer(`Allowed, and always for ${suggestion}.`, { always: suggestion }),
    },
    ...(suggestion === null
      ? []
      : [{ id: "rule", group: "Permission", title: "Always allow, with another rule…", why, run: choose }]),
    {
      id: "deny",
      group: "Permission",
      title: "Deny…",
      key: "d",
      why,
      run: () => session.look({ dialog: { kind: "deny", asked } }),
    },
  ];
}

/**
 * What can be done with one step: both open what asks for a decision.
 * @param {import("./session.js").Session} session @param {string | null} codonId @returns {Command[]}
 */
export function commandsOfStep(session, codonId) {
  const { active, ran } = standingOf(session.store);
  const { state } = session.store;
  const name = codonId === null ? "the step" : titleOfCodon(state, codonId);
  const why = session.obstacle ?? (ran.has(codonId ?? "") ? null : "This step has not run yet.");
  const busy = active === null ? null : `${titleOfCodon(state, active.codonId)} is running.`;
  return [
    {
      id: "before",
      group: "Run",
      title: `Back to before ${name}…`,
      why,
      run: () => session.look({ dialog: { kind: "rollback", target: { codonId, checkpointType: "start" } } }),
    },
    {
      id: "retry",
      group: "Run",
      title: `Retry ${name}…`,
      why: why ?? busy,
      run: () => session.look({ dialog: { kind: "retry", codonId } }),
    },
  ];
}

const onFailureOf = (/** @type {any} */ state, /** @type {string} */ codonId) =>
  state.executionPlan.find((/** @type {any} */ entry) => entry.codonId === codonId)?.codon?.onFailure;

/** What becomes of the steps. @returns {Command[]} */
function steering(/** @type {import("./session.js").Session} */ session) {
  const { store, looks } = session;
  const { active, failed, ran, followed } = standingOf(store);
  const { undo, redo } = store.state;
  const title = (/** @type {string} */ codonId) => titleOfCodon(store.state, codonId);
  const ask = (/** @type {object} */ dialog) => () => session.look({ dialog });
  const busy = active === null ? null : `${title(active.codonId)} is running.`;
  const nothing = active === null ? "No step is running." : null;
  // A banner that stands above all says what these keys do.
  const codonId = failed?.codonId ?? looks.step ?? followed;
  const hasRun = ran.has(codonId);
  const name = codonId === null ? "the step" : title(codonId);
  const own = failed === null || failed.codonId === looks.step ? null : looks.step;
  const [before, retry] = commandsOfStep(session, codonId);
  // The server would try a failed step again.
  const isRetry = failed !== null && onFailureOf(store.state, failed.codonId) !== "ignore";
  return [
    { ...retry, key: "r" },
    { ...before, key: "z" },
    ...(own === null ? [] : commandsOfStep(session, own).map((each) => ({ ...each, id: `${each.id}-selected` }))),
    {
      id: "next",
      group: "Run",
      title: "Start the next step",
      key: "n",
      why: session.obstacle ?? busy,
      run: isRetry ? retry.run : () => session.act("The next step starts.", "codon.next"),
    },
    {
      id: "start",
      group: "Run",
      title: `Start ${name}`,
      why: session.obstacle ?? busy ?? (hasRun ? "This step has run already." : null),
      run: () => session.act(`${name} starts.`, "codon.start", { codonId }),
    },
    {
      id: "continue",
      group: "Run",
      title: "Continue now, without waiting for the limit",
      why: session.obstacle ?? (active?.wait ? null : "No step waits for a limit."),
      run: () =>
        session.act(`${title(active.codonId)} continues.`, "codon.start", {
          codonId: active.codonId,
        }),
    },
    {
      id: "skip",
      group: "Run",
      title: "Skip…",
      key: "s",
      why: session.obstacle ?? nothing,
      run: ask({ kind: "skip", codonId: active?.codonId }),
    },
    {
      id: "stop",
      group: "Run",
      title: "Stop…",
      key: "x",
      why: session.obstacle ?? nothing,
      run: ask({ kind: "stop", codonId: active?.codonId }),
    },
    {
      id: "undo",
      group: "Run",
      title: "Undo the last rollback…",
      key: "u",
      why: session.obstacle ?? (undo.length > 0 ? null : "There is no rollback to undo."),
      run: ask({ kind: "rollback", target: { direction: "undo" } }),
    },
    {
      id: "redo",
      group: "Run",
      title: "Redo the rollback that was undone…",
      key: "U",
      why: session.obstacle ?? (redo.length > 0 ? null : "There is no undo to redo."),
      run: ask({ kind: "rollback", target: { direction: "redo" } }),
    },
  ];
}

const NOWHERE = "Choose a checkpoint first.";
const PRUNED = "This checkpoint was pruned and can no longer be restored.";

/** What is done with moments. @returns {Command[]} */
function travels(/** @type {import("./session.js").Session} */ session) {
  const { moment } = session.looks;
  const past = pastOf(session.store, moment);
  const sha = past?.sha ?? null;
  const nowhere = past?.isPruned ? PRUNED : sha === null ? NOWHERE : null;
  const why = session.obstacle ?? nowhere;
  const ask = (/** @type {object} */ dialog) => () => session.look({ dialog });
  return [
    {
      id: "checkpoint",
      group: "Time",
      title: "Take a checkpoint…",
      key: "c",
      why: session.obstacle,
      run: ask({ kind: "checkpoint" }),
    },
    { id: "earlier", group: "Time", title: "Previous checkpoint", key: "[", run: () => step(session, -1) },
    { id: "later", group: "Time", title: "Next checkpoint", key: "]", run: () => step(session, 1) },
    {
      id: "live",
      group: "Time",
      title: "Live: back to the present",
      key: "l",
      run: () => session.look({ moment: null, compare: null, pick: null, step: null, tab: "transcript" }),
    },
    {
      id: "compare",
      group: "Time",
      title: "Compare this moment with now",
      key: "v",
      why: nowhere,
      run: () => session.look({ compare: { from: /** @type {string} */ (sha), to: null }, pick: null }),
    },
    {
      id: "pick",
      group: "Time",
      title: "Compare this moment with another…",
      key: "V",
      why: nowhere,
      run: () => session.look({ pick: sha }),
    },
    {
      id: "state",
      group: "Time",
      title: "The state at this moment",
      why: moment === null ? NOWHERE : null,
      run: ask({ kind: "state", moment }),
    },
    { id: "here", group: "Time", title: "Go back to this moment…", key: "g", why, run: ask({ kind: "rollback", target: { sha } }) },
    { id: "branch", group: "Time", title: "Branch from this moment…", key: "b", why, run: ask({ kind: "branch", sha }) },
    { id: "pin", group: "Time", title: "Pin and name this moment…", key: "p", why, run: ask({ kind: "pin", sha }) },
  ];
}

/** @returns {Command[]} */
function views(/** @type {import("./session.js").Session} */ session) {
  const show = (/** @type {Partial<import("./session.js").Looks>} */ looks) => () =>
    session.look(looks);
  return [
    {
      id: "show",
      group: "View",
      title: "Show the step that runs or has failed",
      key: "Enter",
      run: show({ step: standingOf(session.store).followed, tab: "transcript", moment: null, compare: null }),
    },
    { id: "down", group: "View", title: "Next step", key: "j", run: () => stepBy(session, 1) },
    { id: "up", group: "View", title: "Previous step", key: "k", run: () => stepBy(session, -1) },
    ...[...TABS, ...at("tabs").map(({ name }) => name)].map((tab, place) => ({
      id: tab,
      group: "View",
      title: `${tab[0].toUpperCase()}${tab.slice(1)} of the step`,
      key: `${place + 1}`,
      run: show({ tab }),
    })),
    {
      id: "search",
      group: "View",
      title: "Search here",
      key: "/",
      run: () => {
        // A view without a search of its own leaves it to the events.
        const own = ["find", "search"].find((id) => document.getElementById(id) !== null);
        if (own === undefined) session.look({ tab: "events" });
        focus(own ?? "search");
      },
    },
    { id: "filter", group: "View", title: "Filter the steps", key: "f", run: () => focus("filter") },
    { id: "cost", group: "View", title: "Cost", key: "$", run: show({ dialog: { kind: "cost" } }) },
    {
      id: "scheme",
      group: "Page",
      title: `Colours: ${schemeOf()}; change`,
      run: () => session.say(`Colours: ${turnScheme()}.`),
    },
    {
      id: "notify",
      group: "Page",
      title: areNotificationsOn() ? "Stop notifying me" : "Notify me when it needs me",
      run: async () => session.say(await turnNotifications()),
    },
    { id: "help", group: "Page", title: "Keys", key: "?", run: show({ dialog: { kind: "help" } }) },
  ];
}

/** @param {string} id */
const focus = (id) => requestAnimationFrame(() => document.getElementById(id)?.focus());

/** @param {import("./session.js").Session} session @param {number} by */
function stepBy(session, by) {
  const { state } = session.store;
  const ids = state.executionPlan.map((/** @type {any} */ entry) => entry.codonId);
  const at = ids.indexOf(stepOf(session.store, session.looks));
  const next = ids[Math.min(ids.length - 1, Math.max(0, at + by))];
  if (next !== undefined) session.look({ step: next, moment: null, compare: null }, { isStep: session.looks.step !== null });
}

/**
 * From now, one step back is the newest checkpoint; from there, one forward is now.
 * @param {import("./session.js").Session} session @param {1 | -1} by
 */
function step(session, by) {
  const { store, looks } = session;
  const past = pastOf(store, looks.moment);
  const at = past === null ? store.checkpoints.length : past.at;
  const isBeside = past !== null && past.record === null; // Of one that is gone: `at` is the one before it.
  const sha = past === null && by < 0 ? nowSha(store, store.checkpoints) : null;
  const next = store.bySha.get(sha) ?? store.checkpoints[isBeside && by < 0 ? at : at + by];
  if (next !== undefined) session.look({ moment: { sha: next.sha }, step: null }, { isStep: past !== null });
  else if (by < 0) session.say(past === null ? "There is no checkpoint yet." : "This is the first checkpoint.");
  else if (past === null) session.say("This is the present: [ goes back in time.");
  else session.look({ moment: null, step: null });
}
