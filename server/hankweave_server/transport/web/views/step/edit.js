/** A call that writes files, as the difference that it makes, and the way back to it. */
import { html } from "../../dom.js";
import { inTree, visible } from "../../format.js";
import { At, Delta } from "../../parts/basics.js";
import { useAnswer } from "../../parts/hooks.js";
import { Lines, countLines, editOf, linesBetween } from "../../parts/lines.js";

const SETTLED = 150; // Milliseconds that a call must be seen before the former content is read.
const LARGEST = 200_000; // Bytes of a file that are compared.
const KEPT = 200;

/** @type {Map<string, Promise<string | null>>} the former content of files, by call */
const former = new Map();

/**
 * The parts that a call replaces; null for one that writes no file.
 * @param {any} data of `assistant.action` or `permission.requested`
 */
export function changeOf({ toolName, toolInput }) {
  if (typeof toolInput?.new_source === "string")
    return {
      path: toolInput.notebook_path ?? "",
      parts: [{ before: "", after: toolInput.edit_mode === "delete" ? "" : toolInput.new_source }],
    };
  return /^(Read|Grep|Glob|LS)$/.test(toolName ?? "") ? null : editOf(toolInput);
}

/**
 * What a file held before a call, as the newest checkpoint before it has it; "" for a new one, null
 * where nobody knows.
 * @param {import("../../session.js").Session} session @param {any} event @param {string} path
 */
async function contentBefore(session, event, path) {
  const { store } = session;
  const record = store.checkpoints.findLast((each) => each.seq < event.seq);
  const name = inTree(path, store.server?.agentRootPath);
  if (record === undefined || name.startsWith("/")) return null;

  try {
    const file = await session.ask("checkpoint.readFile", {
      checkpointSha: record.sha,
      path: name,
      offset: 0,
      length: LARGEST,
    });
    return file.encoding === "utf-8" && file.nextOffset === undefined ? file.content : null;
  } catch (error) {
    return /** @type {any} */ (error).code === "INVALID_PATH" ? "" : null;
  }
}

function knownBefore(session, event, path) {
  const key = `${session.store.execution} ${event.seq} ${session.store.checkpoints.length > 0}`;
  if (!former.has(key)) {
    if (former.size > KEPT) former.clear();
    former.set(key, contentBefore(session, event, path));
  }
  return /** @type {Promise<string | null>} */ (former.get(key));
}

/**
 * The lines of a call, and how many of them come and go.
 * @param {import("../../session.js").Session} session
 * @param {import("../../blocks.js").Call} call
 */
export function useChange(session, call) {
  const change = changeOf(call.event.data);
  const isWhole = change?.parts.some(({ before }) => before === null) ?? false;
  const old = useAnswer(
    () => (change !== null && isWhole ? knownBefore(session, call.event, change.path) : Promise.resolve(null)),
    [call.event.seq, session.store.areAllCheckpoints],
    isWhole ? SETTLED : 0,
  );
  if (change === null) return null;

  const lines = change.parts.map(({ before, after }) =>
    linesBetween(before ?? old.data ?? "", after, firstLine(call, after)),
  );
  const counts = lines.map(countLines);
  return {
    path: inTree(change.path, session.store.server?.agentRootPath),
    lines: lines.flatMap((part, at) => (at > 0 ? [{ kind: /** @type {"gap"} */ ("gap"), number: null, text: "" }, ...part] : part)),
    added: counts.reduce((sum, each) => sum + each.added, 0),
    removed: counts.reduce((sum, each) => sum + each.removed, 0),
    isNew: isWhole && old.data === "",
  };
}

const NUMBERED = /^\s*(\d+)[→\t](.*)$/;

/** Where an edit stands in its file: results of some agents show the lines with their numbers. */
function firstLine({ result }, after) {
  const [wanted] = after.split("\n");
  for (const line of (result?.data.result ?? "").split("\n")) {
    const found = line.match(NUMBERED);
    if (found !== null && found[2] === wanted) return Number(found[1]);
  }
  return 1;
}

/** Name, path and numbers. @param {{tool: string, change: any}} props */
export function ChangeTitle({ tool, change }) {
  return html`<span class="tool-name">${visible(tool)}</span>
    <code>${visible(change.path)}</code>
    ${change.isNew ? html`<span class="plus">new</span>` : html`<${Delta} added=${change.added} removed=${change.removed} />`}`;
}

/** @param {{change: any}} props */
export function ChangeLines({ change }) {
  if (change.lines.length === 0) return html`<p class="hint quiet">no line differs</p>`;
  return html`<${Lines} lines=${change.lines} label=${`What changes in ${visible(change.path)}`} />`;
}

/**
 * When it was, and the way back to the first checkpoint that has it.
 * @param {{session: import("../../session.js").Session, call: import("../../blocks.js").Call}} props
 */
export function BackToHere({ session, call }) {
  const { event, result } = call;
  const back = () => {
    const found = session.store.firstCheckpointAfter(result?.seq ?? event.seq);
    if (found === null) session.say("No checkpoint has this change yet.");
    else session.look({ dialog: { kind: "rollback", target: { sha: found.sha } } });
  };
  return html`<span class="aside">
    <${At} at=${event.timestamp} />
    ${result !== null && !result.data.isError && html`<button type="button" class="link" onClick=${back}>back to here</button>`}
  </span>`;
}
