/** The index: all executions of the user, those first that need a person; a row leads to its page. */
import { html, useEffect, useRef, useState } from "../dom.js";
import { dollars, moment, plural, time } from "../format.js";
import { useAnswer, useNow } from "../parts/hooks.js";

const NAME = "executions";
const EVERY = 3_000; // Milliseconds between two looks at the files.
const TYPED = 150;
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/** @typedef {import("hankweave").ListedExecution} Row */

/** The address with the index shown, or without it; the token stays. @param {boolean} shown */
function addressOf(shown) {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (shown) wanted.set("view", NAME);
  else wanted.delete("view");
  return `#${wanted}`;
}

const isShown = () => new URLSearchParams(location.hash.slice(1)).get("view") === NAME;

/** Shows the index; Back leaves it. */
export function showExecutions() {
  location.hash = addressOf(true);
}

/** Whether the address asks for the index. */
export function useIsIndex() {
  const [shown, setShown] = useState(isShown());
  useEffect(() => {
    const look = () => setShown(isShown());
    addEventListener("hashchange", look);
    addEventListener("popstate", look);
    return () => {
      removeEventListener("hashchange", look);
      removeEventListener("popstate", look);
    };
  }, []);
  return shown;
}

/** @param {{session: import("../session.js").Session}} props */
export function ExecutionsView({ session }) {
  const [search, setSearch] = useState("");
  const [note, setNote] = useState("");
  const now = useNow(EVERY, true);
  const { phase } = session.store.connection;
  const isOpen = phase === "open";
  const rested = useRested(search);
  const tick = document.hidden ? 0 : Math.floor(now / EVERY);
  const { data, error } = useAnswer(
    () => (isOpen ? session.ask("executions.list", { search: rested }) : Promise.reject(new Error(""))),
    [tick, rested, phase],
  );
  const last = useRef(/** @type {any} */ (null));
  if (data !== null) last.current = data;
  const page = last.current;

  /** @param {Row} row */
  const open = async (row) => {
    if (row.path === session.store.server?.executionPath) return void (location.hash = addressOf(false));
    try {
      const { pageUrl, token } = await session.ask("executions.address", { executionPath: row.path });
      location.assign(token === null ? pageUrl : `${pageUrl}#${new URLSearchParams({ token })}`);
    } catch (failure) {
      const { message, hint } = /** @type {any} */ (failure);
      setNote(hint ? `${message} ${hint}` : message);
    }
  };

  return html`<main class="executions" id="content" tabindex="-1">
    <header>
      <h1>Executions</h1>
      <p class="of" role="status">${summary(page, error, isOpen)}</p>
      <${Search} value=${search} onInput=${setSearch} />
      <a class="back" href=${addressOf(false)}>This execution</a>
    </header>
    ${note && html`<p class="said" role="alert">${note}</p>`}
    ${
      page !== null &&
      html`<div class="heads" aria-hidden="true">
        <span></span><span>Hank</span><span>Now</span><span>Progress</span><span>Cost</span>
        <span>Last activity</span><span></span>
      </div>
      <ul aria-label="Executions">
        ${page.executions.map(
          (/** @type {Row} */ row) =>
            html`<${Line} key=${row.path} row=${row} now=${now} open=${open} />`,
        )}
      </ul>`
    }
    ${page?.cursor && html`<p class="more">${plural(page.total - page.executions.length, "more one", "more")}: search for them.</p>`}
  </main>`;
}

/** What was typed, once the keys rest. @param {string} text */
function useRested(text) {
  const [rested, setRested] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setRested(text), TYPED);
    return () => clearTimeout(timer);
  }, [text]);
  return rested;
}

function summary(page, error, isOpen) {
  if (!isOpen) return "There is no connection.";
  if (error !== null) return error.hint ? `${error.message} ${error.hint}` : error.message;
  if (page === null) return "Reading …";
  const whom = page.needing === 0 ? "none needs" : plural(page.needing, "needs", "need");
  return `${page.total} here · ${whom} you`;
}

function Search({ value, onInput }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      const isTyping = /** @type {Element} */ (event.target).matches("input, textarea, select");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return html`<label class="search">
    <span class="hidden">Search</span>
    <input
      ref=${field}
      type="search"
      placeholder="Search hank, path, step"
      maxlength="200"
      value=${value}
      onInput=${(event) => onInput(event.target.value)}
    />
    <kbd aria-hidden="true">/</kbd>
  </label>`;
}

/** @param {{row: Row, now: number, open: (row: Row) => void}} props */
function Line({ row, now, open }) {
  const { kind, word, text } = standing(row, now);
  const name = row.hankName ?? lastPart(row.path);
  const planned = row.codonsPlanned ?? 0;
  const done = Math.min(row.codonsDone ?? 0, planned);
  return html`<li class=${`kind-${kind}${row.attemptOf ? " attempt" : ""}`}>
    <button onClick=${() => open(row)}>
      <span class="sign" aria-hidden="true" title=${word}>${SIGNS[kind]}</span>
      <span class="hank">
        <b>${name}</b><span class="hidden">, ${word}</span>
        <small>${row.attempt ? `attempt ${row.attempt} · ` : ""}${row.path}</small>
      </span>
      <span class="now">${text}</span>
      <span class="progress">
        <small>${planned === 0 ? "no plan yet" : `${done} of ${planned}`}</small>
        <meter min="0" max=${planned || 1} value=${done} aria-label="Progress"></meter>
      </span>
      <span class="cost">${cost(row)}</span>
      <span class="last">${ago(row.lastActivity ?? row.lastUsed, now)}</span>
      <span class="server">${row.serverPid ? "" : "no server"}</span>
    </button>
  </li>`;
}

const SIGNS = { asks: "?", bad: "✕", runs: "●", waits: "◌", good: "✓", calm: "○" };

/**
 * What goes on there: a colour and a sign, a word for it, and a sentence.
 * @param {Row} row
 * @param {number} now
 * @returns {{kind: keyof typeof SIGNS, word: string, text: string}}
 */
export function standing(row, now) {
  const step = row.lastCodon ?? "";
  /** @param {string | null | undefined} what */
  const at = (what) => [step, what].filter(Boolean).join(" · ");
  if (row.problem) return { kind: "bad", word: "cannot be read", text: row.problem };
  if (row.waitsFor) return { kind: "asks", word: "waits for you", text: at(`waits for you: ${row.waitsFor}`) };
  if (row.state === "failed" || row.state === "crashed")
    return { kind: "bad", word: row.state, text: at(row.failure ?? row.state) };
  if (row.waitsUntil && Date.parse(row.waitsUntil) > now)
    return { kind: "waits", word: "waits", text: at(`waits for a limit until ${time(row.waitsUntil)}`) };
  if (row.state === "running")
    return { kind: "runs", word: "running", text: step ? at(row.doing ?? "at work") : "no step runs" };
  if (row.state === "completed") return { kind: "good", word: "completed", text: "completed" };
  return { kind: "calm", word: row.state, text: at(row.state) };
}

/** @param {Row} row */
function cost({ cost: spent, maxDollars }) {
  if (spent === null || spent === undefined) return "—";
  return maxDollars ? `${dollars(spent)} of ${dollars(maxDollars)}` : dollars(spent);
}

/** @param {string | null | undefined} timestamp @param {number} now */
export function ago(timestamp, now) {
  if (!timestamp) return "—";
  const ms = now - Date.parse(timestamp);
  if (ms < MINUTE) return "now";
  if (ms < 60 * MINUTE) return `${Math.floor(ms / MINUTE)} min ago`;
  return ms < DAY ? time(timestamp).slice(0, 5) : moment(timestamp).replace(/:\d\d$/, "");
}

/** @param {string} path */
const lastPart = (path) => path.slice(path.lastIndexOf("/") + 1);
