/** The plan as it was at a moment: its steps in their order, with what had become of each. */
import { html, useState } from "../dom.js";
import { clockSpan, count, price, visible } from "../format.js";
import { Icon } from "../parts/icon.js";
import { statusOf, titleOfCodon, took } from "../standing.js";
import { costOf, isActive, thread } from "../state.js";

const AT_ONCE = 200;

/** @param {{state: any, at: number}} props `at`: when it was so. */
export function Plan({ state, at }) {
  const ran = new Map(thread(state).map((codon) => [codon.codonId, codon]));
  const [shown, setShown] = useState(AT_ONCE);
  const plan = state.executionPlan;
  if (plan.length === 0)
    return html`<p class="empty">There was no plan: checkpoints are taken on request.</p>`;

  return html`<ol class="codons" aria-label="Steps in order">
    ${plan.slice(0, shown).map((entry) => {
      const codon = ran.get(entry.codonId);
      return html`<li
        key=${entry.codonId}
        class="codon line-row"
        aria-current=${codon && isActive(codon) ? "step" : undefined}
      >
        <${Icon} name=${statusOf(codon)} />
        <span class="name" title=${entry.codonId}>${visible(titleOfCodon(state, entry.codonId))}</span>
        <span class="status">${codon?.reused ? "reused" : (codon?.status ?? "not started")}</span>
        ${codon && html`
          <span class="figure">${clockSpan(took(codon, at))}</span>
          <span class="figure">${price(costOf(codon))}</span>`}
      </li>`;
    })}
    ${plan.length > shown && html`
      <li>
        <button onClick=${() => setShown(shown + AT_ONCE)}>${count(plan.length - shown)} after these</button>
      </li>`}
  </ol>`;
}
