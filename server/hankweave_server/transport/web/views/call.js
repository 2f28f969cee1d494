/** A call of a tool, before it is made: in words, and what it would change, as a difference. */
import { useMemo } from "../dom.js";
import { callText, clipped, inTree, laidOut, unmasked } from "../format.js";
import { nowSha } from "../moments.js";
import { useAnswer } from "../parts/hooks.js";
import { countLines, editOf, linesBetween } from "../parts/lines.js";

const LONGEST = 200_000; // Bytes of a file that is compared.

/**
 * @param {import("../session.js").Session} session
 * @param {{toolName: string, toolInput: any}} call
 * @returns {{verb: string, object: string, delta: {added: number, removed: number} | null,
 *   lines: import("../parts/lines.js").Line[] | null, detail: string}}
 */
export function useCall(session, { toolName, toolInput }) {
  const { store } = session;
  const root = store.server?.agentRootPath;
  const sha = nowSha(store, store.checkpoints);
  const edit = useMemo(() => editOf(toolInput), [toolInput]);
  const isWhole = edit?.parts.some((part) => part.before === null) ?? false;
  const present = useAnswer(
    async () => (isWhole && edit ? contentOf(session, sha, inTree(edit.path, root)) : ""),
    [toolInput, sha === null],
  );
  const before = present.data;
  return useMemo(() => {
    if (edit !== null) {
      const lines = edit.parts.flatMap((part) => linesBetween(part.before ?? before ?? "", part.after));
      const verb = isWhole ? "write" : "edit";
      return { verb, object: edit.path, delta: countLines(lines), lines, detail: "" };
    }
    const object = callText(toolInput, root);
    if (typeof toolInput?.command === "string") {
      const [first, ...others] = toolInput.command.trim().split("\n");
      const shown = others.length > 0 ? `${first} …` : first;
      return { verb: "run", object: brief(shown), delta: null, lines: null, detail: `$ ${unmasked(toolInput.command)}` };
    }
    return { verb: `call ${toolName} with`, object: brief(object), delta: null, lines: null, detail: clipped(laidOut(toolInput ?? {})) };
  }, [toolInput, before, root]);
}

/** @param {string} text */
const brief = (text) => (text.length > 80 ? `${text.slice(0, 80)}…` : text);

/**
 * A file as a checkpoint has it; empty where it has none, or no text.
 * @param {import("../session.js").Session} session @param {string | null} sha @param {string} path
 */
async function contentOf(session, sha, path) {
  if (sha === null) return "";
  try {
    const wanted = { checkpointSha: sha, path, offset: 0, length: LONGEST };
    const file = await session.ask("checkpoint.readFile", wanted);
    return file.encoding === "utf-8" ? file.content : "";
  } catch {
    return ""; // It is new.
  }
}
