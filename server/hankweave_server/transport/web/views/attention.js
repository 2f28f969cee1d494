/** What reaches a person who looks elsewhere: the title, the icon of the tab, and notifications. */
import { useEffect, useRef } from "../dom.js";
import { callInWords, nameOfExecution, reasonOf, standingOf, titleOfCodon } from "../standing.js";

const KEPT = "hankweave.notify";

/** @param {{session: import("../session.js").Session}} props */
export function Attention({ session }) {
  const { store } = session;
  const call = callOf(store);
  const before = useRef(/** @type {string | null} */ (null));
  const title = titleFor(store, call);
  useEffect(() => void (document.title = title), [title]);
  useEffect(() => {
    const link = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
    const icon = call === null ? "favicon.svg" : `favicon-${call.kind}.svg`;
    if (link !== null && link.getAttribute("href") !== icon) link.href = icon;
  }, [call?.kind]);
  useEffect(() => {
    if (!store.isLoaded) return;
    // What was so when the page was opened is in front of its reader.
    if (call !== null && before.current !== null && before.current !== call.key) notify(call);
    before.current = call?.key ?? "";
  }, [call?.key, store.isLoaded]);
  return null;
}

/**
 * Why a person is needed; null where none is.
 * @param {import("../store.js").Store} store
 */
function callOf(store) {
  const { asked, failed } = standingOf(store);
  if (asked !== null)
    return {
      kind: "waiting",
      key: asked.requestId,
      word: "approve",
      text: `${titleOfCodon(store.state, asked.codonId)} waits for you: ${callInWords(asked, store.server)}`,
    };
  if (failed === null) return null;

  const name = titleOfCodon(store.state, failed.codonId);
  return {
    kind: "failed",
    key: `${failed.codonId} ${failed.endTime}`,
    word: "failed",
    text: `${name} failed: ${reasonOf(failed)}`,
  };
}

function titleFor(
  /** @type {import("../store.js").Store} */ store,
  /** @type {ReturnType<typeof callOf>} */ call,
) {
  const name = nameOfExecution(store);
  if (call !== null) return `(!) ${call.word}: ${name}`;

  const { active, at, total } = standingOf(store);
  return active === null ? name : `${at}/${total} ${name}`;
}

/** @param {{key: string, text: string}} call */
function notify({ key, text }) {
  if (areNotificationsOn()) new Notification(document.title, { body: text, tag: key });
}

export function areNotificationsOn() {
  try {
    return localStorage.getItem(KEPT) === "on" && Notification.permission === "granted";
  } catch {
    return false;
  }
}

/** Turns them on, if the browser lets us, or off. Returns what was done, in a sentence. */
export async function turnNotifications() {
  if (areNotificationsOn()) {
    localStorage.setItem(KEPT, "off");
    return "Notifications are off.";
  }
  if (!("Notification" in globalThis))
    return "This browser shows notifications only for pages on this machine or with https.";

  if ((await Notification.requestPermission()) !== "granted")
    return "The browser does not allow notifications of this page; its settings can.";
  try {
    localStorage.setItem(KEPT, "on");
  } catch {
    return "The browser lets this page keep no settings.";
  }
  return "You are notified when a step fails or asks for permission.";
}
