/** The question before an attempt is discarded. */
import { html } from "../dom.js";
import { visible } from "../format.js";
import { Dialog } from "../parts/dialog.js";
import { Form } from "./dialogs.js";

/** @param {{session: import("../session.js").Session, exploration: any, attempt: any, onClose: () => void}} props */
export function DiscardDialog({ session, exploration: { explorationId }, attempt: { attemptId, checkpointSha }, onClose }) {
  return html`<${Dialog} title=${`Discard attempt ${visible(attemptId)}`} onClose=${onClose}>
    <${Form}
      session=${session}
      type="exploration.discard"
      verb="Discard it"
      onClose=${onClose}
      onDone=${() => session.look({ dialog: null, note: `Attempt ${attemptId} is discarded.` })}
      data=${() => ({ explorationId, attemptId })}
    >
      <p>
        Its agent is stopped if it still runs, and its execution is removed from the disk. ${checkpointSha ? "Its result stays in the history of this one until that is pruned." : "It has left no result yet."}
      </p>
    <//>
  <//>`;
}
