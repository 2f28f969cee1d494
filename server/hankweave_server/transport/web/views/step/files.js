/** The files as a step left them. */
import { html, useState } from "../../dom.js";
import { Empty } from "../../parts/basics.js";
import { Trouble } from "../../parts/dialog.js";
import { useAnswer } from "../../parts/hooks.js";
import { FileTree } from "../file-tree.js";

const LIMIT = 1_000;

/** @param {{session: import("../../session.js").Session, records: any[]}} props */
export function StepFiles({ session, records }) {
  const newest = records.at(-1)?.sha ?? null;
  const [sha, setSha] = useState(newest);
  const shown = sha ?? newest;
  const view = useAnswer(
    async () => (shown === null ? null : session.ask("replay.view", { checkpointSha: shown, limit: LIMIT })),
    [shown],
  );
  if (view.error) return html`<${Trouble} error=${view.error} />`;
  if (shown === null) return html`<${Empty}>There is no checkpoint of this step yet.<//>`;
  if (view.data === null) return html`<${Empty}>Reading …<//>`;
  return html`
    ${newest !== shown && html`<p class="hint bar">The step has gone on. <button type="button" class="link" onClick=${() => setSha(newest)}>Show the newest files</button></p>`}
    <${FileTree} key=${shown} session=${session} view=${view.data} where=${{ checkpointSha: shown }} sha=${shown} />`;
}
