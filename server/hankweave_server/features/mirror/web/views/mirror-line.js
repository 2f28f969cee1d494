/** One line about the mirror of the execution; none if there is no mirror. */
import { html, useEffect, useState } from "../dom.js";
import { plural, roughly, time, unbroken, visible } from "../format.js";
import { Icon } from "../parts/icon.js";

const EVERY = 5_000;

/** @typedef {import("hankweave").MirrorStatus} Mirror */

/** @param {{session: import("../session.js").Session}} props */
export function MirrorLine({ session }) {
  const { store } = session;
  const mirror = useMirror(store);
  const since = store.problems.get("MIRROR_UNREACHABLE")?.since ?? null;
  if (mirror === null) return null;

  const address = html`<code>${line(mirror.address)}</code>`;
  return html`<section class=${`banner ${since === null ? "r-plain" : "r-bad"}`} aria-label="Mirror">
    <${Icon} name=${since === null ? "done" : "offline"} />
    <p>
      ${since === null ? html`Mirrored to ${address}` : html`The mirror ${address} cannot be reached since ${time(since)}`}:${" "}
      ${behindOf(mirror)}${mirror.leaseHeld ? "." : "; the agent is stopped until it can be."}${" "}
      <span class="hint">owned by ${line(mirror.owner)}</span>
    </p>
  </section>`;
}

/** @param {Mirror} mirror */
const behindOf = ({ eventsBehind, secondsBehind, mirroredSeq }) =>
  eventsBehind === 0
    ? `all ${plural(mirroredSeq, "event")} are in it`
    : `${plural(eventsBehind, "event")} behind, at most ${roughly(secondsBehind * 1_000)}`;

/**
 * Asked again and again while there is one. A server begins one only when it starts, and the
 * connection is then a new one.
 * @param {import("../store.js").Store} store
 */
function useMirror(store) {
  const [mirror, setMirror] = useState(/** @type {Mirror | null} */ (null));
  const isOpen = store.isLoaded && store.connection.phase === "open";
  useEffect(() => {
    if (!isOpen) return undefined;

    let timer = 0;
    let isWanted = true;
    const ask = async () => {
      const found = await store.ask("mirror.status").catch(() => null);
      if (!isWanted) return;

      setMirror(found);
      if (found !== null) timer = setTimeout(ask, EVERY);
    };
    ask();
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [store, store.execution, isOpen]);
  return mirror;
}

/** What may have several lines, in one. @param {string} text */
const line = (text) => visible(unbroken(text));
