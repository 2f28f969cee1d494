/** What the agent says and does. */
import { html, useState } from "../dom.js";
import { callText, clipped, laidOut, time, unmasked, visible } from "../format.js";
import { FlowList } from "../parts/flow-list.js";

/** @param {{session: import("../session.js").Session, step: string | null}} props `step`: of which, or of all. */
export function Feed({ session, step }) {
  const { store } = session;
  const entries =
    step === null ? store.feed.entries : store.feed.entries.filter((each) => each.codonId === step);
  if (entries.length === 0)
    return html`
      <p class="empty">
        ${store.isLoaded ? "No agent has said anything yet." : "Reading …"}
      </p>`;
  return html`<${FlowList}
    key=${step}
    entries=${entries}
    version=${store.version}
    label="What the agent says and does"
    entry=${(entry) => html`<${Entry} entry=${entry} root=${store.server?.agentRootPath} />`}
  />`;
}

const SIGNS = {
  words: "",
  thought: "thinks",
  output: "prints",
  rig: "rig",
  note: "",
  bad: "failed",
  sentinel: "sentinel",
  travel: "time",
};

function Entry({ entry, root }) {
  const who = html`<div class="meta">
    <time datetime=${entry.timestamp}>${time(entry.timestamp)}</time>
    ${entry.codonId && html`<span class="by">${visible(entry.codonId)}</span>`}
    ${SIGNS[entry.kind] && html`
      <span class="sort">
        ${SIGNS[entry.kind]}${entry.tool && entry.kind !== "tool" ? ` ${visible(entry.tool)}` : ""}
      </span>`}
  </div>`;
  if (entry.kind === "tool")
    return html`
      <article class=${entry.isError ? "entry e-tool e-failed" : "entry e-tool"}>
        ${who}<${ToolCall} entry=${entry} root=${root} />
      </article>`;

  return html`
    <article class=${`entry e-${entry.kind}`}>
      ${who}<div class="text">${unmasked(entry.text)}</div>
    </article>`;
}

function ToolCall({ entry, root }) {
  const { tool, input, result, isError, cut, external } = entry;
  const outcome = result === null ? "runs" : isError ? "failed" : "done";
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>
      <span class="tool-name">
        ${visible(tool ?? "tool")}
      </span> <code>${visible(callText(input, root))}</code>
      <span class=${`outcome o-${outcome}`}>${outcome}${external ? ", outside" : ""}</span>
    </summary>
    ${isOpen && input && html`<pre tabindex="0" aria-label="Input">${clipped(laidOut(input))}</pre>`}
    ${isOpen && result !== null && html`
      <pre tabindex="0" aria-label="Result">
        ${unmasked(result || "(no output)")}${cut ? "\n… (the journal contains no more)" : ""}
      </pre>`}
  </details>`;
}
