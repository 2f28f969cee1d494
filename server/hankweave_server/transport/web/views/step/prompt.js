/** The prompt of a step. */
import { html } from "../../dom.js";
import { plural, visible } from "../../format.js";
import { Dialog, Trouble } from "../../parts/dialog.js";
import { useAnswer } from "../../parts/hooks.js";
import { titleOfCodon } from "../../standing.js";
import { Words } from "./words.js";

/** @param {{session: import("../../session.js").Session, codonId: string, onClose: () => void}} props */
export function PromptDialog({ session, codonId, onClose }) {
  const { data, error } = useAnswer(() => session.ask("codon.readPrompt", { codonId }), [codonId]);
  return html`<${Dialog} title=${`Prompt of ${visible(titleOfCodon(session.store.state, codonId))}`} onClose=${onClose} wide=${true}>
    <${Trouble} error=${error} />
    ${data === null && !error && html`<p class="empty">Reading …</p>`}
    ${data && html`
      <div class="prompt" tabindex="0" role="region" aria-label="Prompt"><${Words} text=${data.text} /></div>
      ${data.size > data.text.length && html`<p class="hint">and ${plural(data.size - data.text.length, "more character")}</p>`}
      ${data.systemPrompt && html`
        <details>
          <summary>What is appended to the agent's system prompt</summary>
          <div class="prompt" tabindex="0" role="region" aria-label="System prompt"><${Words} text=${data.systemPrompt} /></div>
        </details>`}`}
  <//>`;
}
