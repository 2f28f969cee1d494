/** The page: its frame, its views, its dialogs, its keys. */
import { html, render, useEffect, useState } from "./dom.js";
import { useStore } from "./parts/hooks.js";
import { Session } from "./session.js";
import { Banners } from "./views/banners.js";
import { CostView } from "./views/cost.js";
import { Dialogs } from "./views/dialogs.js";
import { EventsView } from "./views/events.js";
import { ExecutionsView, useIsIndex } from "./views/executions.js";
import { Header } from "./views/header.js";
import { keyPressed } from "./views/keys.js";
import { LiveView } from "./views/live.js";
import { TimeView } from "./views/time.js";
import { TokenForm } from "./views/token-form.js";

const VIEWS = {
  live: { title: "Live", view: LiveView },
  time: { title: "Time", view: TimeView },
  events: { title: "Events", view: EventsView },
  cost: { title: "Cost", view: CostView },
};

/** @param {{session: Session}} props */
function App({ session }) {
  useStore(session.store);
  const [looks, setLooks] = useState(session.looks);
  const isIndex = useIsIndex();
  useEffect(() => {
    const listener = () => setLooks(session.looks);
    session.listeners.add(listener);
    return () => void session.listeners.delete(listener);
  }, [session]);
  useEffect(() => {
    if (isIndex) return undefined; // What the keys would do could not be seen.
    const press = (/** @type {KeyboardEvent} */ event) => keyPressed(event, session);
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [session, isIndex]);

  if (session.store.connection.phase === "refused")
    return html`<${TokenForm} session=${session} />`;
  if (isIndex) return html`<${ExecutionsView} session=${session} />`;

  const { view: View } = VIEWS[looks.tab];
  return html`
    <a class="skip" href="#content" onClick=${toContent}>To the content</a>
    <${Header} session=${session} />
    <${Banners} session=${session} />
    <nav aria-label="Views">
      ${Object.entries(VIEWS).map(
        ([tab, { title }], at) => html`<button
          key=${tab}
          aria-current=${tab === looks.tab ? "page" : undefined}
          title=${`Key ${at + 1}`}
          onClick=${() => session.look({ tab })}
        >${title}</button>`,
      )}
      <button class="help" onClick=${() => session.look({ dialog: { kind: "help" } })}>
        Keys <kbd>?</kbd>
      </button>
    </nav>
    <main id="content" tabindex="-1" class=${`view-${looks.tab}`}>
      <${View} key=${`${looks.tab} ${session.store.execution}`} session=${session} looks=${looks} />
    </main>
    <${Dialogs} session=${session} dialog=${looks.dialog} />
    <p class=${looks.note ? "note shown" : "note"} role="status">
      ${looks.note}
      ${looks.note && html`<button aria-label="Dismiss" onClick=${() => session.say("")}>✕</button>`}
    </p>
  `;
}

/** The fragment of the address holds the token: it must stay. @param {Event} event */
function toContent(event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

render(html`<${App} session=${new Session(location)} />`, document.body);
