/** Searches for the first checkpoint at which a command fails, whoever has begun them. */

const MOST = 8;
const TYPES = ["bisect.started", "bisect.ended"];

/** @typedef {import("./store.js").Store} Store */
/**
 * @typedef {{bisectId: string, command: string, seq: number, tried: any[], ended: any, isSeen: boolean}} Search
 *   `tried`: the results that were heard; `ended`: the event of its end, or null; `isSeen`: whether
 *   its result was looked at here
 */

/** @type {WeakMap<Store, {execution: number, searches: Search[]}>} */
const known = new WeakMap();

/** Those of the execution that is served, oldest first. @param {Store} store @returns {Search[]} */
export function searchesOf(store) {
  const kept = known.get(store);
  return kept?.execution === store.execution ? kept.searches : [];
}

/** @param {Store} store @param {Search[]} searches */
function keep(store, searches) {
  known.set(store, { execution: store.execution, searches });
  store.changed();
}

/** @param {Store} store @param {string} id @param {(search: Search) => Partial<Search>} change */
export function changeSearch(store, id, change) {
  keep(store, searchesOf(store).map((each) => (each.bisectId === id ? { ...each, ...change(each) } : each)));
}

/** @param {Store} store @param {{bisectId: string, command: string}} begun @param {number} seq */
function add(store, { bisectId, command }, seq) {
  const before = searchesOf(store);
  if (before.some((each) => each.bisectId === bisectId)) return;

  const added = { bisectId, command, seq, tried: [], ended: null, isSeen: false };
  keep(store, [...before, added].sort((a, b) => a.seq - b.seq).slice(-MOST));
}

/** @param {Store} store @param {any} event */
export function hearSearch(store, { type, data, seq }) {
  switch (type) {
    case "bisect.started":
      add(store, data, seq);
      break;
    case "bisect.progress":
      changeSearch(store, data.bisectId, ({ tried }) => ({ tried: [...tried, data] }));
      break;
    case "bisect.ended":
      changeSearch(store, data.bisectId, () => ({ ended: data }));
      break;
    case "server.started": // A search ends with its server, and nothing tells of that.
      for (const { bisectId, ended } of searchesOf(store)) {
        if (ended === null) changeSearch(store, bisectId, () => ({ ended: { bisectId, message: "Its server has ended." } }));
      }
      break;
  }
}

/** Asks for those that this server began before the page was opened, and that have not ended. @param {Store} store */
export async function loadSearches(store) {
  const { execution, startedAt } = store;
  const query = { types: TYPES, since: startedAt, newestFirst: true, limit: MOST };
  const { events = [] } = await store.ask("events.query", query);
  if (execution !== store.execution) return; // Another one meanwhile.

  /** @type {any[]} */
  const told = events;
  const ended = new Set(told.filter(({ type }) => type === "bisect.ended").map(({ data }) => data.bisectId));
  for (const { type, data, seq } of told) {
    if (type === "bisect.started" && !ended.has(data.bisectId)) add(store, data, seq);
  }
}
