/** One block of a transcript: words, a call as what it does, folded reads, output, a note. */
import { foldedTime, foldedWords, isThought, ruled, stateOf } from "../../blocks.js";
import { html, useEffect, useState } from "../../dom.js";
import { callText, laidOut, moment, time, unmasked, visible } from "../../format.js";
import { At } from "../../parts/basics.js";
import { Icon } from "../../parts/icon.js";
import { BackToHere, ChangeLines, ChangeTitle, changeOf, useChange } from "./edit.js";
import { Lines, Output, Printed } from "./output.js";
import { Words } from "./words.js";

const ICONS = { done: "done", failed: "failed", running: "running", waiting: "waiting", lost: "minus" };
const WORDS = { running: "runs", waiting: "waits for you", lost: "no result" };
const SHORT = 120; // Characters of an input that the head of a call shows whole.
const QUICK = 100; // Milliseconds of a call whose time nobody asks for.
const NOTES = { good: "done", bad: "failed", wait: "waiting", person: "dot", travel: "undo" };

/**
 * @typedef {{session: import("../../session.js").Session, block: import("../../blocks.js").Block,
 *   runs: boolean, isFound: boolean, isLast: boolean}} Props
 *   `runs`: its step still does; `isFound`: it has what was searched for.
 */

/** @param {Props} props */
export function Block(props) {
  const { block, isFound } = props;
  return html`<article class=${`block b-${block.kind}${isFound ? " found" : ""}`}>
    <${KINDS[block.kind] ?? Note} ...${props} />
  </article>`;
}

/** @param {Props} props */
function Said({ block, runs, isLast }) {
  return html`<${Words} text=${block.text} isLast=${runs && isLast} />`;
}

/** @param {Props} props */
function Note({ block }) {
  const { role = "", text, timestamp } = block;
  return html`<p class=${`note-line r-${role || "plain"}`}>
    ${NOTES[role] && html`<${Icon} name=${NOTES[role]} />`}
    <span>${unmasked(text)}</span>
    <${At} at=${timestamp} />
  </p>`;
}

/** @param {Props} props */
function Sentinel({ block }) {
  const { name, content } = block;
  const text = typeof content === "string" ? content : JSON.stringify(content);
  return html`<div class="tool">
    <header>
      <span class="tool-name">Sentinel</span> <code>${visible(name ?? "")}</code>
      <span class="aside"><${At} at=${block.timestamp} /></span>
    </header>
    <div class="inside"><${Words} text=${text} /></div>
  </div>`;
}

/** @param {Props} props */
function Program({ block }) {
  const name = block.kind === "rig" ? "Rig" : "Output";
  return html`<div class="tool">
    <header>
      <span class="tool-name">${name}</span>
      <span class="aside"><${At} at=${block.timestamp} /></span>
    </header>
    <div class="inside"><${Lines} lines=${block.lines ?? []} label=${name} /></div>
  </div>`;
}

/** Whether something is open: at first where it has what was searched for. @param {boolean} isFound */
function useOpen(isFound) {
  const [isOpen, setOpen] = useState(isFound);
  useEffect(() => {
    if (isFound) setOpen(true);
  }, [isFound]);
  return /** @type {const} */ ([isOpen, () => setOpen(!isOpen)]);
}

/** Reads and searches, in one line. @param {Props} props */
function Folded({ session, block, runs, isFound }) {
  const [isOpen, turn] = useOpen(isFound);
  const parts = block.parts ?? [];
  const failed = parts.filter((part) => part.result?.data.isError).length;
  const works = runs && parts.some((part) => !isThought(part) && part.result === null);
  const ms = foldedTime(block);
  const [first] = parts;
  const isOneThought = parts.length === 1 && isThought(first);
  return html`<div class="folded">
    <button type="button" class="link fold-line" aria-expanded=${isOpen} onClick=${turn}>
      <${Icon} name=${works ? "running" : isOpen ? "unfolded" : "folded"} />
      <span>${foldedWords(block)}</span>
      ${isOneThought && html`<span class="quiet start">${visible(first.data.content.slice(0, 160).replace(/\s+/g, " "))}</span>`}
      ${failed > 0 && html`<span class="minus">${failed} failed</span>`}
      ${ms > 0 && html`<span class="quiet">${seconds(ms)}</span>`}
    </button>
    ${isOpen && html`<ul>
      ${parts.map((part) => html`<li key=${part.event?.seq ?? part.seq}>
        ${isThought(part) ? html`<p class="thought">${unmasked(part.data.content)}</p>` : html`<${Read} session=${session} call=${part} />`}
      </li>`)}
    </ul>`}
  </div>`;
}

function Read({ session, call }) {
  const [isOpen, setOpen] = useState(false);
  const { toolName, toolInput } = call.event.data;
  const isBad = call.result?.data.isError;
  return html`
    <button type="button" class="link read" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span class=${isBad ? "minus" : "quiet"}>${visible(toolName)}</span>
      <code>${visible(callText(toolInput, rootOf(session)))}</code>
      ${isBad && html`<span class="minus">failed</span>`}
    </button>
    ${isOpen && call.result && html`<div class="inside"><${Output} session=${session} result=${call.result} /></div>`}`;
}

const rootOf = (session) => session.store.server?.agentRootPath;
const seconds = (/** @type {number} */ ms) => `${(ms / 1000).toFixed(1)} s`;

/** @param {Props} props */
function Called(props) {
  const call = /** @type {import("../../blocks.js").Call} */ (props.block.call);
  const { toolName, toolInput } = call.event.data;
  const own = { ...props, call };
  if (changeOf(call.event.data) !== null) return html`<${Edit} ...${own} />`;
  if (typeof toolInput?.command === "string") return html`<${Command} ...${own} />`;
  if (toolName === "TodoWrite" && Array.isArray(toolInput?.todos)) return html`<${Todos} ...${own} />`;
  return html`<${Other} ...${own} />`;
}

/**
 * The frame of a call: what became of it, what it is, and what is beside that; `isQuiet`: where a
 * difference says that it is done.
 */
function Tool({ call, runs, title, aside, children, isQuiet = false }) {
  const state = stateOf(call, runs);
  return html`<div class=${`tool t-${state}`}>
    <header>
      ${!(isQuiet && state === "done") && html`<${Icon} name=${ICONS[state]} label=${WORDS[state] ?? state} />`}
      ${title}
      ${aside ?? html`<${Aside} call=${call} state=${state} />`}
    </header>
    ${children}
    <${Permission} call=${call} />
  </div>`;
}

function Aside({ call, state }) {
  const { result, event } = call;
  const ms = result?.data.executionTimeMs ?? 0;
  const isOutside = event.data.external;
  return html`<span class="aside">
    ${isOutside && html`<span title="It may have effects outside the work tree, which no rollback undoes.">outside</span>`}
    ${WORDS[state] ?? html`<time datetime=${event.timestamp} title=${moment(event.timestamp)}>${ms < QUICK ? time(event.timestamp) : seconds(ms)}</time>`}
  </span>`;
}

/** Who allowed it, or why not. */
function Permission({ call: { permission, answer } }) {
  if (permission === null) return null;
  if (answer === null) return permission.data.reason && html`<p class="hint inside">${unmasked(permission.data.reason)}</p>`;

  const text = unmasked(ruled(answer.data));
  return html`<p class="hint inside">${text.charAt(0).toUpperCase() + text.slice(1)}</p>`;
}

function Edit({ session, call, runs }) {
  const change = useChange(session, call);
  const state = stateOf(call, runs);
  const isBad = state === "failed";
  return html`<${Tool}
    call=${call}
    runs=${runs}
    isQuiet=${true}
    title=${html`<${ChangeTitle} tool=${call.event.data.toolName} change=${change} />`}
    aside=${state === "done" || isBad ? html`<${BackToHere} session=${session} call=${call} />` : null}
  >
    <${ChangeLines} change=${change} />
    ${isBad && call.result && html`<div class="inside"><${Output} session=${session} result=${call.result} /></div>`}
  <//>`;
}

function Command({ session, call, runs }) {
  const { command, description } = call.event.data.toolInput;
  const [first, ...rest] = unmasked(command).split("\n");
  return html`<${Tool}
    call=${call}
    runs=${runs}
    title=${html`<span class="tool-name">${visible(call.event.data.toolName ?? "Bash")}</span> <code title=${description && visible(description)}>${first}</code>`}
  >
    ${rest.length > 0 && html`<pre class="command">${rest.join("\n")}</pre>`}
    ${call.result && html`<div class="inside"><${Output} session=${session} result=${call.result} /></div>`}
  <//>`;
}

const BOXES = { completed: "done", in_progress: "running", pending: "todo" };
const BOX_WORDS = { completed: "done", in_progress: "in progress", pending: "to do" };

function Todos({ call, runs }) {
  const { todos } = call.event.data.toolInput;
  const done = todos.filter((each) => each?.status === "completed").length;
  return html`<${Tool} call=${call} runs=${runs} title=${html`<span class="tool-name">Plan</span> <span class="quiet">${done} of ${todos.length} done</span>`}>
    <ul class="todos inside">
      ${todos.map((each, at) => html`<li key=${at} class=${`is-${each?.status}`}>
        <${Icon} name=${BOXES[each?.status] ?? "todo"} label=${BOX_WORDS[each?.status] ?? "to do"} />
        <span>${unmasked(String(each?.content ?? ""))}</span>
      </li>`)}
    </ul>
  <//>`;
}

/** A tool that is known by its name alone; an agent's report is read as its words are. */
function Other({ session, call, runs, isFound }) {
  const { toolName, toolInput } = call.event.data;
  const [isOpen, turn] = useOpen(isFound);
  const isMore = JSON.stringify(toolInput ?? "").length > SHORT;
  const isReport = toolName === "Task" || toolName === "Agent";
  const given = callText(toolInput, rootOf(session));
  return html`<${Tool}
    call=${call}
    runs=${runs}
    title=${html`<span class="tool-name">${visible(toolName ?? "tool")}</span> <code>${visible(given)}</code>`}
  >
    <div class="inside">
      ${isMore && html`
        <button type="button" class="link fold" aria-expanded=${isOpen} onClick=${turn}>
          ${isOpen ? "Hide what it was given" : "What it was given"}
        </button>`}
      ${isOpen && html`<${Printed} text=${laidOut(toolInput)} label="What it was given" />`}
      ${call.result && (isReport && !call.result.data.truncated && !call.result.data.isError
        ? html`<${Words} text=${call.result.data.result} />`
        : html`<${Output} session=${session} result=${call.result} />`)}
    </div>
  <//>`;
}

const KINDS = {
  words: Said,
  call: Called,
  folded: Folded,
  output: Program,
  rig: Program,
  sentinel: Sentinel,
  note: Note,
};
