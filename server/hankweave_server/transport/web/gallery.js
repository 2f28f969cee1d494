/** Every component in every state, in both schemes: to look at before and after a change of one. */
import { html, render, useState } from "./dom.js";
import { Button, Card, Delta, Empty, Kbd, Pill, Progress, Row, Tag } from "./parts/basics.js";
import { ICONS, Icon } from "./parts/icon.js";
import { Lines, linesBetween } from "./parts/lines.js";
import { Tabs } from "./parts/tabs.js";

const ROLES = ["plain", "accent", "good", "bad", "wait", "person"];
const GROUNDS = ["ground", "raised", "sunk", "accent-ground", "good-ground", "bad-ground", "wait-ground", "person-ground"];
const STATES = [
  ["accent", "running", "Running"],
  ["wait", "waiting", "Waits for you"],
  ["bad", "failed", "Failed"],
  ["good", "done", "Completed"],
  ["plain", "pause", "Idle"],
  ["plain", "todo", "Not started"],
];
const BEFORE = "def parse(row):\n    depth = float(row)\n    return depth\n";
const AFTER = "def parse(row):\n    raw = row.strip()\n    return float(raw) if raw else None\n";

/** @param {{scheme: string}} props */
function Scheme({ scheme }) {
  const [tab, setTab] = useState("transcript");
  const lines = linesBetween(BEFORE, AFTER, 41);
  const say = () => undefined;
  const sample = (/** @type {string} */ title, /** @type {any} */ children) =>
    html`<div class="sample"><h3>${title}</h3>${children}</div>`;
  return html`<section class=${`scheme scheme-${scheme}`} aria-label=${scheme}>
    <h2>${scheme}</h2>
    ${sample("Type", html`
      <div>
        <h2>Title 16/24</h2>
        <p>Text 13/20, and <code>code 12/18</code></p>
        <p class="hint">Secondary 12/18</p>
        <p class="figure">Times and costs 11/16: 10:32:07 $0.18</p>
      </div>`)}
    ${sample("Grounds", GROUNDS.map((each) => html`<span class=${`colour t-${each}`}>${each}</span>`))}
    ${sample("Icon", ICONS.map((name) => html`<span class="hint"><${Icon} name=${name} /> ${name}</span>`))}
    ${sample("Button", html`
      <${Button} look="primary" hotkey="r">Retry<//>
      <${Button} hotkey="z">Back to before it<//>
      <${Button} look="danger" hotkey="d">Deny…<//>
      <${Button} look="primary danger">Go back<//>
      <${Button} look="quiet">Quiet<//>
      <${Button} look="link">prompt<//>
      <${Button} why="A rollback is in progress." onWhy=${say} hotkey="s">Skip…<//>
      <${Button} isBusy=${true}>Working …<//>`)}
    ${sample("Kbd", html`<${Kbd}>a<//><${Kbd}>Enter<//>`)}
    ${sample("Pill", STATES.map(([role, icon, words]) => html`<${Pill} role=${role} icon=${icon}>${words}<//>`))}
    ${sample("Tag", ROLES.map((role) => html`<${Tag} role=${role}>${role === "person" ? "yours" : role}<//>`))}
    ${sample("Delta", html`<${Delta} added=${1204} removed=${3} />`)}
    ${sample("Progress", ROLES.map((role, at) => html`<${Progress} role=${role} done=${at + 1} total=${6} label=${`${role}, ${scheme}`} />`))}
    ${sample("Row", html`
      <${Row} icon="done" title="Fetch the orders" figures=${["0:41", "$0.07"]} />
      <${Row} icon="running" title="Check every row" figures=${["0:52", "$0.18"]} isSelected=${true} />
      <${Row} icon="todo" title="A name that is much too long for the room that there is for it in a column of steps" figures=${["~2:10", "~$0.40"]} />`)}
    ${sample("Tabs", html`<${Tabs}
      id=${`tabs-${scheme}`}
      label=${`Tabs, ${scheme}`}
      panel=${`panel-${scheme}`}
      selected=${tab}
      onSelect=${setTab}
      tabs=${[["transcript", "Transcript"], ["changes", "Changes 3"], ["events", "Events"]]}
    /><div id=${`panel-${scheme}`} role="tabpanel" aria-labelledby=${`tabs-${scheme}-${tab}`}>${tab}</div>`)}
    ${sample("Card", html`
      <${Card} title=${html`<b>Edit</b> <code>src/records.py</code> <${Delta} added=${2} removed=${2} />`} aside="10:32:31">
        <${Lines} lines=${lines} label=${`Lines, ${scheme}`} />
      <//>
      <${Card} role="wait" title=${html`<${Icon} name="waiting" /> <b>Write</b> <code>out/summary.md</code>`} aside="waits for you" />
      <${Card} isRaised=${true} title=${html`<b>Back to before Check every row</b>`}>
        <div class="inside">Everything is saved first; undo takes it back.</div>
      <//>`)}
    ${sample("Empty", html`<${Empty}>No agent has said anything yet.<//>`)}
  </section>`;
}

render(
  html`<main><h1>Components</h1><${Scheme} scheme="light" /><${Scheme} scheme="dark" /></main>`,
  document.body,
);
