/** One event: what it says, what led to it, what it led to. */
import { html } from "../dom.js";
import { count, laidOut, moment } from "../format.js";
import { Dialog, Trouble } from "../parts/dialog.js";
import { useAnswer } from "../parts/hooks.js";
import { sentenceOf } from "../sentences.js";

const SHOWN = 50;

/** @param {{session: import("../session.js").Session, event: any, onClose: () => void}} props */
export function EventDialog({ session, event, onClose }) {
  const { seq, type, timestamp, causes = [] } = event;
  const query = (data) => session.ask("events.query", { ...data, limit: SHOWN });
  const before = useAnswer(
    () => query({ ancestorsOf: seq, newestFirst: true }),
    [seq],
  );
  const after = useAnswer(() => query({ descendantsOf: seq }), [seq]);
  const commands = causes.filter((each) => typeof each === "string");
  return html`<${Dialog} title=${`Event ${seq}: ${type}`} onClose=${onClose} wide=${true}>
    <p>
      ${moment(timestamp)}${commands.length > 0 && html`, because of the command <code>${commands.join(", ")}</code>`}
    </p>
    <div class="actions">
      <button onClick=${() => session.look({ dialog: null, moment: { seq }, step: null, compare: null })}>
        Show this moment
      </button>
    </div>
    <pre class="json" tabindex="0" aria-label="The event">${laidOut(event)}</pre>
    <div class="causes">
      <${Chain}
        session=${session}
        title="What led to it"
        answer=${before}
        none="No event is recorded as its cause."
      />
      <${Chain}
        session=${session}
        title="What it led to"
        answer=${after}
        none="No event was caused by it."
      />
    </div>
  <//>`;
}

function Chain({ session, title, answer, none }) {
  const { data, error } = answer;
  return html`<section aria-label=${title}>
    <h3>${title}</h3>
    <${Trouble} error=${error} />
    ${data === null && !error && html`<p class="empty">Searching …</p>`}
    ${data?.events.length === 0 && html`<p class="empty">${none}</p>`}
    <ul>
      ${data?.events.map((each) => {
        const { what, words } = sentenceOf({ event: each, result: null });
        return html`<li key=${each.seq}>
        <button onClick=${() => session.look({ dialog: { kind: "event", event: each } })}>
          <span class="seq">
            ${count(each.seq)}
          </span> <span class="type">${what}</span> <span class="gist">${words.slice(0, 90)}</span>
        </button>
      </li>`;
      })}
    </ul>
    ${data?.cursor && html`<p class="hint">and more</p>`}
  </section>`;
}
