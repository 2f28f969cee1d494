/** Every component and view in every state, in both schemes: to look at before and after a change of one. */
import { html, render, useState } from "./dom.js";
import { Views } from "./gallery-views.js";
import { Act, At, Button, Card, Delta, Empty, Kbd, Pill, Progress, Row, Since, StepsSoFar, Tag, Tip } from "./parts/basics.js";
import { Dialog, Obstacle, Trouble } from "./parts/dialog.js";
import { Diff } from "./parts/diff.js";
import { ICONS, Icon } from "./parts/icon.js";
import { Lines, linesBetween } from "./parts/lines.js";
import { PagedList } from "./parts/paged-list.js";
import { Picture } from "./parts/picture.js";
import { Tabs } from "./parts/tabs.js";
import { VirtualList } from "./parts/virtual-list.js";

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

const PATCH = `--- a/src/records.py
+++ b/src/records.py
@@ -41,2 +41,2 @@
 def parse(row):
-    return float(row)
+    return float(row.strip())
`;
const PIXEL = Uint8Array.from(
  atob("R0lGODlhAQABAIAAADRX1QAAACwAAAAAAQABAAACAkQBADs="),
  (each) => each.charCodeAt(0),
);
const ERROR = { message: "The rule does not allow the call.", hint: "Write a rule that fits the whole call." };
const PAGES = { count: 1, at: () => ["One block,", "and another."].map((text, key) => ({ key, text })), want: () => undefined };

/** Sessions as far as the components look at them: one that can act, and one without connection. */
const own = (/** @type {string | null} */ obstacle, phase = "open") =>
  /** @type {any} */ ({ obstacle, say: () => undefined, store: { connection: { phase } } });

/** @param {{scheme: string}} props */
function Scheme({ scheme }) {
  const [tab, setTab] = useState("transcript");
  const [row, setRow] = useState(1);
  const [isOpen, setOpen] = useState(false);
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
    ${sample("Act", html`
      <${Act} session=${own(null)} onClick=${say}>Take a checkpoint<//>
      <${Act} session=${own("There is no connection.")} onClick=${say}>Take a checkpoint<//>`)}
    ${sample("Kbd", html`<${Kbd}>a<//><${Kbd}>Enter<//>`)}
    ${sample("Pill", STATES.map(([role, icon, words]) => html`<${Pill} role=${role} icon=${icon}>${words}<//>`))}
    ${sample("Tag", ROLES.map((role) => html`<${Tag} role=${role}>${role === "person" ? "yours" : role}<//>`))}
    ${sample("Delta", html`<${Delta} added=${1204} removed=${3} />`)}
    ${sample("At", html`<${At} at="2026-01-04T12:00:00.000Z" />`)}
    ${sample("Since", [5_000, 25_000, 400_000, 9_000_000, 90_000_000, 900_000_000].map((ms) => html`<${Since} at=${new Date(Date.now() - ms).toISOString()} now=${Date.now()} />`))}
    ${sample("Tip", html`<${Tip} text="Estimated from 3 earlier rounds.">
      ${(/** @type {string} */ id) => html`<button aria-describedby=${id}>about 4 min left</button>`}
    <//>`)}
    ${sample("Progress", ROLES.map((role, at) => html`<${Progress} role=${role} done=${at + 1} total=${6} label=${`${role}, ${scheme}`} />`))}
    ${sample("StepsSoFar", html`<${StepsSoFar} at=${9} total=${12} role="wait" />`)}
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
    ${sample("Lines", html`<${Lines} lines=${lines} label=${`A difference, ${scheme}`} />`)}
    ${sample("Diff", html`<${Diff} patch=${PATCH} label=${`A patch, ${scheme}`} />`)}
    ${sample("Picture", html`
      <${Picture} format=${{ type: "image/gif", width: 1, height: 1 }} label="A picture" read=${async () => [PIXEL]} />
      <${Picture} format=${{ type: "image/gif", width: 100_000, height: 100_000 }} label="A large one" read=${async () => []} />
      <${Picture} format=${{ type: "image/gif", width: 1, height: 1 }} label="A damaged one" read=${async () => [PIXEL.slice(0, 9)]} />`)}
    ${sample("VirtualList", html`<${VirtualList}
      id=${`rows-${scheme}`}
      count=${1_000}
      rowHeight=${28}
      label=${`Rows, ${scheme}`}
      selected=${row}
      onSelect=${setRow}
      row=${(/** @type {number} */ at) => html`<span class="title">Row ${at + 1}</span>`}
    />`)}
    ${sample("PagedList", html`<${PagedList}
      source=${PAGES}
      version=${0}
      label=${`Pages, ${scheme}`}
      block=${(/** @type {any} */ { text }) => html`<p>${text}</p>`}
    />`)}
    ${sample("Trouble", html`<${Trouble} error=${ERROR} />`)}
    ${sample("Obstacle", html`
      <${Obstacle} session=${own("There is no connection.", "waiting")} isBusy=${false} />
      <${Obstacle} session=${own("This link is read-only.")} isBusy=${false} />`)}
    ${sample("Dialog", html`
      <button onClick=${() => setOpen(true)}>Open a dialog</button>
      ${isOpen && html`<${Dialog} title="Deny Write" onClose=${() => setOpen(false)}>
        <p>The call is not made.</p>
        <footer><button onClick=${() => setOpen(false)}>Cancel</button><button class="main">Deny</button></footer>
      <//>`}`)}
    ${sample("Empty", html`<${Empty}>No agent has said anything yet.<//>`)}
  </section>`;
}

render(
  html`<main>
    <h1>Components</h1><${Scheme} scheme="light" /><${Scheme} scheme="dark" />
    <${Views} scheme="light" /><${Views} scheme="dark" />
  </main>`,
  document.body,
);
