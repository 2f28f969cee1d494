/** The dialog that is open, if any. */
import { html, useState } from "../dom.js";
import { brief, visible } from "../format.js";
import { titleOf } from "../kinds.js";
import { Dialog, Obstacle, Trouble } from "../parts/dialog.js";
import { useOpen } from "../parts/hooks.js";
import { at } from "../places.js";
import { titleOfCodon } from "../standing.js";
import { CostView } from "./cost.js";
import { DECISIONS } from "./decisions.js";
import { EventDialog } from "./event-dialog.js";
import { HelpDialog } from "./keys.js";
import { quoted } from "./new-run.js";
import { Palette } from "./palette.js";
import { StateDialog } from "./state-dialog.js";
import { PromptDialog } from "./step/prompt.js";

/** @param {{session: import("../session.js").Session, dialog: any}} props */
export function Dialogs({ session, dialog }) {
  if (dialog === null || DECISIONS.includes(dialog.kind)) return null;

  const close = () => session.look({ dialog: null });
  const joined = at("dialogs").find(({ kind }) => kind === dialog.kind);
  if (joined !== undefined) return html`<${joined.view} ...${dialog} session=${session} onClose=${close} />`;

  switch (dialog.kind) {
    case "event":
      return html`
        <${EventDialog}
          key=${dialog.event.seq}
          session=${session}
          event=${dialog.event}
          onClose=${close}
        />`;
    case "help":
      return html`<${HelpDialog} session=${session} onClose=${close} />`;
    case "state":
      return html`<${StateDialog} session=${session} moment=${dialog.moment} onClose=${close} />`;
    case "prompt":
      return html`<${PromptDialog} session=${session} codonId=${dialog.codonId} onClose=${close} />`;
    case "palette":
      return html`<${Palette} session=${session} onClose=${close} />`;
    case "cost":
      return html`<${Dialog} title="Cost" onClose=${close} wide=${true}>
        <${CostView} session=${session} />
      <//>`;
    case "deny":
      return html`<${DenyDialog} session=${session} asked=${dialog.asked} onClose=${close} />`;
    case "always":
      return html`<${AlwaysDialog} session=${session} asked=${dialog.asked} onClose=${close} />`;
    case "branch":
      return html`<${BranchDialog} session=${session} sha=${dialog.sha} onClose=${close} />`;
    case "pin":
      return html`<${PinDialog} session=${session} sha=${dialog.sha} onClose=${close} />`;
    case "checkpoint":
      return html`<${CheckpointDialog} session=${session} onClose=${close} />`;
    case "skip":
      return html`<${EndDialog} session=${session} codonId=${dialog.codonId} onClose=${close} title="Skip the step" verb="Skip it"
        says="its agent is stopped, the step ends as skipped, and the plan continues. A checkpoint keeps what it wrote."
        type="codon.skip" done="The step was skipped." />`;
    default:
      return html`<${EndDialog} session=${session} codonId=${dialog.codonId} onClose=${close} title="Stop the step" verb="Stop it" hasReason=${true}
        says="its agent is killed, the step ends as failed, and the server waits. A checkpoint keeps what it wrote."
        type="codon.forceStop" done="The step was stopped." />`;
  }
}

/** A form that sends one command; it stays open, and says why, where that is refused. */
export function Form({ session, type, data, verb, onDone, onClose, children }) {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [guard] = useState(session.guard); // Of when it was opened: that is what was looked at.
  const isOpen = useOpen();
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (session.obstacle !== null) return;

    setBusy(true);
    setError(null);
    try {
      const answer = await session.ask(type, { ...guard, ...data() });
      if (isOpen.current) onDone(answer);
      else session.say("The action of the dialog is complete.");
    } catch (failure) {
      if (!isOpen.current) session.say(/** @type {Error} */ (failure).message);
      setError(failure);
      setBusy(false);
    }
  };
  return html`<form onSubmit=${send}>
    ${children}
    <${Trouble} error=${error} />
    <${Obstacle} session=${session} isBusy=${isBusy} />
    <footer>
      <button type="button" onClick=${onClose}>Cancel</button>
      <button
        type="submit"
        class="main"
        disabled=${isBusy}
        aria-disabled=${session.obstacle !== null}
      >${isBusy ? "Working …" : verb}</button>
    </footer>
  </form>`;
}

function EndDialog({
  session,
  codonId,
  title,
  says,
  verb,
  type,
  done,
  hasReason = false,
  onClose,
}) {
  const [reason, setReason] = useState("");
  const finish = () => {
    session.look({ dialog: null, note: done });
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <${Form}
      session=${session}
      type=${type}
      verb=${verb}
      onClose=${onClose}
      onDone=${finish}
      data=${() => (reason ? { reason } : {})}
    >
      <p><strong>${visible(titleOfCodon(session.store.state, codonId))}</strong>: ${says}</p>
      ${hasReason && html`
        <label>
          Reason (optional) <input value=${reason} onInput=${(event) => setReason(event.target.value)} />
        </label>`}
    <//>
  <//>`;
}

function DenyDialog({ session, asked, onClose }) {
  const [message, setMessage] = useState("");
  const { requestId, codonId, toolName } = asked;
  return html`<${Dialog} title=${`Deny ${visible(toolName)}`} onClose=${onClose}>
    <${Form}
      session=${session}
      type="permission.answer"
      verb="Deny"
      onClose=${onClose}
      onDone=${() => session.look({ dialog: null, note: "Denied." })}
      data=${() => ({ requestId, decision: "deny", ...(message ? { message } : {}) })}
    >
      <p>
        The call is not made, and <strong>${visible(titleOfCodon(session.store.state, codonId))}</strong> goes on without it.
      </p>
      <label>
        Reason (optional; the agent is told) <input autofocus value=${message} onInput=${(event) => setMessage(event.target.value)} />
      </label>
    <//>
  <//>`;
}

/** Allows the call, and others like it from now on: the rule can be changed before it holds. */
function AlwaysDialog({ session, asked, onClose }) {
  const { requestId, toolName, suggestion = null } = asked;
  const [rule, setRule] = useState(suggestion ?? "");
  return html`<${Dialog} title=${`Always allow ${visible(toolName)}`} onClose=${onClose}>
    <${Form}
      session=${session}
      type="permission.answer"
      verb="Allow"
      onClose=${onClose}
      onDone=${() => session.look({ dialog: null, note: `Allowed, and always for ${visible(rule)}.` })}
      data=${() => ({ requestId, decision: "allow", always: rule })}
    >
      <p>
        This call is allowed, and so is each one that the rule fits, until this execution ends. <code>*</code> stands for anything up to the next folder, <code>**</code> for any folders.
      </p>
      <label>
        Rule <input autofocus required maxlength="2000" placeholder="Write(out/**)" value=${rule} onInput=${(event) => setRule(event.target.value)} />
      </label>
    <//>
  <//>`;
}

function CheckpointDialog({ session, onClose }) {
  const [label, setLabel] = useState("");
  return html`<${Dialog} title="Take a checkpoint" onClose=${onClose}>
    <${Form} session=${session} type="checkpoint.create" verb="Take it" onClose=${onClose} data=${() => (label ? { label } : {})}
      onDone=${(record) => session.look({ dialog: null, note: `Checkpoint ${brief(record.sha)} was taken.` })}>
      <p>This saves all tracked files as they are now, so that you can return to them later.</p>
      <label>
        Label (optional) <input value=${label} maxlength="200" onInput=${(event) => setLabel(event.target.value)} />
      </label>
    <//>
  <//>`;
}

/** What a checkpoint is called, and in which step it is. */
function nameOf(/** @type {import("../store.js").Store} */ { bySha, state }, /** @type {string} */ sha) {
  const record = bySha.get(sha);
  if (record === undefined) return brief(sha);
  return visible(`${titleOf(record)}${record.codonId ? ` in ${titleOfCodon(state, record.codonId)}` : ""}`);
}

function PinDialog({ session, sha, onClose }) {
  const record = session.store.bySha.get(sha);
  const [isPinned, setPinned] = useState(true);
  const [name, setName] = useState(record?.name ?? "");
  const data = () => ({
    checkpointSha: sha,
    pinned: isPinned,
    ...(isPinned && name ? { name } : {}),
  });
  return html`<${Dialog} title=${`Pin ${nameOf(session.store, sha)}`} onClose=${onClose}>
    <${Form} session=${session} type="checkpoint.pin" verb="Save" onClose=${onClose} data=${data}
      onDone=${() => session.look({ dialog: null, note: isPinned ? "The checkpoint will be kept." : "The checkpoint can be pruned again." })}>
      <p>A pinned checkpoint is never pruned. Its name is shown wherever the checkpoint is.</p>
      <label>
        <input
          type="checkbox"
          checked=${isPinned}
          onChange=${(event) => setPinned(event.target.checked)}
        /> Pinned
      </label>
      <label>
        Name <input value=${name} maxlength="200" disabled=${!isPinned} onInput=${(event) => setName(event.target.value)} />
      </label>
    <//>
  <//>`;
}

function BranchDialog({ session, sha, onClose }) {
  const [path, setPath] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  if (made !== null) {
    return html`<${Dialog} title="The branch was created" onClose=${onClose}>
      <p>A new execution starts at checkpoint ${brief(sha)}. This one has not changed.</p>
      <pre tabindex="0" aria-label="Directory of the branch">${made.executionPath}</pre>
      <p>Continue there with:</p>
      <pre tabindex="0" aria-label="How to run it">
        hankweave run --execution ${quoted(made.executionPath)}
      </pre>
      <footer><button class="main" onClick=${onClose}>Close</button></footer>
    <//>`;
  }
  return html`<${Dialog} title=${`Branch from ${nameOf(session.store, sha)}`} onClose=${onClose}>
    <${Form} session=${session} type="execution.branch" verb="Create the branch" onClose=${onClose} onDone=${setMade}
      data=${() => ({ checkpointSha: sha, ...(path ? { path } : {}) })}>
      <p>
        A new execution starts at this checkpoint, in its own directory; this one stays unchanged and continues.
      </p>
      <label>
        Directory (optional; an absolute path, empty or not existing yet) <input value=${path} placeholder="next to this execution" onInput=${(event) => setPath(event.target.value)} />
      </label>
    <//>
  <//>`;
}
