/** The index: all executions of the user, those first that need a person; a row leads to its page. */
import { html, useEffect, useRef, useState } from "../dom.js";
import { ago, clockSpan, daysBetween, dollars, moment, plural, price, time, visible } from "../format.js";
import { Button, Kbd, StepsSoFar } from "../parts/basics.js";
import { useAnswer, useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { NewRun } from "./new-run.js";

const EVERY = 3_000; // Milliseconds between two looks at the files.
const TYPED = 150;
const WEEK = 7; // Days after which a failure is one of the past, as the server has it.

/** @typedef {import("hankweave").ListedExecution} Row */

/** @param {{session: import("../session.js").Session}} props */
export function ExecutionsView({ session }) {
  const [search, setSearch] = useState("");
  const [note, setNote] = useState("");
  const [isNew, setNew] = useState(false);
  const [opened, setOpened] = useState(/** @type {string | null} */ (null)); // The map that is open.
  const now = useNow(EVERY, true);
  const { phase } = session.store.connection;
  const isOpen = phase === "open";
  const rested = useRested(search);
  const tick = document.hidden ? 0 : Math.floor(now / EVERY);
  const today = new Date(new Date(now).setHours(0, 0, 0, 0)).toISOString();
  const { data, error } = useAnswer(
    () => (isOpen ? session.ask("executions.list", { search: rested, spentSince: today }) : Promise.reject(new Error(""))),
    [tick, rested, phase],
  );
  const last = useRef(/** @type {any} */ (null));
  if (data !== null) last.current = data;
  const page = last.current;
  useKey("n", () => setNew(true));

  /** @param {Row} row */
  const open = async (row) => {
    if (row.map) return setOpened(opened === row.path ? null : row.path);
    if (row.path === session.store.server?.executionPath) return session.look({ index: false });
    try {
      const { pageUrl, token } = await session.ask("executions.address", { executionPath: row.path });
      location.assign(token === null ? pageUrl : `${pageUrl}#${new URLSearchParams({ token })}`);
    } catch (failure) {
      const { message, hint } = /** @type {any} */ (failure);
      setNote(hint ? `${message} ${hint}` : message);
    }
  };
  const own = session.store.server?.executionPath;
  const groups = page === null ? [] : grouped(page.executions, now);

  return html`<main class="executions" id="content" tabindex="-1">
    <header>
      <h1>Executions</h1>
      <p class="of" role="status">${summary(page, error, isOpen)}</p>
      <${Search} value=${search} onInput=${setSearch} />
      <span class="today" title="What was spent today, in all executions">
        ${page?.spent != null && html`today <b>${price(page.spent)}</b>`}
      </span>
      <${Button} look="link" onClick=${() => session.look({ index: false })}>This execution<//>
      <${Button} look="primary" hotkey="n" onClick=${() => setNew(true)}>New run<//>
    </header>
    ${note && html`<p class="said" role="alert">${note}</p>`}
    ${
      page !== null &&
      html`<div class="heads" aria-hidden="true">
        <span></span><span>Hank</span><span>Now</span><span>Progress</span><span>Cost</span>
        <span>Last activity</span><span>Where</span>
      </div>
      ${groups.map(
        ({ title, rows }) => html`<section key=${title} aria-label=${title || "Now"}>
          ${title && groups.length > 1 && html`<h2>${title}</h2>`}
          <ul aria-label="Executions">
            ${rows.map(
              (/** @type {Row} */ row) =>
                html`<${Line} key=${row.path} row=${row} now=${now} open=${open} own=${own} isOpen=${row.path === opened} />
                  ${row.path === opened && html`<${Items} key=${`${row.path}/`} of=${row} session=${session} tick=${tick} now=${now} open=${open} own=${own} />`}`,
            )}
          </ul>
        </section>`,
      )}`
    }
    ${page?.cursor && html`<p class="more">${plural(page.total - page.executions.length, "more one", "more")}: search for them.</p>`}
    ${isNew && html`<${NewRun} rows=${page?.executions ?? []} onClose=${() => setNew(false)} />`}
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

/**
 * What goes on or needs a person, and then the others by their day, in the order that they came in.
 * @param {Row[]} rows @param {number} now
 */
function grouped(rows, now) {
  /** @type {{title: string, rows: Row[]}[]} */
  const groups = [];
  for (const row of rows) {
    const days = daysBetween(Date.parse(row.lastActivity ?? row.lastUsed ?? "") || 0, now);
    const { kind } = standing(row, now);
    const isNow = ["asks", "runs", "waits"].includes(kind) || (kind === "bad" && days <= WEEK && !row.attempt);
    const title = isNow ? "" : (["Today", "Yesterday"][days] ?? "Earlier");
    const last = groups.at(-1);
    if (last !== undefined && (last.title === title || isNow)) last.rows.push(row);
    else groups.push({ title, rows: [row] });
  }
  return groups;
}

/** What a key does here, unless it is typed. @param {string} key @param {() => void} act */
function useKey(key, act) {
  const newest = useRef(act);
  newest.current = act;
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      const isTyping = /** @type {Element} */ (event.target).matches("input, textarea, select");
      const isOpen = document.querySelector("dialog[open]") !== null;
      if (event.key !== key || isTyping || isOpen || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      newest.current();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [key]);
}

function Search({ value, onInput }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useKey("/", () => field.current?.focus());
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
    <${Kbd}>/<//>
  </label>`;
}

/** The executions of a map that is open. @param {any} props */
function Items({ of, session, tick, now, open, own }) {
  const { data, error } = useAnswer(() => session.ask("executions.list", { mapPath: of.path }), [of.path, tick]);
  const last = useRef(/** @type {any} */ (null));
  if (data !== null) last.current = data;
  if (last.current === null) return html`<li class="attempt more">${error?.message ?? "Reading …"}</li>`;
  const { executions, total } = last.current;
  return html`${executions.map(
      (/** @type {Row} */ row) => html`<${Line} key=${row.path} row=${row} now=${now} open=${open} own=${own} />`,
    )}
    ${total > executions.length && html`<li class="attempt more">${plural(total - executions.length, "more one", "more")}: search for them.</li>`}`;
}

/** @param {{row: Row, now: number, open: (row: Row) => void, own: string | undefined, isOpen?: boolean}} props */
function Line({ row, now, open, own, isOpen }) {
  const { kind, word, text } = standing(row, now);
  const name = row.mapOf ? lastPart(row.path) : (row.hankName ?? lastPart(row.path));
  const { step = 0, steps = 0 } = row;
  return html`<li class=${`kind-${kind} r-${ROLES[kind]}${row.attemptOf || row.mapOf ? " attempt" : ""}`}>
    <button onClick=${() => open(row)} aria-expanded=${row.map ? String(isOpen) : undefined}>
      <span class="sign" title=${word}><${Icon} name=${ICONS[kind]} /></span>
      <span class="hank">
        <b>${visible(name)}</b><span class="hidden">, ${word}</span>
        ${row.attempt && html`<small>attempt ${visible(row.attempt)}</small>`}
        ${row.map && html`<small>map of ${plural(row.map.inputs, "input")}</small>`}
      </span>
      <span class="now">${visible(text)}</span>
      <span class="progress">
        ${steps === 0 ? html`<small>no plan yet</small>` : html`<${StepsSoFar} at=${step} total=${steps} role=${ROLES[kind]} />`}
      </span>
      <span class="cost">${cost(row)}</span>
      <${Last} row=${row} now=${now} />
      <span class="where" title=${row.path}>
        ${visible(lastPart(row.path))}
        <small>${row.path === own ? "this one" : row.serverPid || row.map ? "" : "no server"}</small>
      </span>
    </button>
  </li>`;
}

/** When something happened there last, or how long a question still waits. */
function Last({ row, now }) {
  const at = row.lastActivity ?? row.lastUsed;
  const left = row.answerUntil ? Date.parse(row.answerUntil) - now : 0;
  const text = left > 0 ? `${clockSpan(left)} left` : ago(at, now);
  return html`<time class="last" datetime=${at} title=${at && moment(at)}>${text}</time>`;
}

/** @type {Record<string, string>} */
const ICONS = { asks: "waiting", bad: "failed", runs: "running", waits: "time", good: "done", calm: "pause" };
/** @type {Record<string, string>} */
const ROLES = { asks: "wait", bad: "bad", runs: "accent", waits: "plain", good: "good", calm: "plain" };

/**
 * What goes on there: a colour and a sign, a word for it, and a sentence.
 * @param {Row} row
 * @param {number} now
 * @returns {{kind: "asks" | "bad" | "runs" | "waits" | "good" | "calm", word: string, text: string}}
 */
export function standing(row, now) {
  const step = row.lastCodonName ?? row.lastCodon ?? "";
  /** @param {string | null | undefined} what */
  const at = (what) => [step, what].filter(Boolean).join(" · ");
  if (row.problem) return { kind: "bad", word: "cannot be read", text: row.problem };
  if (row.map && row.state === "running" && !row.waitsFor) return { kind: "runs", word: "running", text: mapText(row.map) };
  if (row.waitsFor) return { kind: "asks", word: "waits for you", text: at(`waits for you: ${row.waitsFor}`) };
  if (row.state === "failed" || row.state === "crashed")
    return { kind: "bad", word: row.state, text: at(row.failure ?? row.state) };
  if (row.isIdle)
    return row.failure
      ? { kind: "bad", word: "failed", text: at(row.failure) }
      : { kind: "calm", word: "idle", text: "no step runs" };
  if (row.waitsUntil && Date.parse(row.waitsUntil) > now)
    return { kind: "waits", word: "waits", text: at(`waits for a limit until ${time(row.waitsUntil)}`) };
  if (row.state === "running")
    return { kind: "runs", word: "running", text: step ? at(row.doing ?? "at work") : "no step runs" };
  if (row.state === "completed") return { kind: "good", word: "completed", text: "completed" };
  return { kind: "calm", word: row.state, text: at(row.state) };
}

const mapText = (/** @type {any} */ { running, failed }) => `${running} at work${failed ? ` · ${failed} failed` : ""}`;

/** @param {Row} row */
function cost({ cost: spent, maxDollars }) {
  if (spent === null || spent === undefined) return "—";
  const whole = html`<span title=${dollars(spent)}>${price(spent)}</span>`;
  return maxDollars ? html`${whole} of ${price(maxDollars)}` : whole;
}

/** @param {string} path */
const lastPart = (path) => path.slice(path.lastIndexOf("/") + 1);
