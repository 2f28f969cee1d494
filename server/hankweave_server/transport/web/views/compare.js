/** The difference of two checkpoints, or of one and the present. */
import { html, useState } from "../dom.js";
import { brief, recently, visible } from "../format.js";
import { Sign, kindOf, titleOf } from "../kinds.js";
import { Button, Empty } from "../parts/basics.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer, useNowAndThen } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";
import { Changes } from "./changes.js";

const OPEN = 4; // Files that show their differences at once.
const OFTEN = 1_000;

/**
 * Shows the difference of two checkpoints, the older one first; null is the present.
 * @param {import("../session.js").Session} session @param {string | null} one @param {string | null} other
 */
export function compare(session, one, other) {
  if (one === other) return session.say("Choose another one to compare it with.");

  const age = (/** @type {string | null} */ sha) =>
    sha === null ? Infinity : (session.store.bySha.get(sha)?.seq ?? 0);
  const [from, to] = age(one) <= age(other) ? [one, other] : [other, one];
  return session.look({ compare: { from: /** @type {string} */ (from), to }, pick: null });
}

/** @param {{session: import("../session.js").Session, looks: import("../session.js").Looks}} props */
export function Comparison({ session, looks }) {
  const { store } = session;
  const { from, to } = /** @type {{from: string, to: string | null}} */ (looks.compare);
  const version = to === null ? store.filesVersion + store.checkpointsVersion : 0;
  const [asked, ask] = useState(version);
  useNowAndThen(() => ask(version), OFTEN, [version]);
  const { data, error } = useAnswer(
    () => session.ask("checkpoint.diff", to === null ? { from } : { from, to }),
    [from, to, asked],
  );
  return html`<div class="step-view comparison">
    <header class="of-step">
      <h2>Comparison</h2>
      <dl>
        <dt>from</dt><dd><${Side} store=${store} sha=${from} title=${data?.fromTitle} /></dd>
        <dt>to</dt><dd><${Side} store=${store} sha=${to} title=${data?.toTitle} /></dd>
      </dl>
      <span class="ways">
        ${to !== null && html`
          <${Button} onClick=${() => session.look({ compare: { from: to, to: from } })}>Swap<//>
          <${Button} onClick=${() => session.look({ compare: { from, to: null } })}>With now<//>`}
        <${Button} hotkey="Esc" onClick=${() => session.look({ compare: null })}>Close<//>
      </span>
    </header>
    ${error && html`<${Trouble} error=${error} />`}
    ${data === null && !error && html`<${Empty}>Comparing …<//>`}
    ${data !== null && html`<div class="scrolls-down">
      <${Changes} key=${`${from} ${to} ${asked}`} session=${session} page=${data} open=${OPEN} />
    </div>`}
  </div>`;
}

/** One of both, as a way to it. */
function Side({ store, sha, title }) {
  if (sha === null) return html`<b>now</b>, the files as they are`;

  const record = store.bySha.get(sha);
  if (record === undefined) return html`<b>${visible(title ?? brief(sha))}</b>`;
  return html`<${Sign} kind=${record.kind} /> <b title=${kindOf(record.kind).title}>${visible(titleOf(record))}</b>${record.codonId && ` in ${visible(titleOfCodon(store.state, record.codonId))}`}
    <time datetime=${record.timestamp}> ${recently(record.timestamp)}</time>`;
}
