/** Numbers, times and names as people read them. */

const money = new Intl.NumberFormat("en", {
  style: "currency",
  currency: "USD",
  maximumFractionDigits: 4,
  minimumFractionDigits: 2,
});
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** @param {number} usd */
export const dollars = (usd) => money.format(usd);
/** @param {number} n */
export const count = (n) => whole.format(n);
/** @param {number} n */
export const compact = (n) => short.format(n);

const cents = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });

/** For a glance; `dollars` has every digit. @param {number} usd */
export function price(usd) {
  return usd > 0 && usd < 0.005 ? "<$0.01" : cents.format(usd);
}

/** As a clock shows it. @param {number} ms */
export function clockSpan(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const two = (/** @type {number} */ n) => `${n}`.padStart(2, "0");
  const [h, m] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return h > 0 ? `${h}:${two(m)}:${two(seconds % 60)}` : `${m}:${two(seconds % 60)}`;
}

/** Roughly, in one unit or two. @param {number} ms */
export function roughly(ms) {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return `${Math.max(0, Math.round(ms / 1000))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A path as it is called in the work tree. @param {string} path @param {string} [root] */
export const inTree = (path, root) =>
  root && path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path;

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** @param {string} timestamp */
export function time(timestamp) {
  const at = new Date(timestamp);
  return Number.isNaN(at.getTime()) ? timestamp : clock.format(at);
}

/** @param {string} timestamp */
export function moment(timestamp) {
  const at = new Date(timestamp);
  return Number.isNaN(at.getTime()) ? timestamp : `${day.format(at)}, ${clock.format(at)}`;
}

const TENTH = 10_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const date = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** Days from one time to another, as a calendar counts them. @param {number} from @param {number} to */
export const daysBetween = (from, to) =>
  Math.round((new Date(to).setHours(0, 0, 0, 0) - new Date(from).setHours(0, 0, 0, 0)) / (24 * HOUR));

/** How long ago it was, or when: "6 min ago", "yesterday 17:20". @param {string | null | undefined} timestamp @param {number} now */
export function ago(timestamp, now) {
  const at = Date.parse(timestamp ?? "");
  if (Number.isNaN(at)) return "—";
  const ms = now - at;
  if (ms < TENTH) return "now";
  if (ms < MINUTE) return `${10 * Math.floor(ms / TENTH)} s ago`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ago`;
  const days = daysBetween(at, now);
  if (days === 0) return `${Math.floor(ms / HOUR)} h ago`;
  const hour = clock.format(at).slice(0, 5);
  return days === 1 ? `yesterday ${hour}` : `${date.format(at)}, ${hour}`;
}

/** Without the date, if that is today. @param {string} timestamp */
export const recently = (timestamp) =>
  new Date(timestamp).toDateString() === new Date().toDateString() ? time(timestamp) : moment(timestamp);

/** @param {number} ms */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;

  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} n */
export function bytes(n) {
  if (n < 1_000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1_000).toFixed(1)} kB`;
  return `${(n / 1_000_000).toFixed(1)} MB`;
}

/** @param {string} sha */
export const brief = (sha) => sha.slice(0, 8);

const number = (mark) => `\\u${mark.codePointAt(0).toString(16).padStart(4, "0")}`;

// Between two pictures a joiner makes one of them; elsewhere nobody sees it.
const MASKS =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\u{e0000}-\u{e007f}\ud800-\udfff]|(?<![\p{Extended_Pictographic}\ufe0f\u{1f3fb}-\u{1f3ff}])\u200d/gu;

/** Control characters, marks that turn text around and such as nobody sees could make a name look like another. @param {string} name */
export function visible(name) {
  return name.replace(MASKS, number);
}

/** The same for what has lines: only what could make it look as if it said something else. @param {string} text */
export function unmasked(text) {
  return text.replace(
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u202a-\u202e\u2066-\u2069]/g,
    number,
  );
}

const LONGEST_CALL = 300; // Characters of a call in one line.
const LONGEST = 20_000; // Characters of one text among many.

/** The beginning of a very long text. @param {string} text */
export function clipped(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… (the journal contains the rest)` : text;
}

/** A value as JSON, to be read by people. @param {any} value */
export const laidOut = (value) => unmasked(JSON.stringify(value, null, 2));

/** Text in one line: what would break it is a space. @param {string} text */
export const unbroken = (text) => text.replace(/\s*[\n\r]\s*/g, " ").trim();

/** What a tool was called with, in one line; paths from the work tree. @param {any} input @param {string} [root] */
export function callText(input, root) {
  if (input === null || typeof input !== "object") return "";

  const telling = ["command", "file_path", "path", "pattern", "url", "query", "description"];
  const key = telling.find((each) => typeof input[each] === "string");
  const whole = key === undefined ? JSON.stringify(input) : input[key];
  // A name with a break in it must not look like another one.
  const isPath = key === "file_path" || key === "path";
  const text = isPath ? inTree(whole, root) : unbroken(whole.slice(0, 4 * LONGEST_CALL));
  return text.length > LONGEST_CALL ? `${text.slice(0, LONGEST_CALL)}…` : text;
}
