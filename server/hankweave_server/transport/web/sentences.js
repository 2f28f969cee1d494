/** What events say, in plain words and one line each; a call and its result are one. */
import { answered, ending, travelled } from "./blocks.js";
import { bytes, callText, count, dollars, visible } from "./format.js";
import { kindOf, titleOf } from "./kinds.js";

const LONGEST = 240;

/** Words in one line: what would break it is a space. @param {any} text */
export function oneLine(text) {
  const words = typeof text === "string" ? text : JSON.stringify(text ?? "");
  return visible(words.slice(0, 4 * LONGEST).replace(/\s+/g, " ").trim()).slice(0, LONGEST);
}

/** @typedef {{event: any, result: any}} Row `event` is the call where `result` is its result. */

/**
 * Events as rows, in their order, newest first: a result comes before its call, and takes it along.
 * @param {any[]} events newest first
 * @returns {Row[]}
 */
export function paired(events) {
  const results = new Map();
  /** @type {Row[]} */
  const rows = [];
  for (const event of events) {
    const { type, data } = event;
    if (type === "tool.result") {
      const row = { event, result: event };
      results.set(data.toolUseId, row);
      rows.push(row);
    } else if (data.action === "tool_use" && results.has(data.toolUseId)) {
      results.get(data.toolUseId).event = event;
      results.delete(data.toolUseId);
    } else {
      rows.push({ event, result: null });
    }
  }
  return rows;
}

/**
 * @param {Row} row @param {string} [root] of the work tree
 * @returns {{what: string, words: string, role: string}} `role` is "bad" for what went wrong.
 */
export function sentenceOf({ event, result }, root) {
  if (result !== null) {
    const { toolName, isError, executionTimeMs, result: text } = result.data;
    const given = callText(event.data.toolInput, root);
    const came = `${isError ? "failed" : "done"} in ${(executionTimeMs / 1000).toFixed(1)} s`;
    return say(toolName, [given, came, text], isError ? "bad" : "");
  }

  const { type, data } = event;
  switch (type) {
    case "assistant.action":
      if (data.action === "tool_use")
        return say(data.toolName, [callText(data.toolInput, root)]);
      return say(data.action === "thinking" ? "Thought" : "Message", [data.content]);
    case "state.transition":
      return changed(data.transition);
    case "token.usage":
      return say("Tokens", [
        `${count(data.inputTokens ?? 0)} read, ${count(data.outputTokens ?? 0)} written`,
        data.totalCost === undefined ? "" : dollars(data.totalCost),
      ]);
    case "file.updated":
      return say("File", [`${data.path} ${data.action}`, by(data.source)], role(data.source));
    case "files.changed":
      return say("Files", [`${data.total} changed at once`, by(data.source)], role(data.source));
    case "agent.output":
    case "rig.output":
      return say(type === "rig.output" ? "Rig" : "Output", [data.line]);
    case "budget.summary": {
      const { actualDollars, budgetDollars } = data.totals;
      return say("Budget", [`${dollars(actualDollars)} used${budgetDollars == null ? "" : ` of ${dollars(budgetDollars)}`}`]);
    }
    case "codon.started":
      return say("Started", [data.codonName]);
    case "codon.completed":
      return say("Ended", [ending(data)], data.success || data.skipped ? "" : "bad");
    case "permission.requested":
      return say("Asks", [`${data.toolName} ${callText(data.toolInput, root)}`, data.reason], "wait");
    case "permission.resolved":
      return say("Answer", [answered(data)]);
    case "check.completed":
      return say("Check", [
        `${data.command} ${data.passed ? "passed" : "failed"}`,
        data.message,
      ], data.passed || data.ignored ? "" : "bad");
    case "sentinel.output":
      return say("Sentinel", [data.sentinelId, data.content]);
    case "rollback.completed":
    case "checkpoint.rollback":
      return say("Rollback", [travelled(data, data.report)], "wait");
    case "store.consolidated":
      return say("Store", [`packed, ${bytes(data.bytesAfter)}`]);
    case "error":
    case "rollback.failed":
    case "rig.setup.failed":
    case "sentinel.error":
    case "codon.warning":
      return say(plain(type), [data.message ?? data.failureType], "bad");
    default:
      return say(plain(type), [
        data.message ?? data.text ?? data.reason ?? data.path ?? data.label ?? data.name ?? "",
      ]);
  }
}

/** @param {string} what @param {any[]} words @param {string} [role] */
function say(what, words, role = "") {
  const told = words.filter((each) => each !== "" && each !== null && each !== undefined);
  return { what: oneLine(what), words: told.map(oneLine).join(" · ").slice(0, LONGEST), role };
}

const by = (source) => ({ person: "by hand", rig: "by the rig" })[source?.kind] ?? "";
const role = (source) => (source?.kind === "person" ? "person" : "");

/** "codon.retrying" as "Step retrying". @param {string} type */
function plain(type) {
  const words = type.replace(/^codon\./, "step.").replaceAll(".", " ");
  const apart = words.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
  return apart.charAt(0).toUpperCase() + apart.slice(1).toLowerCase();
}

/** @param {{type: string, data: any}} transition */
function changed({ type, data }) {
  switch (type) {
    case "CheckpointCreated": {
      const { checkpoint } = data;
      return say("Checkpoint", [...new Set([titleOf(checkpoint), kindOf(checkpoint.kind).title])]);
    }
    case "CodonStarted":
      return say("Step", [`begins: ${data.codon.status}`]);
    case "CodonTransitioned":
      return say("Step", [data.codon.status], data.codon.status === "failed" ? "bad" : "");
    case "CostsIncremented":
    case "CostsUpdated":
      return say("Cost", [dollars(data.cost ?? 0)]);
    case "RunStarted":
      return say("Run", ["started"]);
    case "RunCompleted":
      return say("Run", ["completed"]);
    case "RunFailed":
    case "RunCrashed":
      return say("Run", [type === "RunFailed" ? "failed" : "crashed"], "bad");
    default:
      return say("State", [plain(type)]);
  }
}
