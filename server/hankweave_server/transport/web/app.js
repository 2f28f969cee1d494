/** The page: its frame, its dialogs, its keys. */
import { html, render, useEffect, useLayoutEffect, useState } from "./dom.js";
import { useStore } from "./parts/hooks.js";
import { Icon } from "./parts/icon.js";
import { useLater } from "./parts/later.js";
import { joinLater } from "./places.js";
import { wearScheme } from "./scheme.js";
import { session } from "./start.js";
import { Attention } from "./views/attention.js";
import { Banners } from "./views/banners.js";
import { ExecutionsView } from "./views/executions.js";
import { Header } from "./views/header.js";
import { keyPressed } from "./views/keys.js";
import { Steps } from "./views/steps.js";
import { TokenForm } from "./views/token-form.js";

/** What is not needed to see how things stand. */
async function rest() {
  const [slots, { DecisionPlace }, { Dialogs }] = await Promise.all([
    import("./views/slots.js"),
    import("./views/decisions.js"),
    import("./views/dialogs.js"),
    joinLater(),
  ]);
  return { ...slots, DecisionPlace, Dialogs };
}

/** @param {{session: import("./session.js").Session}} props */
function App({ session }) {
  const { execution, connection, isLoaded } = useStore(session.store);
  const [looks, setLooks] = useState(session.looks);
  const [isTimeShown, showTime] = useState(false); // On a phone it is asked for.
  const isIndex = looks.index;
  useEffect(() => {
    if (isLoaded) performance.mark("hankweave: stands"); // For `scripts/bench ui`.
  }, [isLoaded]);
  const { Aside, Axis, DecisionPlace, Dialogs, Middle } =
    useLater(rest, isLoaded, () => session.say("A part of this page could not be loaded. Load it anew.")) ?? NOTHING;
  // At once, as for the store: a connection that opens before the first paint shows what a link names.
  useLayoutEffect(() => {
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

  if (connection.phase === "refused") return html`<${TokenForm} session=${session} />`;
  if (isIndex) return html`<${ExecutionsView} session=${session} />`;

  const isOpen = looks.step !== null || looks.moment !== null || looks.compare !== null || looks.tab !== "transcript";
  return html`
    <a class="skip" href="#content" onClick=${toContent}>To the content</a>
    <${Header} session=${session} looks=${looks} isOpen=${isOpen} />
    <section class=${`axis-place ${isTimeShown ? "shown" : ""}`} aria-label="Time">
      <button aria-expanded=${isTimeShown} onClick=${() => showTime(!isTimeShown)}>
        <${Icon} name="time" /> Time
      </button>
      ${Axis && html`<${Axis} key=${execution} session=${session} looks=${looks} />`}
    </section>
    <${Banners} session=${session} />
    <main class=${isOpen ? "open" : ""}>
      <section class="steps" aria-label="Steps">
        <${Steps} key=${execution} session=${session} looks=${looks} />
      </section>
      <section id="content" class="middle" tabindex="-1" aria-label="The step">
        ${Middle && html`<${Middle} key=${execution} session=${session} looks=${looks} />`}
      </section>
      <aside aria-label="Files and decisions">
        ${Aside && html`<${Aside} key=${execution} session=${session} looks=${looks} />`}
      </aside>
    </main>
    ${DecisionPlace && html`<${DecisionPlace} session=${session} looks=${looks} isSheet=${true} />`}
    ${Dialogs && html`<${Dialogs} session=${session} dialog=${looks.dialog} />`}
    <${Attention} session=${session} />
    <p class=${looks.note ? "note shown" : "note"} role="status">
      ${looks.note}
      ${looks.note && html`<button aria-label="Dismiss" onClick=${() => session.say("")}>✕</button>`}
    </p>
  `;
}

const NOTHING = { Aside: null, Axis: null, DecisionPlace: null, Dialogs: null, Middle: null };

/** The fragment of the address holds the token: it must stay. @param {Event} event */
function toContent(event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

wearScheme();
render(html`<${App} session=${session} />`, document.body);
